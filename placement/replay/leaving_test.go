package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// ofPlan makes an instance one of a plan of so many cores.
func ofPlan(i *v1alpha1.ServiceInstance, plan int) *v1alpha1.ServiceInstance {
	i.Spec.ServiceID = "compute"
	i.Status.Delivered.State.PlanID = fmt.Sprint(plan)
	return i
}

// computing returns a fleet of clusters with cores, which sells plans of one to eight of them.
func computing(has ...int) *Fleet {
	f := &Fleet{charts: recorded(nil)}
	for i, n := range has {
		f.Clusters = append(f.Clusters, *(placementtest.Cluster{Name: fmt.Sprintf("c%d", i), Has: cores(n)}).MemberCluster())
	}
	offering := v1alpha1.ServiceOfferingSpec{ID: "compute", Name: "compute"}
	for n := 1; n <= 8; n++ {
		offering.Plans = append(offering.Plans, v1alpha1.Plan{
			ID: fmt.Sprint(n), Name: fmt.Sprint(n), Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Limits: cores(n)},
		})
	}
	f.Offerings = append(f.Offerings, offering)
	return f
}

// left returns what happens if the first cluster is drained or lost.
func left(t rapid.TB, f *Fleet, lost bool) []Move {
	t.Helper()
	plans, err := f.catalog()
	if err != nil {
		t.Fatal(err)
	}
	moves, untried, err := f.Leave(context.Background(), plans, "c0", lost, recordedAt.Time)
	if err != nil || untried != 0 {
		t.Fatalf("%d are not tried: %v", untried, err)
	}
	return moves
}

func TestWhatADrainOrALossWouldDo(t *testing.T) {
	for name, row := range map[string]struct {
		has    []int
		change func(f *Fleet, i *v1alpha1.ServiceInstance)
		to     []string
		why    string // "-" if there is no move
		lost   bool
	}{
		"it moves":               {has: []int{8, 8}, to: []string{"c1"}},
		"it fits nowhere else":   {has: []int{8, 1}, why: "InsufficientCPU on 1 (c1: needs 2 cpu"},
		"there is nothing else":  {has: []int{8}, why: "the only cluster does not fit"},
		"it is elsewhere":        {has: []int{8, 8}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) { on(i, "c1") }, why: "-"},
		"it is a probe":          {has: []int{8, 8}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) { i.Labels = map[string]string{v1alpha1.LabelMeasure: "c0"} }, why: "-"},
		"it is on its way":       {has: []int{8, 1, 1}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) { i.Status.Decision = moving("c0", "c2") }, to: []string{"c2"}},
		"it was on its way here": {has: []int{8, 8, 1}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) { on(i, "c2"); i.Status.Decision = moving("c2", "c0") }, to: []string{"c1"}},
		"its plan is gone":       {has: []int{8, 8}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) { ofPlan(i, 9) }, why: "not in the catalog any more"},
		"its plan tolerates it": {has: []int{8, 8}, change: func(f *Fleet, _ *v1alpha1.ServiceInstance) {
			f.Offerings[0].Plans[1].Resources.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintDrain, Operator: corev1.TolerationOpExists}}
		}, why: "tolerates it"},
		"it has volumes": {has: []int{8, 8}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) {
			withVolumes(i)
		}, why: "no backup carries them"},
		"it would move":       {lost: true, has: []int{8, 8}, to: []string{"c1"}},
		"its cluster is most": {lost: true, has: []int{8}, why: "more than half of the clusters would not answer"},
		"its plan tolerates the loss": {lost: true, has: []int{8, 8, 8}, change: func(f *Fleet, _ *v1alpha1.ServiceInstance) {
			f.Offerings[0].Plans[1].Resources.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintUnreachable, Operator: corev1.TolerationOpExists}}
		}, why: "tolerates it"},
		"its volumes would be lost": {lost: true, has: []int{8, 8, 8}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) { withVolumes(i) }, why: "waits for the cluster"},
		"it would wait for a restore": {lost: true, has: []int{8, 8, 8}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) {
			withVolumes(i).Container = &v1alpha1.WorkloadContainer{Backup: &v1alpha1.WorkloadHook{}}
		}, why: "sluice instance restore"},
		"its components without volumes leave":       {lost: true, has: []int{8, 8, 1}, change: inComponents, to: []string{"c1"}},
		"those fit nowhere else":                     {lost: true, has: []int{8, 1, 1}, change: inComponents, why: "InsufficientCPU on 2 (c1: needs 2 cpu"},
		"it stays where its pods are refused by now": {has: []int{8, 8, 8}, change: refusedByNow, to: []string{"c1", "c2"}},
		"it is of another broker": {has: []int{8, 8}, change: func(_ *Fleet, i *v1alpha1.ServiceInstance) {
			i.Status.Decision.Placements[0].Upstream = &v1alpha1.PlacementUpstream{}
		}, why: "do not move"},
	} {
		t.Run(name, func(t *testing.T) {
			f := computing(row.has...)
			one := ofPlan(instance("si-1", "c0", "", 2), 2)
			if row.change != nil {
				row.change(f, one)
			}
			f.Instances = append(f.Instances, *one)
			moves := left(t, f, row.lost)
			if row.why == "-" {
				if len(moves) > 0 {
					t.Errorf("it is among %+v", moves)
				}
				return
			}
			if len(moves) != 1 || moves[0].Instance != "si-1" || !slices.Equal(moves[0].To, row.to) || !strings.Contains(moves[0].Why, row.why) || (row.why == "") != (moves[0].Why == "") {
				t.Errorf("it would be %+v, want to %v, why %q", moves, row.to, row.why)
			}
		})
	}
	f := computing(1)
	plans, err := f.catalog()
	if err != nil {
		t.Fatal(err)
	}
	f.Instances = append(f.Instances, *ofPlan(instance("si-1", "c0", "", 1), 1), *ofPlan(instance("si-2", "c0", "", 1), 1))
	ended, end := context.WithCancel(t.Context())
	end()
	if moves, untried, err := f.Leave(ended, plans, "c0", false, recordedAt.Time); err != nil || len(moves) != 0 || untried != 2 {
		t.Errorf("without time: %v, %d untried: %v", moves, untried, err)
	}
	if _, _, err := f.Leave(t.Context(), plans, "absent", false, recordedAt.Time); !errors.Is(err, ErrNoCluster) || !strings.Contains(err.Error(), `no member cluster "absent"`) {
		t.Errorf("of no cluster: %v", err)
	}
}

// One instance may be asked to leave a cluster that others stay on, whatever its plan tolerates, and where to.
func TestWhatAMoveWouldDo(t *testing.T) {
	for name, row := range map[string]struct {
		change func(i *v1alpha1.ServiceInstance)
		only   []string
		to     []string
		why    string
	}{
		"to the best":              {to: []string{"c1"}},
		"to one that is not":       {only: []string{"c2"}, to: []string{"c2"}},
		"to one of several":        {only: []string{"c3", "c2"}, to: []string{"c2"}},
		"to one that is full":      {only: []string{"c3"}, why: "InsufficientCPU on 1 (c3: "},
		"with volumes":             {change: func(i *v1alpha1.ServiceInstance) { withVolumes(i) }, why: "no backup carries them"},
		"to one that there is not": {only: []string{"c9"}, why: `there is no member cluster "c9"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := computing(8, 8, 9, 1)
			f.Offerings[0].Plans[1].Resources.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			one := ofPlan(instance("si-1", "c0", "", 2), 2)
			if row.change != nil {
				row.change(one)
			}
			f.Instances = append(f.Instances, *one)
			plans, err := f.catalog()
			if err != nil {
				t.Fatal(err)
			}
			move, err := f.Move(plans, one, "c0", row.only, recordedAt.Time)
			if err != nil {
				move.Why = err.Error()
			}
			if !slices.Equal(move.To, row.to) || !strings.Contains(move.Why, row.why) || (row.why == "") != (move.Why == "") {
				t.Errorf("it would be %+v, want to %v, why %q", move, row.to, row.why)
			}
		})
	}
}

// withVolumes gives an instance a workload of one component with a volume, and returns that.
func withVolumes(i *v1alpha1.ServiceInstance) *v1alpha1.WorkloadComponent {
	d := &i.Status.Delivered.Decision
	d.Workload = &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{{Name: "db"}}}
	d.Placements[0].Reserved["fast.storageclass.storage.k8s.io/requests.storage"] = resource.MustParse("1Gi")
	return &d.Workload.Components[0]
}

// inComponents makes an instance one of a database with a volume, and of a web server that may be elsewhere: one core, and
// one more for its rollouts.
func inComponents(f *Fleet, i *v1alpha1.ServiceInstance) {
	running(f, i, `
resources: {components: [{name: db}, {name: web}]}
workload:
  components:
  - name: db
    container:
      image: db
      volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Gi}]
      resources: {cpu: 1, memory: 1Gi}
  - name: web
    container: {image: web, resources: {cpu: 1, memory: 1Gi}}
`)
	on := &i.Status.Delivered.Decision.Placements[0]
	on.Components = []string{"db", "web"}
	on.Reserved[v1alpha1.StorageResource("fast")] = resource.MustParse("1Gi")
}

// refusedByNow puts an instance on a second cluster, whose provider has come to refuse its pods.
func refusedByNow(f *Fleet, i *v1alpha1.ServiceInstance) {
	running(f, i, `
resources: {clusters: 2}
workload: {components: [{name: web, container: {image: web, resources: {cpu: 1, memory: 1Gi}}}]}
`)
	d := &i.Status.Delivered.Decision
	d.Placements = append(d.Placements, v1alpha1.Placement{Cluster: "c1", Reserved: cores(2)})
	f.Clusters[1].Spec.Provider = "acme"
	f.Policies = append(f.Policies, v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "acme.digests"}, Spec: v1alpha1.PlacementPolicySpec{Provider: "acme", Workloads: &v1alpha1.WorkloadRules{Digests: true}},
	})
}

// running makes the plan of two cores one of a workload that an instance runs, and gives the clusters what it takes.
func running(f *Fleet, i *v1alpha1.ServiceInstance, sold string) {
	plan := &f.Offerings[0].Plans[1]
	plan.Kind, plan.Resources = v1alpha1.PlanKindWorkload, nil
	if err := yaml.UnmarshalStrict([]byte(sold), plan); err != nil {
		panic(err)
	}
	i.Status.Delivered.Decision.Workload = plan.Workload
	for n := range f.Clusters {
		status := &f.Clusters[n].Status
		status.StorageClasses = []string{"fast"}
		maps.Copy(status.Allocatable, placementtest.Quantities("memory=100Gi,pods=100"))
	}
}

func on(i *v1alpha1.ServiceInstance, cluster string) {
	i.Status.Delivered.Decision.Placements = slices.Clone(i.Status.Delivered.Decision.Placements)
	i.Status.Delivered.Decision.Placements[0].Cluster, i.Status.Decision.Placements[0].Cluster = cluster, cluster
}

// moving is the decision of a move of two cores.
func moving(from, to string) *v1alpha1.Decision {
	return &v1alpha1.Decision{
		Generation: 2, Placements: []v1alpha1.Placement{{Cluster: to, Reserved: cores(2)}},
		Leaving: []v1alpha1.Departure{{Cluster: from, Reason: "it is drained", At: recordedAt}},
	}
}

// A second, independent account of a drain: whatever moves has room where it goes, and whatever stays has none anywhere, after those
// before it have moved.
func TestADrainKeepsItsBooks(t *testing.T) {
	moved, stayed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		var has []int
		for range rapid.IntRange(1, 4).Draw(t, "clusters") {
			has = append(has, rapid.IntRange(8, 20).Draw(t, "has"))
		}
		f, free := computing(has...), slices.Clone(has)
		for i := range rapid.IntRange(1, 12).Draw(t, "instances") {
			at, n := rapid.IntRange(0, len(has)-1).Draw(t, "on"), rapid.IntRange(1, 8).Draw(t, "plan")
			if free[at] < n {
				continue
			}
			free[at] -= n
			f.Instances = append(f.Instances, *ofPlan(instance(fmt.Sprintf("si-%02d", i), fmt.Sprintf("c%d", at), "", n), n))
		}
		before := fmt.Sprint(f)
		moves := left(t, f, false)
		if again := left(t, f, false); !reflect.DeepEqual(again, moves) || fmt.Sprint(f) != before {
			t.Fatalf("drained again: %+v, and before: %+v", again, moves)
		}
		for i := range f.Instances {
			one := &f.Instances[i]
			if !one.Status.IsOn("c0") {
				continue
			}
			if len(moves) == 0 || moves[0].Instance != one.Name {
				t.Fatalf("nothing is said about %s: %+v", one.Name, moves)
			}
			m := moves[0]
			moves = moves[1:]
			n := int(one.Status.Delivered.State.PlanID[0] - '0')
			switch {
			case len(m.To) == 0 && m.Why == "", len(m.To) == 1 && m.Why != "", len(m.To) > 1, slices.Contains(m.To, "c0"):
				t.Fatalf("%+v", m)
			case len(m.To) == 1:
				moved++
				to := int(m.To[0][1] - '0')
				if free[to] -= n; free[to] < 0 {
					t.Fatalf("%+v has no room", m)
				}
			case slices.Max(append(free[1:len(free):len(free)], 0)) >= n:
				t.Fatalf("%+v has room: %v", m, free)
			default:
				stayed++
			}
		}
		if len(moves) > 0 {
			t.Fatalf("beside: %+v", moves)
		}
	})
	if moved == 0 || stayed == 0 {
		t.Errorf("%d moved, and %d stayed", moved, stayed)
	}
}

// BenchmarkDrain plays the drain of a cluster with a number of instances in a fleet.
func BenchmarkDrain(b *testing.B) {
	for _, clusters := range []int{100, 1000, 10_000} {
		for _, instances := range []int{10, 1000} {
			b.Run(fmt.Sprintf("%d/%d_instances", clusters, instances), func(b *testing.B) {
				f := computing(slices.Repeat([]int{1000}, clusters)...)
				for i := range instances {
					f.Instances = append(f.Instances, *ofPlan(instance(fmt.Sprintf("si-%04d", i), "c0", "", 1), 1))
				}
				plans, err := f.catalog()
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					moves, _, err := f.Leave(b.Context(), plans, "c0", false, recordedAt.Time)
					if err != nil || len(moves) != instances || moves[0].Why != "" {
						b.Fatalf("%d moves: %v", len(moves), err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*instances), "µs/instance")
			})
		}
	}
}
