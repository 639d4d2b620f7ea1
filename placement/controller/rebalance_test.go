package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/rebalance"
)

// crowded is a world in which instances were placed on a cluster before a better one existed.
func crowded(t *testing.T) *world {
	w := newWorld(t)
	w.cluster("small", 8)
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		w.provision(name, "plan-2", "")
		w.passes(name)
	}
	w.cluster("large", 12)
	return w
}

func (w *world) proposals(leastGain int32, most int) []placement.Proposal {
	w.Helper()
	proposals, err := rebalance.Proposals(w.Context(), w.hub, w.namespace, testCatalog(w.T), w.clock.Now(), leastGain, most,
		func(*v1alpha1.ServiceInstance) bool { return true })
	w.must(err)
	return proposals
}

func TestProposalsGainAndLeaveRoomForEachOther(t *testing.T) {
	w := crowded(t)
	// On small, two of eight cores are left with three instances there; on large, ten of
	// twelve with one. With one moved, both others score half on small, and two thirds on large.
	all := w.proposals(10, 10)
	if len(all) != 2 || all[0].Gain < all[1].Gain || all[0].From[0] != "small" || all[0].To[0] != "large" {
		t.Fatalf("proposed %+v", all)
	}
	if got := w.proposals(10, 1); len(got) != 1 {
		t.Errorf("proposed %+v, want one", got)
	}
	if got := w.proposals(90, 10); len(got) != 0 {
		t.Errorf("proposed %+v, want nothing", got)
	}
}

func TestARebalancedInstanceMoves(t *testing.T) {
	w := crowded(t)
	p := w.proposals(10, 1)[0]
	w.must(rebalance.Apply(t.Context(), w.hub, w.namespace, p))
	w.settle(p.Instance)
	w.wantOn(w.settle(p.Instance), "large")
	for _, again := range w.proposals(10, 10) {
		if again.Instance == p.Instance {
			t.Errorf("it is to move again: %+v", again)
		}
	}
}

func TestAPolicyRebalancesWithinItsWindowOnly(t *testing.T) {
	w := crowded(t)
	policy := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nightly"},
		Spec:       v1alpha1.PlacementPolicySpec{Rebalance: &v1alpha1.Rebalance{Schedule: "0 2 * * *", WindowSeconds: 3600, LeastGain: 10, AtMost: 1}},
	}
	w.must(w.hub.Create(t.Context(), policy))
	served := &catalog.Catalog{}
	served.Replace(testCatalog(t))
	clock := testclock.NewFakeClock(time.Date(2026, 11, 21, 1, 59, 0, 0, time.UTC))
	r := &rebalance.Controller{Client: w.hub, Live: w.hub, Namespace: w.namespace, Catalog: served, Clock: clock}
	asked := func() (n int) {
		for _, name := range []string{"si-a", "si-b", "si-c"} {
			if w.instance(name).Annotations[v1alpha1.AnnotationLeave] != "" {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{0, 0}, {2 * time.Minute, 1}, {3 * time.Minute, 1}} { // and no second one in the same window
		clock.SetTime(time.Date(2026, 11, 21, 1, 59, 0, 0, time.UTC).Add(step.at))
		w.must(r.Check(t.Context()))
		if n := asked(); n != step.want {
			t.Fatalf("%s after one minute to two, %d instances are asked to move, want %d", step.at, n, step.want)
		}
	}
}

// Instances that a policy does not concern do not count for what it may move, though they are to leave a cluster.
func TestAPolicyRebalancesBesideTheMovesOfOthers(t *testing.T) {
	w := crowded(t)
	w.provision("si-d", "plan-4", "")
	other := w.passes("si-d")
	other.Annotations = map[string]string{v1alpha1.AnnotationLeave: other.Status.Decision.Clusters()[0]}
	w.must(w.hub.Update(t.Context(), other))
	w.must(w.hub.Create(t.Context(), &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "nightly"},
		Spec: v1alpha1.PlacementPolicySpec{
			Match:     v1alpha1.PolicyMatch{Plans: []string{"plan-2"}},
			Rebalance: &v1alpha1.Rebalance{Schedule: "0 2 * * *", WindowSeconds: 3600, LeastGain: 10, AtMost: 1},
		},
	}))
	served := &catalog.Catalog{}
	served.Replace(testCatalog(t))
	r := &rebalance.Controller{
		Client: w.hub, Live: w.hub, Namespace: w.namespace, Catalog: served, Clock: testclock.NewFakeClock(time.Date(2026, 11, 21, 2, 1, 0, 0, time.UTC)),
	}
	w.must(r.Check(t.Context()))
	asked := 0
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		if w.instance(name).Annotations[v1alpha1.AnnotationLeave] != "" {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("%d of its instances are asked to move, want 1", asked)
	}
}
