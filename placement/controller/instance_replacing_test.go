package controller

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// A decision that is replaced before it is delivered may be delivered in part, so its reservation counts
// until the next one is delivered.
func TestWhatReplacedDecisionsReserveCounts(t *testing.T) {
	decision := func(cluster, cpu string) *v1alpha1.Decision {
		return &v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: cluster, Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}
	}
	s := &scope{ServiceInstance: &v1alpha1.ServiceInstance{Status: v1alpha1.ServiceInstanceStatus{Operation: &v1alpha1.Operation{State: v1alpha1.StateInProgress}}}}
	reserves := func(what, cluster string, milli int64) {
		t.Helper()
		if got := placement.Ledger(&s.Status)[cluster][corev1.ResourceCPU]; got != milli {
			t.Errorf("%s: %s has %d m reserved, want %d", what, cluster, got, milli)
		}
	}
	s.recordDecision(decision("near", "4"))
	s.recordDecision(decision("near", "2"))
	reserves("a smaller decision", "near", 4000)
	s.recordDecision(decision("near", "1"))
	reserves("a third one", "near", 4000)
	s.recordDelivered()
	reserves("the third one, delivered", "near", 1000)
	s.recordDecision(decision("near", "3"))
	s.recordDecision(decision("near", "2"))
	reserves("a smaller update", "near", 3000)
	s.recordDecision(decision("far", "2"))
	reserves("an update elsewhere", "far", 2000)
	reserves("what is still delivered", "near", 1000)
}

// TestComponentsAreReplacedWithoutAGap: a component that changes its cluster runs on both meanwhile,
// unless there may be no room for that.
func TestComponentsAreReplacedWithoutAGap(t *testing.T) {
	const former = `
workload: {components: [{name: web, service: web}, {name: api, service: api}, {name: db, service: db}, {name: old, service: old}]}
placements:
- {cluster: near, components: [web], reserved: {cpu: 1}, linked: [{cluster: far, links: [{here: web, there: api}]}]}
- {cluster: far, components: [api, db, old], reserved: {cpu: 3}, linked: [{cluster: near, links: [{here: api, there: web}]}]}
`
	decision := func(document string) *v1alpha1.Decision {
		d := &v1alpha1.Decision{}
		if err := yaml.UnmarshalStrict([]byte(document), d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	const now = "workload: {components: [{name: web, service: web}, {name: api, service: api}, {name: db, service: db}]}\n"
	for name, test := range map[string]struct {
		decided, parameters string
		want                string // what is delivered meanwhile; empty means that nothing is
	}{
		"one moves": {decided: now + `
placements:
- {cluster: near, components: [web, api], reserved: {cpu: 2}, linked: [{cluster: far, links: [{here: api, there: db}]}]}
- {cluster: far, components: [db], reserved: {cpu: 1}, linked: [{cluster: near, links: [{here: db, there: api}]}]}
`, want: `
placements:
- {cluster: near, components: [web, api], reserved: {cpu: 2}, linked: [{cluster: far, links: [{here: api, there: db}]}, {cluster: far, links: [{here: web, there: api}]}]}
- {cluster: far, components: [db, api], reserved: {cpu: 3}, linked: [{cluster: near, links: [{here: db, there: api}]}, {cluster: near, links: [{here: api, there: web}]}]}
`},
		"all that a cluster has moves or goes": {decided: `
workload: {components: [{name: web, service: web}, {name: api, service: api}]}
placements:
- {cluster: near, components: [web], reserved: {cpu: 1}, linked: [{cluster: third, links: [{here: web, there: api}]}]}
- {cluster: third, components: [api], reserved: {cpu: 1}, linked: [{cluster: near, links: [{here: api, there: web}]}]}
`, want: `
placements:
- {cluster: near, components: [web], reserved: {cpu: 1}, linked: [{cluster: third, links: [{here: web, there: api}]}, {cluster: far, links: [{here: web, there: api}]}]}
- {cluster: third, components: [api], reserved: {cpu: 1}, linked: [{cluster: near, links: [{here: api, there: web}]}]}
`},
		"two change places": {decided: now + `
placements:
- {cluster: near, components: [api], reserved: {cpu: 1}}
- {cluster: far, components: [web, db], reserved: {cpu: 2}}
`},
		"one goes": {decided: now + `
placements:
- {cluster: near, components: [web], reserved: {cpu: 1}}
- {cluster: far, components: [api, db], reserved: {cpu: 2}}
`},
		"one moves and is another": {decided: `
workload: {components: [{name: web, service: web}, {name: api, service: other}, {name: db, service: db}]}
placements:
- {cluster: near, components: [web, api], reserved: {cpu: 2}}
- {cluster: far, components: [db], reserved: {cpu: 1}}
`},
		"one moves, with other parameters": {parameters: `{"replicas": 3}`, decided: now + `
placements:
- {cluster: near, components: [web, api], reserved: {cpu: 2}}
- {cluster: far, components: [db], reserved: {cpu: 1}}
`},
	} {
		t.Run(name, func(t *testing.T) {
			instance := &v1alpha1.ServiceInstance{}
			instance.Spec.Desired.Parameters = raw(test.parameters)
			instance.Status.Delivered = &v1alpha1.DeliveredState{Decision: *decision(former)}
			s := &scope{ServiceInstance: instance}
			decided := decision(test.decided)
			decided.Replacement = s.replaces(decided)
			if (decided.Replacement == v1alpha1.ReplacementStart) != (test.want != "") {
				t.Fatalf("replaces: %q", decided.Replacement)
			}
			if test.want == "" {
				return
			}
			for _, step := range []v1alpha1.ReplacementStep{v1alpha1.ReplacementSwitch, v1alpha1.ReplacementRemove, ""} {
				instance.Status.Decision = decision(test.decided)
				instance.Status.Decision.Replacement = step
				if got := s.replaces(decided); got != step {
					t.Errorf("decided again during step %q, it goes on with %q", step, got)
				}
			}
			instance.Status.Decision = decision(former)
			if got := s.replaces(decided); got != v1alpha1.ReplacementStart {
				t.Errorf("decided after the decision that is delivered, it begins with %q", got)
			}
			answering := []string{"near", "far", "third"}
			got, want := whileReplacing(decided, s.Status.DeliveredDecision(), answering), decision(test.want).Placements
			if !reflect.DeepEqual(got, want) {
				t.Errorf("meanwhile %+v\nwant %+v", got, want)
			}
			decided.Replacement = v1alpha1.ReplacementSwitch
			for i, p := range whileReplacing(decided, s.Status.DeliveredDecision(), answering) {
				last := p.Linked[len(p.Linked)-len(decided.Placements[i].Linked):]
				if !reflect.DeepEqual(last, decided.Placements[i].Linked) || len(p.Linked) != len(want[i].Linked) {
					t.Errorf("then %s is linked to %+v, want to what is decided last", p.Cluster, p.Linked)
				}
			}
			decided.Replacement = v1alpha1.ReplacementRemove
			for i, p := range whileReplacing(decided, s.Status.DeliveredDecision(), answering) {
				if !slices.Equal(p.Components, decided.Placements[i].Components) {
					t.Errorf("at last %s has %q", p.Cluster, p.Components)
				}
			}
			decided.Replacement = v1alpha1.ReplacementStart
			for _, p := range whileReplacing(decided, s.Status.DeliveredDecision(), []string{"third"}) {
				if len(p.Linked) > len(placementOn(decided, p.Cluster).Linked) {
					t.Errorf("%s is linked to a cluster that does not answer: %+v", p.Cluster, p.Linked)
				}
			}
		})
	}
}

// TestAComponentRunsOnBothClustersUntilTheNewOneWorks: what leaves is there until what comes works, and names lead
// there on all clusters, also for another leader; then it goes, and does not come back.
func TestAComponentRunsOnBothClustersUntilTheNewOneWorks(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("a", 3)
	w.cluster("b", 3)
	label := func(name string) {
		mc := &v1alpha1.MemberCluster{}
		w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, mc))
		mc.Spec.Region = name
		w.must(w.hub.Update(w.Context(), mc))
		w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
	}
	label("a")
	label("b")
	runs := func() (found []string) {
		w.driver.onDeliver = func(d delivery.Delivery) {
			found = append(found, fmt.Sprintf("%s %s %t", d.Placement.Cluster, slices.Sorted(slices.Values(d.Workload.Share.Components)), d.Replacing))
		}
		w.passes("si-tour")
		w.driver.onDeliver = nil
		slices.Sort(found)
		return slices.Compact(found)
	}
	restart := func() {
		keys := w.reconciler.keys
		w.start()
		w.reconciler.keys = keys
		w.sellWorkloads("1")
	}
	wantRuns := func(when string, want ...string) {
		t.Helper()
		if got := runs(); !slices.Equal(got, want) {
			t.Errorf("%s delivered is %q, want %q", when, got, want)
		}
	}
	w.provision("si-tour", "plan-tour", "")
	w.wantOnAll(w.passes("si-tour"), "a", "b")

	w.update("si-tour", func(s *v1alpha1.InstanceState) { s.PlanID = "plan-moved" })
	w.driver.failing["deliver a"] = &delivery.PendingError{Step: "run the workload on a"}
	wantRuns("at first", "a [api web] true", "b [api db] true")
	restart()
	wantRuns("after a restart", "a [api web] true", "b [api db] true")

	delete(w.driver.failing, "deliver a")
	waitsOnB := func(when func(delivery.Delivery) bool) {
		w.driver.failOn = func(d delivery.Delivery) error {
			if d.Placement.Cluster == "b" && when(d) {
				return &delivery.PendingError{Step: "run the workload on b"}
			}
			return nil
		}
	}
	waitsOnB(func(d delivery.Delivery) bool { return !d.Replacing })
	wantRuns("when it works", "a [api web] false", "a [api web] true", "b [api db] false", "b [api db] true")
	restart()
	wantRuns("while names are switched", "a [api web] false", "b [api db] false")
	waitsOnB(func(d delivery.Delivery) bool { return !slices.Contains(d.Workload.Share.Components, "api") })
	wantRuns("when names lead there", "a [api web] false", "b [api db] false", "b [db] false")
	restart()
	wantRuns("after another restart", "a [api web] false", "b [db] false")
	w.driver.failOn = nil
	wantRuns("at last", "a [api web] false", "b [db] false")
	w.wantOperation(w.instance("si-tour"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
}

// TestAShareGrowsBeforeAnotherShrinks: replicas that change their clusters run on the new ones before they
// leave the former; those of a lost cluster run elsewhere; and messages say how many are where.
func TestAShareGrowsBeforeAnotherShrinks(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("a", 20)
	w.cluster("b", 20)
	runs := func() (found []string) {
		w.driver.onDeliver = func(d delivery.Delivery) {
			found = append(found, fmt.Sprintf("%s %d %t", d.Placement.Cluster, d.Workload.Replicas, d.Replacing))
		}
		w.passes("si-web")
		w.driver.onDeliver = nil
		slices.Sort(found)
		return slices.Compact(found)
	}
	wantRuns := func(when string, want ...string) {
		t.Helper()
		if got := runs(); !slices.Equal(got, want) {
			t.Errorf("%s delivered is %q, want %q", when, got, want)
		}
	}
	w.provision("si-web", "plan-shares", "")
	wantRuns("at first", "a 2 false", "b 2 false")
	w.wantReserved("a", 3) // with one more for a rollout
	if placed := meta.FindStatusCondition(w.instance("si-web").Status.Conditions, v1alpha1.ConditionPlaced); !strings.Contains(placed.Message, "a (2 of 4 replicas)") {
		t.Errorf("it says %q", placed.Message)
	}

	w.cluster("c", 20)
	w.update("si-web", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"clusters": 3}`) })
	w.driver.fail("deliver c", &delivery.PendingError{Step: "run the workload on c"})
	wantRuns("while one comes", "a 2 true", "b 2 true", "c 1 true")
	w.driver.fail("deliver c", nil)
	now := runs()
	d := w.instance("si-web").Status.Delivered.Decision
	if d.Replicas() != 4 || len(d.Placements) != 3 || !slices.Contains(now, "c 1 true") || len(now) != 6 {
		t.Errorf("then delivered is %q, and the decision %+v", now, d.Placements)
	}

	w.update("si-web", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"clusters": 3, "replicas": 6}`) })
	for _, run := range runs() {
		if strings.HasSuffix(run, "true") {
			t.Errorf("shares that only grow are delivered at once, and not %s", run)
		}
	}
	w.cluster("d", 20)
	w.lose("c")
	w.after(301 * time.Second)
	instance := w.settle("si-web")
	d = instance.Status.Delivered.Decision
	if d.Uses("c") || !d.Uses("d") || d.Replicas() != 6 {
		t.Errorf("without c there are %+v", d.Placements)
	}
}
