package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

func TestNobodyBeatsTheOptimum(t *testing.T) {
	for _, s := range placers() {
		for seed := range uint64(10) {
			w := smallCase(seed)
			p, placed := s.new(w.fleet), 0
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
