package gauges

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

var start = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// newGauges knows the offering compute with the plan small; other plans are gone from the catalog.
func newGauges() *Gauges {
	return New(nil, func(serviceID, planID string) (string, string) {
		if planID == "small-id" {
			return "compute", "small"
		}
		return "", ""
	}, clocktesting.NewFakePassiveClock(start))
}

func instance(name, planID string, change func(*v1alpha1.ServiceInstance)) *v1alpha1.ServiceInstance {
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ServiceInstanceSpec{ServiceID: "compute-id", Desired: v1alpha1.InstanceState{PlanID: planID}}}
	if change != nil {
		change(i)
	}
	return i
}

// on makes an instance one that is delivered to a cluster, with half a core of it.
func on(cluster string, ready metav1.ConditionStatus) func(*v1alpha1.ServiceInstance) {
	return func(i *v1alpha1.ServiceInstance) {
		d := v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: cluster, Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}}}
		i.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateSucceeded, StartedAt: metav1.NewTime(start)}
		i.Status.Decision, i.Status.Delivered = &d, &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: *d.DeepCopy()}
		v1alpha1.SetCondition(&i.Status.Conditions, 1, v1alpha1.ConditionReady, ready, "Test", "")
	}
}

func waiting(since time.Time) func(*v1alpha1.ServiceInstance) {
	return func(i *v1alpha1.ServiceInstance) {
		i.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateInProgress, StartedAt: metav1.NewTime(since)}
		v1alpha1.SetCondition(&i.Status.Conditions, 1, v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "nothing fits")
	}
}

func cluster(name, region string, ready bool) *v1alpha1.MemberCluster {
	mc := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MemberClusterSpec{Region: region}}
	mc.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi")}
	status := metav1.ConditionTrue
	if !ready {
		status = metav1.ConditionFalse
	}
	for _, c := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified, v1alpha1.ConditionReady} {
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{Type: c, Status: status, Reason: "Test"})
	}
	return mc
}

func binding(name string, state v1alpha1.OperationState, status metav1.ConditionStatus, reason string) *v1alpha1.ServiceBinding {
	b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ServiceBindingSpec{ServiceID: "compute-id", PlanID: "small-id"}}
	b.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationBind, State: state}
	v1alpha1.SetCondition(&b.Status.Conditions, 1, v1alpha1.ConditionReady, status, reason, "")
	return b
}

// ofPool makes an instance one that a pool has ordered, which does not count, as little as its bindings.
func ofPool(i *v1alpha1.ServiceInstance) *v1alpha1.ServiceInstance {
	i.Spec.Pool = &v1alpha1.PoolOrder{Pool: "eu-pool"}
	return i
}

func bindingOfPool(b *v1alpha1.ServiceBinding) *v1alpha1.ServiceBinding {
	b.Spec.Platform, b.Labels = v1alpha1.PlatformSelf, map[string]string{v1alpha1.LabelBinding: "sb-a"}
	return b
}

// TestGauges: what there is is counted by state, changes and removals take back what was counted, and labels are
// names.
func TestGauges(t *testing.T) {
	t.Parallel()
	g := newGauges()
	want := func(when, text string) {
		t.Helper()
		var lines []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(g)
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		var got []string
		for line := range strings.Lines(answer.Body.String()) {
			if !strings.HasPrefix(line, "#") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if g, w := strings.Join(got, "\n"), strings.Join(lines, "\n"); g != w {
			t.Errorf("%s:\n%s\nwant\n%s", when, g, w)
		}
	}
	ready, moved := instance("a", "small-id", on("eu-1", metav1.ConditionTrue)), instance("a", "small-id", on("us-1", metav1.ConditionTrue))
	first, second := instance("b", "small-id", waiting(start.Add(time.Minute))), instance("c", "small-id", waiting(start))
	eu, us := cluster("eu-1", "eu", true), cluster("us-1", "us", false)
	us.Status.Latencies = []v1alpha1.MeasuredLatency{{From: "eu-1", Median: metav1.Duration{Duration: 20 * time.Millisecond}, MeasuredAt: metav1.NewTime(start)}}
	peering := &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Consumer: "eu-1", Provider: "us-1"}}
	for _, o := range []any{
		ready, first, second, eu, us, peering,
		instance("d", "gone-id", nil), instance("e", "other-gone-id", nil), // one name
		ofPool(instance("k", "small-id", nil)), bindingOfPool(binding("l", v1alpha1.StateSucceeded, metav1.ConditionTrue, v1alpha1.ReasonReady)),
		binding("f", v1alpha1.StateSucceeded, metav1.ConditionTrue, v1alpha1.ReasonReady),
		binding("g", v1alpha1.StateSucceeded, metav1.ConditionTrue, v1alpha1.ReasonExpiring),
		binding("h", v1alpha1.StateSucceeded, metav1.ConditionFalse, v1alpha1.ReasonExpired),
		binding("i", v1alpha1.StateFailed, metav1.ConditionFalse, v1alpha1.ReasonFailed),
	} {
		g.see(nil, o)
	}
	want("at first", `
		sluice_bindings{plan="small",service="compute",state="expired"} 1
		sluice_bindings{plan="small",service="compute",state="expiring"} 1
		sluice_bindings{plan="small",service="compute",state="failed"} 1
		sluice_bindings{plan="small",service="compute",state="ready"} 1
		sluice_cluster_ready{cluster="eu-1"} 1
		sluice_cluster_ready{cluster="us-1"} 0
		sluice_cluster_reserved_ratio{cluster="eu-1",resource="cpu"} 0.25
		sluice_cluster_reserved_ratio{cluster="us-1",resource="cpu"} 0
		sluice_fleet_allocatable{region="eu",resource="cpu"} 2
		sluice_fleet_allocatable{region="eu",resource="memory"} 4.294967296e+09
		sluice_fleet_allocatable{region="us",resource="cpu"} 2
		sluice_fleet_allocatable{region="us",resource="memory"} 4.294967296e+09
		sluice_fleet_free{region="eu",resource="cpu"} 1.5
		sluice_fleet_free{region="eu",resource="memory"} 4.294967296e+09
		sluice_fleet_free{region="us",resource="cpu"} 0
		sluice_fleet_free{region="us",resource="memory"} 0
		sluice_fleet_reserved{region="eu",resource="cpu"} 0.5
		sluice_fleet_reserved{region="eu",resource="memory"} 0
		sluice_fleet_reserved{region="us",resource="cpu"} 0
		sluice_fleet_reserved{region="us",resource="memory"} 0
		sluice_instances{plan="small",service="compute",state="ready"} 1
		sluice_instances{plan="small",service="compute",state="waiting"} 2
		sluice_instances{plan="unknown",service="unknown",state="in progress"} 2
		sluice_instances_waiting_since_timestamp_seconds{plan="small",service="compute"} 1.795608e+09
		sluice_peering_latency_seconds{consumer="eu-1",provider="us-1"} 0.02
		sluice_peering_ready{consumer="eu-1",provider="us-1"} 0
	`)
	g.see(ready, moved)
	for _, gone := range []any{first, second, eu, peering} {
		g.see(gone, nil)
	}
	if n := testutil.CollectAndCount(g, "sluice_cluster_ready", "sluice_peering_ready", "sluice_instances_waiting_since_timestamp_seconds"); n != 1 {
		t.Errorf("%d series of clusters, peerings and waiting instances, want the one of us-1", n)
	}
	g.see(moved, instance("a", "small-id", func(i *v1alpha1.ServiceInstance) { on("us-1", metav1.ConditionFalse)(i) }))
	if g.instances[group{plan{"compute-id", "small-id"}, stateNotReady}] != 1 || len(g.instances) != 3 {
		t.Errorf("instances: %v", g.instances)
	}
	if len(g.reserved) != 1 || g.reserved["us-1"][corev1.ResourceCPU] != 500 {
		t.Errorf("reserved: %v", g.reserved)
	}
	if problems, err := testutil.CollectAndLint(g); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// TestLatenciesOfPeerings: either cluster may have the latency, for instance only the one that has not joined by
// invitation. One that is observed ends without an event.
func TestLatenciesOfPeerings(t *testing.T) {
	t.Parallel()
	g := newGauges()
	clock := g.clock.(*clocktesting.FakePassiveClock)
	measured := func(from string, took, ago time.Duration) v1alpha1.MeasuredLatency {
		return v1alpha1.MeasuredLatency{From: from, Median: metav1.Duration{Duration: took}, MeasuredAt: metav1.NewTime(start.Add(-ago))}
	}
	own, joined, reported := cluster("own", "eu", true), cluster("joined", "eu", true), cluster("reported", "eu", true)
	own.Status.Latencies = []v1alpha1.MeasuredLatency{measured("joined", 20*time.Millisecond, 0), measured("reported", 40*time.Millisecond, 0)}
	joined.Status.Latencies = []v1alpha1.MeasuredLatency{measured("own", 30*time.Millisecond, v1alpha1.ObservedLatencyTTL-time.Minute)}
	reported.Spec.Latencies = []v1alpha1.MeasuredLatency{measured("own", 10*time.Millisecond, 48*time.Hour)}
	for _, o := range []any{
		own, joined, reported,
		&v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Consumer: "own", Provider: "joined"}},
		&v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Consumer: "own", Provider: "reported"}},
		&v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Consumer: "own", Provider: "gone"}},
	} {
		g.see(nil, o)
	}
	for _, at := range []struct {
		after            time.Duration
		joined, reported time.Duration
		series           int
	}{
		{0, 30 * time.Millisecond, 10 * time.Millisecond, 2},
		{2 * time.Minute, 20 * time.Millisecond, 10 * time.Millisecond, 2},
		{v1alpha1.ObservedLatencyTTL + time.Minute, 0, 10 * time.Millisecond, 1},
	} {
		clock.SetTime(start.Add(at.after))
		if joined, reported := g.latency(pair{"own", "joined"}), g.latency(pair{"own", "reported"}); joined != at.joined || reported != at.reported {
			t.Errorf("after %s they are %s and %s, want %s and %s", at.after, joined, reported, at.joined, at.reported)
		}
		if n := testutil.CollectAndCount(g, "sluice_peering_latency_seconds"); n != at.series {
			t.Errorf("after %s there are %d series, want %d", at.after, n, at.series)
		}
	}
}

// TestGaugesAreBounded: a cluster more is two series more, whatever it has.
func TestGaugesAreBounded(t *testing.T) {
	t.Parallel()
	count := func(clusters int) int {
		return testutil.CollectAndCount(fleet(clusters, 10))
	}
	if before, after := count(100), count(101); after != before+2 {
		t.Errorf("a hundred clusters have %d series, one more has %d", before, after)
	}
}

// fleet has clusters in ten regions, and so many instances on each.
func fleet(clusters, instances int) *Gauges {
	g, random := newGauges(), rand.New(rand.NewPCG(1, 2))
	for c := range clusters {
		name := fmt.Sprintf("cluster-%d", c)
		mc := cluster(name, fmt.Sprintf("region-%d", c%10), random.IntN(20) > 0)
		for _, more := range []corev1.ResourceName{corev1.ResourceEphemeralStorage, corev1.ResourcePods, "nvidia.com/gpu"} {
			mc.Status.Allocatable[more] = resource.MustParse("100")
		}
		g.see(nil, mc)
		for i := range instances {
			g.see(nil, instance(fmt.Sprintf("%s-%d", name, i), "small-id", on(name, metav1.ConditionTrue)))
		}
	}
	return g
}

// BenchmarkScrape is a scrape of what the hub has at 1,000 clusters and 10,000 instances; at most 20 ms.
func BenchmarkScrape(b *testing.B) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(fleet(1000, 10))
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	for b.Loop() {
		answer := httptest.NewRecorder()
		scrape.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		if answer.Code != 200 {
			b.Fatal(answer.Body.String())
		}
	}
}

// BenchmarkSee is the cost of one changed instance.
func BenchmarkSee(b *testing.B) {
	g := fleet(1000, 10)
	was := instance("cluster-1-1", "small-id", on("cluster-1", metav1.ConditionTrue))
	is := instance("cluster-1-1", "small-id", on("cluster-2", metav1.ConditionTrue))
	for b.Loop() {
		g.see(was, is)
		g.see(is, was)
	}
}
