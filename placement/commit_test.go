package placement

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// meanwhile is a selector of every cluster. When a decision asks it, something happens to the inventory, a given number of
// times, as if others changed it while an order is decided; nothing does while they would wait.
type meanwhile struct {
	labels.Selector
	inventory *Inventory
	times     int
	happen    func(n int)
}

func (m *meanwhile) Requirements() (labels.Requirements, bool) {
	if m.times > 0 && m.inventory.mu.TryLock() {
		m.inventory.mu.Unlock()
		m.times--
		m.happen(m.times)
	}
	return nil, true
}

// An order whose cluster changes while it is decided is decided again, at last while the others wait: it gets the cluster
// that is best at the end, and holds it.
func TestWhatChangesWhileAnOrderIsDecided(t *testing.T) {
	eu := func(has int64) *Cluster {
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(has)}
	}
	us := &Cluster{Name: "us", Ready: true, AccessVerified: true, Allocatable: cores(2)}
	for times := range mostTries + 1 {
		for _, before := range []int64{2, 0} {
			inventory := stock([]*Cluster{eu(before), us})
			all := &meanwhile{Selector: labels.Everything(), inventory: inventory, times: times, happen: func(n int) { inventory.UpsertCluster(eu(int64(n % 2 * (2 + n)))) }}
			d, err := inventory.Place(Request{ID: "si", Resources: cores(2), Clusters: 2, Selector: all})
			if fits := times == 0 && before > 0; fits != (err == nil) { // the last change leaves no cores
				t.Errorf("of %d cores before %d changes it fits: %t, %v", before, times, !fits, err)
			}
			for _, cluster := range []string{"eu", "us"} {
				if held := inventory.Snapshot().Reserved("si", cluster); (held != nil) != (err == nil) || d.Uses(cluster) != (err == nil) {
					t.Errorf("after %d changes it holds %+v of %s, by %+v", times, held, cluster, d.Placements)
				}
			}
			if waits := len(inventory.Parked()) == 1; waits != (err != nil) {
				t.Errorf("after %d changes it waits: %t", times, waits)
			}
		}
	}
}

// A decision by an earlier snapshot stands as long as nothing has changed by which it would be another one that is not
// about scores alone.
func TestWhichEarlierDecisionsStand(t *testing.T) {
	member := func(name string, has int64) *Cluster {
		c := inRegion(name, name, has*1000)
		c.Driver = v1alpha1.DriverKube
		return c
	}
	holds := func(id, cluster string, of Resources) func(*Inventory) {
		return func(inv *Inventory) {
			inv.Reserve(Holding{Instance: id, Consumer: Consumer{Platform: "cf", Space: "s", Application: "shop"}, Held: map[string]Resources{cluster: of}})
		}
	}
	apart := func(weight int32) []v1alpha1.Affinity {
		return []v1alpha1.Affinity{{With: v1alpha1.ScopeApplication, By: v1alpha1.LabelRegion, Apart: true, Weight: weight}}
	}
	for name, row := range map[string]struct {
		fleet   []*Cluster
		request Request
		happens func(*Inventory)
		stands  bool
	}{
		"nothing":                       {request: Request{}, happens: func(*Inventory) {}, stands: true},
		"another one takes a part":      {request: Request{}, happens: holds("si-1", "a", cores(1)), stands: true},
		"another one takes too much":    {request: Request{}, happens: holds("si-1", "a", cores(3))},
		"more than there is of another": {request: Request{}, happens: holds("si-1", "a", Resources{corev1.ResourceMemory: 9}), stands: true},
		"of what it asks none of": {
			request: Request{Resources: Resources{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 0}},
			happens: holds("si-1", "a", Resources{corev1.ResourceMemory: 9}), stands: true,
		},
		"the cluster changes":     {request: Request{}, happens: func(inv *Inventory) { inv.UpsertCluster(member("a", 5)) }},
		"another cluster changes": {request: Request{}, happens: func(inv *Inventory) { inv.UpsertCluster(member("b", 5)) }, stands: true},
		"the cluster goes":        {request: Request{}, happens: func(inv *Inventory) { inv.DeleteCluster("a") }},
		"room is made there":      {request: Request{}, happens: func(inv *Inventory) { inv.Preempt("si-1", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "a"}}) }},
		"room is made elsewhere":  {request: Request{}, happens: func(inv *Inventory) { inv.Preempt("si-1", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "b"}}) }, stands: true},
		"room is made where it is": {request: Request{Current: []string{"a"}}, happens: func(inv *Inventory) {
			holds("si", "a", cores(2))(inv)
			inv.Preempt("si-1", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "a"}})
		}, stands: true},
		"one comes that it avoids":  {request: Request{Affinity: apart(0)}, happens: holds("si-1", "a", cores(1))},
		"one that it rather avoids": {request: Request{Affinity: apart(10)}, happens: holds("si-1", "a", cores(1)), stands: true},
		"the second of its clusters, the first of which it keeps, is full": {
			fleet: []*Cluster{member("a", 4), member("b", 4)}, request: Request{Clusters: 2, Current: []string{"a"}}, happens: func(inv *Inventory) {
				inv.Preempt("si-1", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "b"}})
			},
		},
		"a pod of another one takes the largest node": {
			fleet: []*Cluster{withNodes(member("a", 4), 3000, 1000)}, request: Request{LargestPods: []Resources{cores(2)}},
			happens: func(inv *Inventory) {
				inv.Reserve(Holding{Instance: "si-1", Held: map[string]Resources{"a": cores(2)}, Pods: map[string][]Resources{"a": {cores(2)}}})
			},
		},
		"a pod of another one takes a part of it": {
			fleet: []*Cluster{withNodes(member("a", 4), 3000, 1000)}, request: Request{LargestPods: []Resources{cores(2)}},
			happens: func(inv *Inventory) {
				inv.Reserve(Holding{Instance: "si-1", Held: map[string]Resources{"a": cores(1)}, Pods: map[string][]Resources{"a": {cores(1)}}})
			},
			stands: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := row.fleet
			if fleet == nil {
				fleet = []*Cluster{member("a", 4), member("b", 1)}
			}
			for _, c := range fleet {
				c.Allocatable[corev1.ResourceMemory] = 4
			}
			inventory := stock(fleet)
			r := row.request
			r.ID, r.Consumer = "si", Consumer{Platform: "cf", Space: "s", Application: "shop"}
			if r.Resources == nil {
				r.Resources = cores(2)
			}
			by := inventory.Snapshot()
			d, err := Place(r, by)
			if err != nil || !slices.ContainsFunc(d.Placements, func(p Placement) bool { return p.Cluster == "a" }) {
				t.Fatalf("%+v: %v", d.Placements, err)
			}
			row.happens(inventory)
			if got := inventory.Snapshot().allows(r, d, by); got != row.stands {
				t.Errorf("it stands: %t", got)
			}
		})
	}
}
