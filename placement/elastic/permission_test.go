package elastic

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// A cluster grows within the budget and within the room on its management cluster, as a new one is made. Otherwise another
// cluster is made, if that is possible.
func TestElasticGrowsAsAllowed(t *testing.T) {
	atMostOne := func(budget string) func(*v1alpha1.Elastic) {
		return func(e *v1alpha1.Elastic) {
			e.AtMost = 1
			if budget != "" {
				e.Budget = euros(budget)
			}
		}
	}
	for name, row := range map[string]struct {
		capacity   string
		other      string // of another management cluster
		change     func(*v1alpha1.Elastic)
		orders     int
		parameters string
		told       [2]string // b and c
	}{
		"as much as is needed": {
			"cpu=100,sluice.dev/clusters=10", "", atMostOne("1.6"), 1, `{"workers":{"pool":4}}`, [2]string{"workers added: 2", "workers added: 2"},
		},
		"a part within the budget": {
			"cpu=100,sluice.dev/clusters=10", "", atMostOne("1.2"), 1, `{"workers":{"pool":3}}`,
			[2]string{"workers added: 1", "for it, but with it all would cost 1.6 EUR/h, and the budget is 1.2 EUR/h"},
		},
		"nothing within the budget": {
			"cpu=100,sluice.dev/clusters=10", "", atMostOne("1.1"), 1, "", [2]string{"the budget is 1.1 EUR", "the budget is 1.1 EUR"},
		},
		"neither a larger one nor another within the budget": {
			"cpu=100,sluice.dev/clusters=10", "", func(e *v1alpha1.Elastic) { e.Budget = euros("0.8") }, 1, "",
			[2]string{"would create a cluster for it, but with it all would cost 1.6 EUR", "would create a cluster for it, but"},
		},
		"a part of what its management cluster has": {
			"cpu=15,sluice.dev/clusters=10", "", atMostOne(""), 1, `{"workers":{"pool":3}}`,
			[2]string{"workers added: 1", "but its management cluster does not accept it: "},
		},
		"another one elsewhere": {
			"cpu=10,sluice.dev/clusters=10", "cpu=100,sluice.dev/clusters=10", nil, 3, "", [2]string{"creates a cluster for it", "creates a cluster for it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newElasticWorld(t, row.capacity, row.change)
			w.elastic.Catalog.Replace(growingCatalog(t, 4))
			r := w.park("a", 6)
			w.look()
			order := w.orders()[0]
			w.deliver(&order)
			for _, d := range []*v1alpha1.Decision{order.Status.Decision, &order.Status.Delivered.Decision} {
				d.Placements[0].PricePerHour, d.Placements[0].Currency = euros("0.8").PerHour, "EUR"
			}
			w.must(w.hub.Status().Update(t.Context(), &order))
			holds := placement.Request{ID: order.Name, Resources: placement.Resources{"cpu": 8000, v1alpha1.ResourceClusters: 1}, Shape: &v1alpha1.ClusterShape{}}
			if _, err := w.inventory.Place(holds); err != nil {
				t.Fatal(err)
			}
			if row.other != "" {
				other := placementtest.Cluster{Name: "others", Has: placementtest.Quantities(row.other)}.MemberCluster()
				other.Spec.Driver = v1alpha1.DriverCAPI
				w.inventory.UpsertCluster(placement.ClusterOf(other, w.clock.Now()))
			}
			w.ready(v1alpha1.InstanceClusterName(order.Name), "cpu=8")
			if _, err := w.inventory.Place(r); err != nil {
				t.Fatal(err)
			}
			w.park("b", 5)
			w.park("c", 4)
			w.look()
			orders, parameters := w.orders(), ""
			for i := range orders {
				if raw := orders[i].Spec.Desired.Raw(); orders[i].Name == order.Name && raw != nil {
					parameters = string(raw)
				}
			}
			if len(orders) != row.orders || parameters != row.parameters {
				t.Errorf("%d orders, and the parameters of the first are %s; want %d and %s", len(orders), parameters, row.orders, row.parameters)
			}
			for i, id := range []string{"b", "c"} {
				if got := w.elastic.Promise(id); !strings.Contains(got, row.told[i]) {
					t.Errorf("%s is told %q, want %q", id, got, row.told[i])
				}
			}
		})
	}
}

// The room for another cluster is that beside the existing ones, whatever their numbers.
func TestElasticRoomBesideOthers(t *testing.T) {
	w := newElasticWorld(t, "cpu=20,sluice.dev/clusters=10", nil)
	tmpl, err := newTemplate(elasticPolicy(nil), clusterCatalog(t))
	w.must(err)
	second := tmpl.order(w.namespace, 2) // the first has been given back
	w.must(w.hub.Create(t.Context(), second))
	holds := placement.Request{ID: second.Name, Resources: placement.Resources{"cpu": 8000, v1alpha1.ResourceClusters: 1}, Shape: &v1alpha1.ClusterShape{}}
	if _, err := w.inventory.Place(holds); err != nil {
		t.Fatal(err)
	}
	w.park("a", 6)
	w.park("b", 6)
	w.park("c", 6)
	w.look()
	if n := len(w.orders()); n != 2 {
		t.Errorf("%d orders, want 2: there is room for one more", n)
	}
}

// The budget counts what is not decided yet. Clusters with prices in another currency cannot be counted, so that no more
// are made beside them.
func TestElasticCountsWhatItCannotSee(t *testing.T) {
	for name, row := range map[string]struct {
		budget, currency string // "" is not decided
		orders           int
		says             string
	}{
		"not decided":                        {"1.2", "", 1, "with it all would cost 1.6 EUR/h, and the budget is 1.2 EUR/h"},
		"not decided, and there is enough":   {"1.6", "", 2, "creates a cluster for it"},
		"in its currency":                    {"1.2", "EUR", 1, "with it all would cost 1.6 EUR/h"},
		"in its currency, and enough":        {"1.6", "EUR", 2, "creates a cluster for it"},
		"in another one, whatever is enough": {"9", "USD", 1, " costs 0.8 USD/h, and the budget is in EUR"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", func(e *v1alpha1.Elastic) { e.Budget = euros(row.budget) })
			w.park("a", 6)
			w.look()
			if order := w.orders()[0]; row.currency != "" {
				w.deliver(&order)
				order.Status.Decision.Placements[0].PricePerHour, order.Status.Decision.Placements[0].Currency = euros("0.8").PerHour, row.currency
				w.must(w.hub.Status().Update(t.Context(), &order))
			}
			w.park("b", 6)
			w.look()
			w.wantOrders(name, row.orders, 0)
			if got := w.elastic.Promise("b"); !strings.Contains(got, row.says) {
				t.Errorf("b is told %q, want %q", got, row.says)
			}
		})
	}
}
