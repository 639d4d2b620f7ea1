package elastic

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// Waiting requests determine how many clusters are made: as few as can take all that fail only
// for lack of capacity.
func TestDemand(t *testing.T) {
	cores := func(n int64) placement.Resources { return placement.Resources{"cpu": n * 1000} }
	in := func(region string, r placement.Request) placement.Request {
		r.Selector = labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: region})
		return r
	}
	for name, row := range map[string]struct {
		waiting []placement.Request
		coming  int
		room    int
		more    int
		waits   map[string]string
	}{
		"nothing waits": {room: 3},
		"three that fit on one share it": {
			waiting: []placement.Request{{ID: "a", Resources: cores(2)}, {ID: "b", Resources: cores(2)}, {ID: "c", Resources: cores(4)}},
			room:    3, more: 1, waits: map[string]string{"a": "new", "b": "new", "c": "new"},
		},
		"what does not fit together gets one each": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}, {ID: "b", Resources: cores(5)}},
			room:    3, more: 2, waits: map[string]string{"a": "new", "b": "new"},
		},
		"one that is being made is enough": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}},
			coming:  1, room: 2, waits: map[string]string{"a": "coming"},
		},
		"and what is beyond it needs another": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}, {ID: "b", Resources: cores(5)}},
			coming:  1, room: 2, more: 1, waits: map[string]string{"a": "coming", "b": "new"},
		},
		"no more than there may be": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}, {ID: "b", Resources: cores(5)}},
			room:    1, more: 1, waits: map[string]string{"a": "new"},
		},
		"nothing for what would not fit on it either": {
			waiting: []placement.Request{{ID: "a", Resources: cores(9)}}, room: 3,
		},
		"nothing for a pod that is larger than a machine": {
			waiting: []placement.Request{podOf("a", 5)}, room: 3,
		},
		"pods share one as its machines allow": {
			waiting: []placement.Request{podOf("a", 3), podOf("b", 3)}, room: 3, more: 1, waits: map[string]string{"a": "new", "b": "new"},
		},
		"and another one if no machine has enough left": {
			waiting: []placement.Request{podOf("a", 3), podOf("b", 3), podOf("c", 2)}, room: 3, more: 2, waits: map[string]string{"a": "new", "b": "new", "c": "new"},
		},
		"nothing for what wants another region": {
			waiting: []placement.Request{in("us", placement.Request{ID: "a", Resources: cores(1)})}, room: 3,
		},
		"one for what wants its region": {
			waiting: []placement.Request{in("eu", placement.Request{ID: "a", Resources: cores(1)})}, room: 3, more: 1, waits: map[string]string{"a": "new"},
		},
		"two for one that wants two clusters": {
			waiting: []placement.Request{{ID: "a", Resources: cores(1), Clusters: 2}}, room: 3, more: 2, waits: map[string]string{"a": "new"},
		},
		"none for one that wants two where there may be one": {
			waiting: []placement.Request{{ID: "a", Resources: cores(1), Clusters: 2}}, room: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := placement.NewInventory()
			for _, r := range row.waiting {
				if _, err := inventory.Place(r); err == nil {
					t.Fatalf("%s is placed", r.ID)
				}
			}
			tmpl, err := newTemplate(elasticPolicy(nil), clusterCatalog(t))
			if err != nil {
				t.Fatal(err)
			}
			tried := &trial{template: tmpl, room: row.room}
			if row.coming > 0 {
				tried.coming = []string{"coming"}
			}
			got := tried.demand(inventory)
			waits := map[string]string{}
			for id, on := range got.waits {
				if strings.HasPrefix(on, placement.SupposedName) {
					on = "new"
				}
				waits[id] = on
			}
			if got.more != row.more || !maps.Equal(waits, row.waits) {
				t.Errorf("%d more, waits %v; want %d, %v", got.more, waits, row.more, row.waits)
			}
			if left := len(inventory.Parked()); left != len(row.waiting) {
				t.Errorf("trying has changed what waits: %d, want %d", left, len(row.waiting))
			}
		})
	}
}

// If one cluster of the policy cannot take a request, several cannot either. So the maximum
// number of clusters makes no difference to the cost of each pass.
func TestWhatFitsOnNoClusterIsNotTriedWithMany(t *testing.T) {
	tmpl, err := newTemplate(elasticPolicy(nil), clusterCatalog(t))
	if err != nil {
		t.Fatal(err)
	}
	inventory := placement.NewInventory()
	for name, r := range map[string]placement.Request{
		"too large":      {Resources: placement.Resources{"cpu": 9000}},
		"another region": {Resources: placement.Resources{"cpu": 1000}, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: "us"})},
		"two parts that are nowhere near enough": {
			Components: []placement.Component{{Name: "a", Resources: placement.Resources{"cpu": 5000}}, {Name: "b", Resources: placement.Resources{"cpu": 5000}}},
			Links:      []placement.Link{{Between: [2]int{0, 1}, Most: time.Millisecond}},
		},
	} {
		r.ID = name
		if _, err := inventory.Place(r); err == nil {
			t.Fatalf("%s: it is placed", name)
		}
	}
	cost := func(room int) float64 {
		return testing.AllocsPerRun(5, func() {
			if n := (&trial{template: tmpl, room: room}).demand(inventory); n.more != 0 {
				t.Errorf("%d clusters are wanted", n.more)
			}
		})
	}
	if few, many := cost(2), cost(64); many > 2*few {
		t.Errorf("it costs %.0f allocations where there may be 2 clusters more, %.0f where there may be 64", few, many)
	}
}

// The life of a cluster that is made because a request fits nowhere, with a restart after every
// step: it is ordered, joins, takes the waiting request, and is given back when it is idle.
func TestElasticLife(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.look()
	if n := len(w.orders()); n != 0 {
		t.Fatalf("%d orders without a need", n)
	}
	for _, id := range []string{"a", "b", "c"} {
		w.park(id, 2)
	}
	for range 3 {
		w.look()
		w.restart()
	}
	orders := w.orders()
	if len(orders) != 1 {
		t.Fatalf("%d orders for three that fit on one cluster, want 1", len(orders))
	}
	w.look()
	name := v1alpha1.InstanceClusterName(orders[0].Name)
	if got := w.elastic.Promise("b"); !strings.Contains(got, "policy grow creates cluster "+name+" for it") {
		t.Errorf("b is told %q", got)
	}
	w.deliver(&orders[0])
	for range 3 {
		w.look()
		w.restart()
	}
	if got := w.members(); !slices.Equal(got, []string{name}) {
		t.Fatalf("member clusters %v, want %s", got, name)
	}
	if n := len(w.orders()); n != 1 {
		t.Fatalf("%d orders while one joins", n)
	}
	w.ready(name, "cpu=8")
	for _, id := range []string{"a", "b", "c"} {
		if _, err := w.inventory.Place(placement.Request{ID: id, Resources: placement.Resources{"cpu": 2000}}); err != nil {
			t.Fatal(err)
		}
	}
	w.look()
	w.clock.Step(time.Hour)
	w.look()
	if got := w.members(); len(got) != 1 {
		t.Fatal("it is given back while it is in use")
	}
	for _, id := range []string{"a", "b", "c"} {
		w.inventory.Release(id)
	}
	probe := v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID(name))
	if _, err := w.inventory.Place(placement.Request{ID: probe, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelCluster: name}), Resources: placement.Resources{"cpu": 100}}); err != nil {
		t.Fatal(err)
	}
	w.look() // the probe that measures the cluster does not use it
	w.clock.Step(59 * time.Second)
	w.look()
	if len(w.members()) != 1 {
		t.Fatal("it is given back too early")
	}
	w.clock.Step(2 * time.Second)
	w.look()
	if o := w.orders(); len(o) != 1 || o[0].DeletionTimestamp.IsZero() {
		t.Fatalf("orders %v, want one that is being deleted", o)
	}
}

// An existing cluster grows before another one is made, as far as its plan allows and as long
// as that takes no more machines. A request that does not fit then gets another cluster.
func TestElasticGrows(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.elastic.Catalog.Replace(growingCatalog(t, 4))
	w.park("a", 6)
	w.look()
	order := w.orders()[0]
	w.deliver(&order)
	w.look()
	name := v1alpha1.InstanceClusterName(order.Name)
	w.ready(name, "cpu=8")
	if _, err := w.inventory.Place(placement.Request{ID: "a", Resources: placement.Resources{"cpu": 6000}}); err != nil {
		t.Fatal(err)
	}
	w.park("b", 5)
	w.look()
	orders := w.orders()
	if len(orders) != 1 {
		t.Fatalf("%d orders, want one that grows", len(orders))
	}
	if got := string(orders[0].Spec.Desired.Parameters.Raw); got != `{"workers":{"pool":3}}` {
		t.Errorf("its parameters are %s, want one worker more", got)
	}
	if got := w.elastic.Promise("b"); !strings.Contains(got, "grows cluster "+name+" for it, workers added: 1") {
		t.Errorf("b is told %q", got)
	}
	w.look()
	if got := string(w.orders()[0].Spec.Desired.Parameters.Raw); got != `{"workers":{"pool":3}}` {
		t.Errorf("it grows once more, to %s", got)
	}
	if got := w.elastic.Promise("b"); !strings.Contains(got, "it grows") {
		t.Errorf("b is told %q", got)
	}
	w.park("c", 7) // beyond the four workers that there may be
	w.look()
	if n := len(w.orders()); n != 2 {
		t.Errorf("%d orders, want another cluster beside the one that grows", n)
	}
}

// A cluster that cannot be made is reported, and not tried over and over.
func TestElasticHindrances(t *testing.T) {
	budget := func(perHour string) func(*v1alpha1.Elastic) {
		return func(e *v1alpha1.Elastic) { e.Budget = euros(perHour) }
	}
	for name, row := range map[string]struct {
		capacity string
		change   func(*v1alpha1.Elastic)
		orders   int
		says     string
	}{
		"no room to make it": {"cpu=4,sluice.dev/clusters=10", nil, 0, "no management cluster accepts it"},
		"no more clusters":   {"cpu=100,sluice.dev/clusters=0", nil, 0, "InsufficientSluiceDevClusters"},
		"over the budget":    {"cpu=100,sluice.dev/clusters=10", budget("0.5"), 0, "the budget is 0.5 EUR"},
		"within the budget":  {"cpu=100,sluice.dev/clusters=10", budget("0.8"), 1, "creates a cluster for it"},
		"cooling down":       {"cpu=100,sluice.dev/clusters=10", func(e *v1alpha1.Elastic) { e.CoolDownSeconds = 600 }, 1, "creates a cluster for it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newElasticWorld(t, row.capacity, row.change)
			w.park("a", 6)
			w.look()
			if got := len(w.orders()); got != row.orders {
				t.Errorf("%d orders, want %d", got, row.orders)
			}
			if got := w.elastic.Promise("a"); !strings.Contains(got, row.says) {
				t.Errorf("it is told %q, want %q", got, row.says)
			}
		})
	}
}

// A cluster that could not be made is cleaned up after the cool-down. Until then its reason is
// reported, and no other cluster is begun.
func TestElasticFailure(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", func(e *v1alpha1.Elastic) { e.CoolDownSeconds = 600 })
	w.park("a", 6)
	w.look()
	order := w.orders()[0]
	order.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateFailed, Description: "out of machines", StartedAt: metav1.Now()}
	w.must(w.hub.Status().Update(t.Context(), &order))
	w.look()
	if got := w.elastic.Promise("a"); !strings.Contains(got, "the last one failed: out of machines") {
		t.Errorf("it is told %q", got)
	}
	if n := len(w.orders()); n != 1 {
		t.Fatalf("%d orders while it cools down", n)
	}
	w.clock.Step(11 * time.Minute)
	w.look()
	w.look()
	if deleted := w.deleted(); deleted != 1 {
		t.Errorf("%d failed orders are deleted, want 1", deleted)
	}
}

// Once the policy makes no clusters any more, idle ones are given back.
func TestElasticPolicyGone(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.park("a", 6)
	w.look()
	w.inventory.SetPolicies(nil)
	w.look()
	w.look()
	if o := w.orders(); len(o) != 1 || o[0].DeletionTimestamp.IsZero() {
		t.Errorf("orders %v, want one that is being deleted", o)
	}
}
