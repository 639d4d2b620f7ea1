package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// aBroker returns a member cluster that stands for a broker with plans, SERVICE/PLAN.
func aBroker(name, region string, plans ...string) *Cluster {
	c := &Cluster{
		Name: name, Driver: v1alpha1.DriverOSB, Region: region, Ready: true, AccessVerified: true, Allocatable: Resources{v1alpha1.ResourceInstances: 2},
		Labels: map[string]string{v1alpha1.LabelCluster: name, v1alpha1.LabelRegion: region}, Offers: map[string]v1alpha1.OfferedPlan{},
	}
	for _, plan := range plans {
		service, named, _ := strings.Cut(plan, "/")
		c.Offers[plan] = v1alpha1.OfferedPlan{Service: service, Plan: named, ServiceID: name + "-" + service, PlanID: name + "-" + named}
	}
	return c
}

// upstreamCandidate returns a candidate of a broker, with a price in euros per hour; "" is none.
func upstreamCandidate(broker, perHour string) v1alpha1.UpstreamCandidate {
	c := v1alpha1.UpstreamCandidate{Broker: broker, Service: "mysql", Plan: "small"}
	if perHour != "" {
		price := resource.MustParse(perHour)
		c.Price = &v1alpha1.Price{Currency: "EUR", PerHour: &price}
	}
	return c
}

// TestUpstream: an order goes to the cheapest candidate that offers its plan and has room, to no cluster that
// runs workloads, and workloads go to no broker.
func TestUpstream(t *testing.T) {
	inv := NewInventory()
	for _, c := range []*Cluster{
		aBroker("cheap", "eu", "mysql/small"), aBroker("dear", "eu", "mysql/small"), aBroker("gone", "eu", "mysql/large"), aBroker("other", "eu", "mysql/small"),
		{Name: "cluster", Driver: v1alpha1.DriverKube, Ready: true, AccessVerified: true, Allocatable: Resources{v1alpha1.ResourceInstances: 9, "cpu": 9000}},
	} {
		inv.UpsertCluster(c)
	}
	plan := &catalog.Plan{Offering: &catalog.Offering{ServiceOfferingSpec: &v1alpha1.ServiceOfferingSpec{Bindable: true}}, Plan: v1alpha1.Plan{ID: "p", Kind: v1alpha1.PlanKindUpstream, Upstream: &v1alpha1.UpstreamPlan{
		Candidates:   []v1alpha1.UpstreamCandidate{upstreamCandidate("dear", "0.30"), upstreamCandidate("cheap", "0.10"), upstreamCandidate("gone", "0.01")},
		MemberChoice: v1alpha1.MemberChoice{Score: v1alpha1.ScoreWeights{Price: 1}},
	}}}
	order := func(id string) (Request, Decision, error) {
		r, err := NewRequest(id, plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := inv.Place(r)
		return r, d, err
	}
	for i, want := range []string{"cheap", "cheap", "dear"} { // the cheap one has room for two
		r, d, err := order(fmt.Sprint("instance-", i))
		if err != nil || d.Placements[0].Cluster != want {
			t.Fatalf("the order goes to %+v, %v; want %s", d.Placements, err, want)
		}
		placed := r.Upstream.Placed(inv.Snapshot().Cluster(want))
		if placed.ServiceID != want+"-mysql" || placed.PlanID != want+"-small" || d.Placements[0].Price == nil || d.Placements[0].Price.Currency != "EUR" {
			t.Errorf("%s gets %+v at %v", want, placed, d.Placements[0].Price)
		}
	}
	unbound := aBroker("other", "eu", "mysql/small")
	offer := unbound.Offers["mysql/small"]
	offer.NotBindable = true
	unbound.Offers["mysql/small"] = offer
	inv.UpsertCluster(unbound)
	all := plan.Upstream.Candidates
	plan.Upstream.Candidates = []v1alpha1.UpstreamCandidate{upstreamCandidate("other", "0.01")}
	if _, _, err := order("bound"); err == nil || !strings.Contains(err.Error(), "other: its plan small of service mysql is not bindable, as this plan is (bindable)") {
		t.Errorf("an order that cannot be bound: %v", err)
	}
	plan.Offering.Bindable = false
	if _, d, err := order("unbound"); err != nil || d.Placements[0].Cluster != "other" {
		t.Errorf("an order that nobody binds goes to %+v, %v", d.Placements, err)
	}
	bad := *plan.Upstream
	bad.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: "near"}}}
	if _, err := NewRequest("si", &catalog.Plan{Offering: plan.Offering, Plan: v1alpha1.Plan{ID: "p", Kind: v1alpha1.PlanKindUpstream, Upstream: &bad}}, nil); err == nil {
		t.Error("a selector that is none is taken")
	}
	plan.Upstream.Candidates = all[2:]
	_, _, err := order("late")
	for _, reason := range []string{"NoCandidate on 3", "NotOffered on 1 (gone: its catalog has no plan small of service mysql that may be ordered)", "DriverMismatch on 1 (cluster: is no broker)"} {
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("it says %v, want %s", err, reason)
		}
	}
	r, _ := NewRequest("late", plan, nil)
	if !Hopeless(r, inv.Snapshot()) {
		t.Error("an order that no broker offers waits")
	}
	d, err := inv.Place(Request{ID: "workload", Resources: Resources{v1alpha1.ResourceInstances: 1}})
	if err != nil || d.Placements[0].Cluster != "cluster" {
		t.Errorf("a workload goes to %+v, %v", d.Placements, err)
	}
}

// TestWhatFailedLately: an order that failed halves the score of its plan at the broker, less with time, and not
// that of other plans. A broker that has refused the order itself is out. Both are explained.
func TestWhatFailedLately(t *testing.T) {
	now := time.Now()
	failed := func(plan string, minutes ...int) *v1alpha1.MemberCluster {
		mc := &v1alpha1.MemberCluster{}
		mc.Status.Broker = &v1alpha1.UpstreamBrokerStatus{}
		for _, ago := range minutes {
			mc.Status.Broker.Failures = append(mc.Status.Broker.Failures, v1alpha1.OrderFailure{Plan: plan, Reason: "no disk", At: metav1.NewTime(now.Add(-time.Duration(ago) * time.Minute))})
		}
		return mc
	}
	u := &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{"cheap": upstreamCandidate("cheap", "0.10"), "dear": upstreamCandidate("dear", "0.15")}}
	r := Request{ID: "i", Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: u, Weights: v1alpha1.ScoreWeights{Price: 1}}
	for _, row := range []struct {
		plan    string
		minutes []int
		score   int32 // of the cheap one; the dear one has 66
		says    string
	}{
		{"mysql/small", nil, 100, ""},
		{"mysql/small", []int{0}, 50, "scores 50, the last one chosen 66; orders that failed there within an hour: 1, the latest: no disk"},
		{"mysql/small", []int{5, 5}, 33, "scores 33, the last one chosen 66; orders that failed there within an hour: 2, the latest: no disk"},
		{"mysql/small", []int{10}, 66, "orders that failed there within an hour: 1, the latest: no disk"},
		{"mysql/small", []int{30}, 89, "fits best; orders that failed there within an hour: 1, the latest: no disk"},
		{"mysql/small", []int{60}, 100, ""},
		{"mysql/small", []int{60, 0}, 50, "orders that failed there within an hour: 1, the latest: no disk"},
		{"mysql/large", []int{0, 0, 0}, 100, "fits best"},
	} {
		cheap := aBroker("cheap", "eu", "mysql/small")
		cheap.Failures = failuresOf(failed(row.plan, row.minutes...), now)
		inv := NewInventory()
		inv.UpsertCluster(cheap)
		inv.UpsertCluster(aBroker("dear", "eu", "mysql/small"))
		for _, v := range Explain(r, inv.Snapshot()) {
			if v.Cluster == "cheap" && (v.Score != row.score || !strings.HasSuffix(v.Message, row.says)) {
				t.Errorf("%v of %s: scores %d: %q, want %d: %q", row.minutes, row.plan, v.Score, v.Message, row.score, row.says)
			}
		}
		r.Avoid([]v1alpha1.Refusal{{Cluster: "cheap", OperationFailure: v1alpha1.OperationFailure{Description: "broker cheap: no disk"}}})
		d, err := inv.Place(r)
		if err != nil || d.Placements[0].Cluster != "dear" || d.Rejections[0].Reason != ReasonRefused || d.Rejections[0].Examples[0].Message != "broker cheap: no disk" {
			t.Errorf("an order that was refused goes to %+v, %v", d, err)
		}
		r.Avoid(nil)
	}
}

// TestUpstreamStays: an update keeps an instance at its broker, with the ids that it has there, though the
// broker's catalog has changed; where its broker is no candidate, the update is refused.
func TestUpstreamStays(t *testing.T) {
	inv := NewInventory()
	inv.UpsertCluster(aBroker("eu", "eu", "mysql/large"))
	inv.UpsertCluster(aBroker("near", "eu", "mysql/small"))
	u := &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{"eu": upstreamCandidate("eu", ""), "near": upstreamCandidate("near", "")}}
	has := &v1alpha1.PlacementUpstream{
		OfferedPlan: v1alpha1.OfferedPlan{Service: "mysql", Plan: "small", ServiceID: "first", PlanID: "former"}, Dashboard: &v1alpha1.UpstreamDashboard{URL: "https://eu.example/i"},
	}
	u.Stay(&v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "eu", Upstream: has}}}, true)
	r := Request{ID: "i", Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: u, Current: []string{"eu"}}
	d, err := inv.Place(r)
	if err != nil || d.Placements[0].Cluster != "eu" || u.Placed(inv.Snapshot().Cluster("eu")).PlanID != "former" {
		t.Errorf("it goes to %+v, %v, as %+v", d.Placements, err, u.Placed(inv.Snapshot().Cluster("eu")))
	}
	for _, row := range []struct {
		offers string // the plan that the broker still offers
		keeps  bool
		want   string
	}{{"mysql/large", true, "former"}, {"mysql/large", false, "former"}, {"mysql/small", true, "former"}, {"mysql/small", false, "eu-small"}} {
		u.Stay(&v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "eu", Upstream: has}}}, row.keeps)
		if got := u.Placed(aBroker("eu", "eu", row.offers)); got.PlanID != row.want || got.Dashboard == nil || *got.Dashboard != *has.Dashboard {
			t.Errorf("%+v: it is of plan %q, and has the dashboard %+v", row, got.PlanID, got.Dashboard)
		}
	}
	u.Stay(&v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "eu", Upstream: has}}}, true)
	var none *Upstream
	none.Stay(&v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "eu", Upstream: has}}}, true)
	if u.Stay(nil, false); none != nil || u.has["eu"] != has || !u.keeps {
		t.Error("an order of no broker, or one that is not delivered, changes what an instance is")
	}
	delete(u.Candidates, "eu")
	if d, err := inv.Place(r); err == nil {
		t.Errorf("it moves to %+v, though its data are elsewhere", d.Placements)
	}
}

// TestUpstreamPrices: the candidate's price counts before that of the broker's market, which counts if the broker has no
// price list.
func TestUpstreamPrices(t *testing.T) {
	market := map[string]Market{"mysql/small": {Price: Price{Currency: "EUR", NanoPerHour: 7}}}
	for name, row := range map[string]struct {
		perHour  string
		currency string
		markets  map[string]Market
		want     int64
		ok       bool
	}{
		"of the candidate":            {"0.000000003", "", market, 3, true},
		"of the market":               {"", "", market, 7, true},
		"of the price list":           {"", "EUR", market, 7, false},
		"of neither":                  {"", "", nil, 0, false},
		"of the price list, no other": {"", "EUR", nil, 0, false},
	} {
		broker := aBroker("b", "eu", "mysql/small")
		broker.Currency, broker.Markets = row.currency, row.markets
		u := &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{"b": upstreamCandidate("b", row.perHour)}}
		if price, ok := u.price(broker); ok != row.ok || ok && price.NanoPerHour != row.want {
			t.Errorf("%s: %v, %t", name, price, ok)
		}
		if u.Placed(nil) != nil || u.Placed(broker) == nil {
			t.Errorf("%s: what is ordered is %v of no broker, %v of one", name, u.Placed(nil), u.Placed(broker))
		}
	}
}
