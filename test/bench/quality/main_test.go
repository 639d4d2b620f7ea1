package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/replay"
)

func TestTheFiguresAreTheSameEveryTime(t *testing.T) {
	var first, second strings.Builder
	folder := t.TempDir()
	for _, out := range []*strings.Builder{&first, &second} {
		if err := run(out, folder, true); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Errorf("first\n%s\nthen\n%s", &first, &second)
	}
	plots, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil || len(plots) != 2 {
		t.Fatalf("plots %v, %v", plots, err)
	}
	for _, file := range plots {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
}

// TestARecordingIsPlayed records a hub of two clusters and four instances, by the type that
// `sluice place --record` writes.
func TestARecordingIsPlayed(t *testing.T) {
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	r := replay.Recording{Version: 1, Clusters: make([]v1alpha1.MemberCluster, 2), Instances: make([]v1alpha1.ServiceInstance, 4)}
	for i := range r.Clusters {
		r.Clusters[i].Name = fmt.Sprintf("cluster-%d", i)
		r.Clusters[i].Status.Allocatable, r.Clusters[i].Status.ForeignUse = amounts("5", "16Gi"), amounts("1", "1Gi")
		r.Clusters[i].Spec.Prices = &v1alpha1.PriceList{Currency: "EUR", PerHour: amounts("40m", "5m")}
	}
	for i := range r.Instances {
		r.Instances[i].Name = fmt.Sprintf("si-%d", i)
		r.Instances[i].Status.Left = []v1alpha1.LeftPlacement{{Placement: v1alpha1.Placement{Cluster: "cluster-0", Reserved: amounts("2500m", "1Gi")}}}
	}
	data, err := yaml.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "recording.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := runRecorded(&out, file); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4 reservations on 2 clusters", "| Sluice, balance | 50.0 % |", "| first fit | 50.0 % |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if _, err := recorded(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a file that is not there is played")
	}
}

// Where GPUs are scarce and orders have heavy tails, the score fit accepts most, refuses no large order before nearly all
// is sold, and strands at most two thirds of what the others strand; FGD, which knows what will be asked for, is an equal.
func TestFitKeepsRoomForLargeOrders(t *testing.T) {
	for name, drawn := range map[string]func(uint64, int) workload{"GPUs": withGPUs, "cores and memory": withoutGPUs} {
		table := contest(slices.Concat(ours()[:1], plain()), 4, func(seed uint64) workload { return drawn(seed, 1) })
		const accepted, soldAtLarge, stranded = 0, 2, 4
		fit := table[0].mean
		if fit[soldAtLarge] < 0.95 {
			t.Errorf("%s: a large order is refused when %.1f %% are sold", name, 100*fit[soldAtLarge])
		}
		for _, other := range table[1:] {
			if other.mean[accepted] > fit[accepted]+0.001 {
				t.Errorf("%s: %s accepts %.2f %%, fit %.2f %%", name, other.name, 100*other.mean[accepted], 100*fit[accepted])
			}
			most := other.mean[stranded] * 2 / 3
			if other.name == "FGD" {
				most = other.mean[stranded] + 0.002
			}
			if fit[stranded] > most {
				t.Errorf("%s: %s strands %.2f %%, fit %.2f %%", name, other.name, 100*other.mean[stranded], 100*fit[stranded])
			}
		}
	}
}

func TestATraceIsPlayed(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nodes := file("nodes.csv", "name,cluster,cpu,memory,gpu,x-model\na,one,8,32,1,T\nb,one,8,32,0.5,T\nc,two,16,64,,\n")
	play := func(tasks string) string {
		var out strings.Builder
		if err := runTrace(&out, nodes, file("tasks.csv", tasks), 100); err != nil {
			return err.Error()
		}
		return out.String()
	}
	// The third task comes when the first has gone, and takes its place.
	timed := play("cpu,memory,gpu,arrive,leave\n16,1,1.5,5,\n1,1,,2,\n16,1,1.5,1,5\n")
	for _, want := range []string{"3 tasks on 2 clusters", "example.com/gpu", "| Sluice, fit | 100.0 ± 0.0 % |"} {
		if !strings.Contains(timed, want) {
			t.Errorf("no %q in\n%s", want, timed)
		}
	}
	if drawn := play("cpu,memory\n1,1\n"); !strings.Contains(drawn, "32 tasks on 2 clusters; the scarcest resource is cpu") {
		t.Errorf("drawn at random:\n%s", drawn)
	}
	for tasks, want := range map[string]string{
		"cpu,memory,tpu\n1,1,1\n": "column tpu: ", "cpu,memory\n1,x\n": `line 2: memory: "x" is not a number`, "cpu,memory\n": "0 tasks", "": "the line of column names",
	} {
		if got := play(tasks); !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", tasks, got, want)
		}
	}
}

func TestNobodyBeatsTheOptimum(t *testing.T) {
	for _, s := range placers() {
		for seed := range uint64(10) {
			w := smallCase(seed)
			p, placed := s.new(w), 0
			for _, r := range w.requests {
				if p.place(r) >= 0 {
					placed++
				}
			}
			if best := optimum(w); placed > best {
				t.Errorf("%s places %d of case %d; the optimum is %d", s.name, placed, seed, best)
			}
		}
	}
}
