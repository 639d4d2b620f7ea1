package elastic

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/external"
	"github.com/sluice-dev/sluice/placement/placementtest"
	"github.com/sluice-dev/sluice/placement/replay"
)

// forecastWorld is a world with a policy that looks half an hour ahead, and a plan of two cores.
type forecastWorld struct {
	*elasticWorld
	said external.Forecast
}

func newForecastWorld(t *testing.T, change func(*v1alpha1.Elastic)) *forecastWorld {
	t.Helper()
	w := &forecastWorld{elasticWorld: newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", func(e *v1alpha1.Elastic) {
		e.AheadSeconds = 1800
		if change != nil {
			change(e)
		}
	})}
	policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "grow"}, Spec: v1alpha1.PlacementPolicySpec{Elastic: elasticPolicy(nil).Elastic}}
	w.must(w.hub.Create(t.Context(), policy))
	w.restart()
	return w
}

// restart drops all state that is not on the hub.
func (w *forecastWorld) restart() {
	w.elasticWorld.restart()
	clusters := clusterCatalog(w.T).All()[0].ServiceOfferingSpec
	rooms := &v1alpha1.ServiceOfferingSpec{ID: "service-rooms", Name: "rooms", Description: "Rooms.", Bindable: true, Plans: []v1alpha1.Plan{{
		ID: "plan-room", Name: "room", Description: "Two cores.", Kind: v1alpha1.PlanKindResources,
		Resources: &v1alpha1.ResourcesPlan{Limits: placementtest.Quantities("cpu=2")},
	}}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{
		{Status: v1alpha1.ServiceOfferingStatus{Accepted: clusters}}, {Status: v1alpha1.ServiceOfferingStatus{Accepted: rooms}},
	}, nil, nil, nil)
	w.must(err)
	w.elastic.Catalog.Replace(snapshot)
	w.elastic.Forecast = func() external.Forecast { return w.said }
}

// say makes an order book the latest forecast.
func (w *forecastWorld) say(book string) {
	w.Helper()
	orders, err := replay.ParseOrders([]byte(book), 1000)
	w.must(err)
	w.said = external.Forecast{Orders: orders, At: w.clock.Now()}
}

// came returns what the policy says has come of the forecast.
func (w *forecastWorld) came() *metav1.Condition {
	w.Helper()
	policy := &v1alpha1.PlacementPolicy{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "grow"}, policy))
	if c := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionForecast); c != nil {
		return c
	}
	return &metav1.Condition{}
}

// A cluster is made for expected orders before they come, stays although it is idle as long as they are expected, and
// is given back when they have not come. Sluice is restarted after every step.
func TestForecastLife(t *testing.T) {
	w := newForecastWorld(t, nil)
	w.say("at,plan,count\n1h,room,3\n")
	for range 2 {
		w.look()
		w.restart()
	}
	if n := len(w.orders()); n != 0 {
		t.Fatalf("%d clusters are ordered an hour before they are needed", n)
	}
	w.clock.Step(30 * time.Minute)
	for range 3 {
		w.look()
		w.restart()
	}
	orders := w.orders()
	if len(orders) != 1 {
		t.Fatalf("%d clusters are ordered for three rooms of two cores, want 1", len(orders))
	}
	if c := w.came(); c.Status != metav1.ConditionTrue || c.Message != "orders expected within 30m0s: 3; 0 fit, clusters are made for 3, 0 fit nowhere" {
		t.Errorf("the policy says %s, %q", c.Status, c.Message)
	}
	w.deliver(&orders[0])
	w.look()
	name := v1alpha1.InstanceClusterName(orders[0].Name)
	w.ready(name, "cpu=8")
	w.look()
	w.clock.Step(10 * time.Minute) // idle for ten times as long as the policy allows
	w.look()
	if o := w.orders(); len(o) != 1 || !o[0].DeletionTimestamp.IsZero() {
		t.Fatalf("orders %v, want the one that expected orders need", o)
	}
	if c := w.came(); !strings.HasSuffix(c.Message, "3; 3 fit, clusters are made for 0, 0 fit nowhere") {
		t.Errorf("the policy says %q", c.Message)
	}
	w.clock.Step(20*time.Minute - time.Second)
	w.look()
	if o := w.orders(); !o[0].DeletionTimestamp.IsZero() {
		t.Error("it is given back before their time")
	}
	w.clock.Step(time.Second)
	w.look()
	if o := w.orders(); o[0].DeletionTimestamp.IsZero() {
		t.Error("it stays after their time")
	}
}

// Of several idle clusters, exactly as many stay as expected orders need.
func TestForecastKeepsOnlyWhatIsNeeded(t *testing.T) {
	w := newForecastWorld(t, nil)
	w.say("at,plan,count\n1h,room,6\n")
	w.clock.Step(30 * time.Minute)
	w.look()
	orders := w.orders()
	if len(orders) != 2 {
		t.Fatalf("%d clusters are ordered for six rooms, want 2", len(orders))
	}
	for i := range orders {
		w.deliver(&orders[i])
		w.ready(v1alpha1.InstanceClusterName(orders[i].Name), "cpu=8")
	}
	w.say("at,plan,count\n25m,room,4\n")
	w.look()
	w.clock.Step(2 * time.Minute)
	w.look()
	if deleted := w.deleted(); deleted != 1 {
		t.Errorf("%d of 2 clusters are given back, want 1", deleted)
	}
}

// What is expected comes after what waits, within the policy's number, and only of the consumers and plans that it is
// about.
func TestForecastsThatMakeNothing(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*v1alpha1.Elastic)
		book   string
		parked int64 // cores for which an instance waits
		orders int
		says   string
	}{
		"no longer than it takes":     {nil, "at,plan\n0s,room\n31m,room\n", 0, 0, "30m0s: 0; 0 fit"},
		"what waits comes first":      {func(e *v1alpha1.Elastic) { e.AtMost = 1 }, "at,plan,count\n5m,room,2\n", 6, 1, "2; 0 fit, clusters are made for 1, 1 fit nowhere"},
		"a plan that nobody sells":    {nil, "at,plan\n5m,rooom\n", 0, 0, `order-2 is not expected: no service has a plan "rooom"`},
		"parameters that do not fit":  {nil, "at,plan,parameters\n5m,room,\"{\"\"x\"\": 1}\"\n", 0, 0, "order-2 is not expected: "},
		"many that are not sold":      {nil, "at,plan,count\n5m,rooom,3\n", 0, 0, `order-2-1 is not expected: no service has a plan "rooom", and 2 more like this`},
		"a cluster of its own":        {nil, "at,plan\n5m,small\n", 0, 0, "order-2 is not expected: plan small makes a cluster of its own"},
		"one that is usable beside":   {nil, "at,plan\n5m,rooom\n6m,room\n", 0, 1, "1; 0 fit, clusters are made for 1, 0 fit nowhere; order-2 is not expected"},
		"no more than can be tried":   {nil, "at,plan,count\n5m,room,300\n", 0, 3, "256; 0 fit, clusters are made for 12, 244 fit nowhere; only the first 256 are looked at"},
		"not within the budget":       {func(e *v1alpha1.Elastic) { e.Budget = euros("0.5") }, "at,plan\n5m,room\n", 0, 0, "the budget is 0.5 EUR"},
		"a policy that does not look": {func(e *v1alpha1.Elastic) { e.AheadSeconds = 0 }, "at,plan\n5m,room\n", 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newForecastWorld(t, row.change)
			w.say(row.book)
			if row.parked > 0 {
				w.park("waits", row.parked)
			}
			w.clock.Step(time.Second)
			w.look()
			if got := len(w.orders()); got != row.orders {
				t.Errorf("%d clusters are ordered, want %d", got, row.orders)
			}
			if got := w.came().Message; !strings.Contains(got, row.says) || (row.says == "") != (got == "") {
				t.Errorf("the policy says %q, want %q", got, row.says)
			}
			if promise := w.elastic.Promise("waits"); (promise != "") != (row.parked > 0) {
				t.Errorf("what waits is told %q", promise)
			}
			if parked := w.inventory.Parked(); len(parked) != min(int(row.parked), 1) {
				t.Errorf("expecting has changed what waits: %v", parked)
			}
		})
	}

	t.Run("other consumers", func(t *testing.T) {
		w := newForecastWorld(t, nil)
		policy, err := placement.CompilePolicy(&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "grow"}, Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PolicyMatch{Platforms: []string{"cf"}}, Elastic: elasticPolicy(func(e *v1alpha1.Elastic) { e.AheadSeconds = 60 }).Elastic,
		}})
		w.must(err)
		w.inventory.SetPolicies(placement.Policies{policy})
		w.say("at,plan,platform\n5s,room,korifi\n")
		w.look()
		if n := len(w.orders()); n != 0 {
			t.Errorf("%d clusters are ordered for another platform", n)
		}
		w.say("at,plan,platform\n5s,room,cf\n")
		w.look()
		if n := len(w.orders()); n != 1 {
			t.Errorf("%d clusters are ordered for its platform, want 1", n)
		}
	})
}

// Without a newer answer, the policy says why; orders are expected until their time.
func TestForecastWithoutAnAnswer(t *testing.T) {
	w := newForecastWorld(t, nil)
	w.said.Problem = errors.New("ask the forecaster: it answers 503")
	w.look()
	if c := w.came(); c.Status != metav1.ConditionFalse || !strings.HasSuffix(c.Message, "; ask the forecaster: it answers 503") {
		t.Errorf("the policy says %s, %q", c.Status, c.Message)
	}
	problem := w.said.Problem
	w.say("at,plan\n5m,room\n")
	w.said.Problem = problem
	w.look()
	if n := len(w.orders()); n != 1 {
		t.Errorf("%d clusters are ordered for what was said before, want 1", n)
	}
}
