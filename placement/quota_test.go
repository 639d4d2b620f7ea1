package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Whatever was reserved before or after a quota came into force, and however often: no consumer
// holds more than the quota, and each may hold all of it. An order that waits for it is woken when something is given
// back. There is a warning with the order that reaches its share, and with no other one.
func TestAQuotaBindsHoweverItCameIntoForce(t *testing.T) {
	for name, bound := range map[string]struct {
		quota v1alpha1.Quota
		// limit, and what an instance with so many thousandths of a core counts.
		limit  int64
		counts func(cpu int64) int64
		says   func(held, asked int64) string
	}{
		"resources": {
			v1alpha1.Quota{Limits: Resources{"cpu": 10}.List()}, 10, func(cpu int64) int64 { return cpu },
			func(held, asked int64) string {
				return fmt.Sprintf("0.01 cpu: %s are held, %s asked for", show("cpu", held), show("cpu", asked))
			},
		},
		"budget": {
			v1alpha1.Quota{Budget: &v1alpha1.Price{Currency: "EUR", PerMonth: resource.NewQuantity(7300, resource.DecimalSI)}}, 10, func(cpu int64) int64 { return cpu },
			func(held, asked int64) string {
				return fmt.Sprintf("7300 EUR a month: %d EUR are held, %d EUR asked for", held*730, asked*730)
			},
		},
		"instances": {
			v1alpha1.Quota{Instances: ptr.To[int32](2)}, 2, func(int64) int64 { return 1 },
			func(held, asked int64) string {
				return fmt.Sprintf("2 service instances: %d are held, %d asked for", held, asked)
			},
		},
	} {
		quota, counts := bound.quota, bound.counts
		quota.Per, quota.WarnAt = v1alpha1.ScopeSpace, 80
		warns := (bound.limit*80 + 99) / 100
		policies := Policies{{Name: "small", Quota: &quota}}
		consumers := []Consumer{{Platform: "cf", Space: "one"}, {Platform: "cf", Space: "two"}, {Platform: "k8s", Space: "one"}}
		ids := []string{"si-a", "si-b", "si-c", "si-d"}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				inventory := stock([]*Cluster{{
					Name: "eu", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 1000}, Currency: "EUR", Prices: map[corev1.ResourceName]int64{"cpu": 1000e9},
				}})
				held, of, waits := map[string]int64{}, map[string]Consumer{}, map[string]bool{}
				others := func(id string) (sum int64) {
					for other, cpu := range held {
						if other != id && of[other] == of[id] {
							sum += counts(cpu)
						}
					}
					return sum
				}
				var woken []string
				inventory.OnWake(func(id string) { woken = append(woken, id) })
				inForce := false
				for range rapid.IntRange(1, 40).Draw(t, "steps") {
					id := rapid.SampledFrom(ids).Draw(t, "id")
					switch rapid.IntRange(0, 5).Draw(t, "step") {
					case 0:
						if inForce = rapid.Bool().Draw(t, "in force"); inForce {
							inventory.SetPolicies(policies)
						} else {
							inventory.SetPolicies(nil)
						}
					case 1:
						woken = nil
						inventory.Release(id)
						for other := range waits {
							if held[id] > 0 && inForce && other != id && of[other] == of[id] && !slices.Contains(woken, other) {
								t.Fatalf("%s goes, and %s of the same space is not woken", id, other)
							}
						}
						delete(held, id)
						delete(waits, id)
					default:
						if _, known := of[id]; !known {
							of[id] = rapid.SampledFrom(consumers).Draw(t, "consumer")
						}
						cpu := rapid.Int64Range(1, 6).Draw(t, "cpu")
						r := inventory.Snapshot().Govern(Request{ID: id, Resources: Resources{"cpu": cpu}}, of[id])
						others, own, asked := others(id), int64(0), counts(cpu)
						if held[id] > 0 {
							r.Current, own = []string{"eu"}, counts(held[id])
						}
						d, err := inventory.Place(r)
						if fits := !inForce || others+asked <= bound.limit || asked <= own; fits != (err == nil) {
							t.Fatalf("others hold %d, it has %d and asks for %d, in force is %t: %v", others, own, asked, inForce, err)
						}
						if waits[id] = err != nil; err != nil {
							if want := "policy small allows each space " + bound.says(others, asked); err.Error() != want {
								t.Fatalf("it says %q, want %q", err, want)
							}
							continue
						}
						delete(waits, id)
						held[id] = max(held[id], cpu) // a smaller one is reserved beside the larger until it is delivered
						if reaches := inForce && others+own < warns && others+counts(held[id]) >= warns; reaches != (len(d.Warnings) == 1) {
							t.Fatalf("others hold %d, it %d and had %d: warnings %q", others, counts(held[id]), own, d.Warnings)
						}
					}
				}
			})
		})
	}
}

// A budget leaves clusters that are cheap enough, and those that cost nothing; it keeps new instances away from prices
// that it does not know. A lower budget does not make an instance leave.
func TestABudgetChoosesAmongClusters(t *testing.T) {
	priced := func(name, currency string, core int64) *Cluster {
		return &Cluster{
			Name: name, Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 4000}, Currency: currency, Prices: map[corev1.ResourceName]int64{"cpu": core},
		}
	}
	for name, row := range map[string]struct {
		clusters []*Cluster
		request  Request
		on       string
		why      string
	}{
		"the dear one is not taken":      {clusters: []*Cluster{priced("dear", "EUR", 3e9), priced("fair", "EUR", 2e9)}, on: "fair"},
		"free of charge":                 {clusters: []*Cluster{priced("dear", "EUR", 3e9), priced("own", "", 0)}, on: "own"},
		"in another currency":            {clusters: []*Cluster{priced("us", "USD", 1)}, why: "the only cluster does not fit: NoPrice on 1 (us: has prices in USD, and policy small has a budget in EUR)"},
		"in another currency, and there": {clusters: []*Cluster{priced("us", "USD", 1)}, request: Request{Current: []string{"us"}}, on: "us"},
		"together too dear": {clusters: []*Cluster{priced("a", "EUR", 1.5e9), priced("b", "EUR", 1.5e9)}, request: Request{Clusters: 2},
			why: "policy small allows each platform 1460 EUR a month: 0 EUR are held, 2190 EUR asked for"},
		"components": {clusters: []*Cluster{priced("dear", "EUR", 3e9), priced("a", "EUR", 0.5e9)}, on: "a",
			request: Request{Components: []Component{{Name: "web", Resources: Resources{"cpu": 1000}}, {Name: "db", Resources: Resources{"cpu": 1000}}}}},
		"components together too dear": {clusters: []*Cluster{priced("a", "EUR", 1.5e9)},
			request: Request{Components: []Component{{Name: "web", Resources: Resources{"cpu": 1000}}, {Name: "db", Resources: Resources{"cpu": 1000}}}},
			why:     "policy small allows each platform 1460 EUR a month: 0 EUR are held, 2190 EUR asked for"},
		"replicas together too dear": {clusters: []*Cluster{priced("a", "EUR", 1.5e9)}, request: Request{Replicas: 2},
			why: "policy small allows each platform 1460 EUR a month: 0 EUR are held, 2190 EUR asked for"},
		"the cheapest is named": {clusters: []*Cluster{priced("dear", "EUR", 4e9), priced("fair", "EUR", 3e9)},
			why: "policy small allows each platform 1460 EUR a month: 0 EUR are held, 2190 EUR asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := stock(row.clusters)
			inventory.SetPolicies(Policies{{Name: "small", Quota: &v1alpha1.Quota{
				Per: v1alpha1.ScopePlatform, Budget: &v1alpha1.Price{Currency: "EUR", PerHour: resource.NewQuantity(2, resource.DecimalSI)},
			}}})
			row.request.ID = "si-1"
			if len(row.request.Components) == 0 {
				row.request.Resources = Resources{"cpu": 1000}
			}
			d, err := inventory.Place(inventory.Snapshot().Govern(row.request, Consumer{Platform: "cf"}))
			if row.why != "" {
				if none, _ := AsUnplaceable(err); none == nil || none.Error() != row.why || none.Denied != strings.HasPrefix(row.why, "policy") {
					t.Errorf("it is placed on %+v, or refused because %v; want %s", d.Placements, err, row.why)
				}
				return
			}
			if dear := slices.ContainsFunc(d.Rejections, func(r Rejection) bool { return r.Reason == ReasonOverBudget }); dear != (row.clusters[0].Name == "dear") && row.request.Components == nil {
				t.Errorf("rejected are %+v", d.Rejections)
			}
			if err != nil || len(d.Placements) != 1 || d.Placements[0].Cluster != row.on {
				t.Errorf("it is placed on %+v, want %s: %v", d.Placements, row.on, err)
			}
		})
	}
}

// An order over budget is woken when a cluster becomes cheaper.
func TestABudgetAwaitsLowerPrices(t *testing.T) {
	priced := func(core int64) *Cluster {
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 4000}, Currency: "EUR", Prices: map[corev1.ResourceName]int64{"cpu": core}}
	}
	inventory := stock([]*Cluster{priced(3e9)})
	inventory.SetPolicies(Policies{{Name: "small", Quota: &v1alpha1.Quota{
		Per: v1alpha1.ScopePlatform, Budget: &v1alpha1.Price{Currency: "EUR", PerHour: resource.NewQuantity(2, resource.DecimalSI)},
	}}})
	r := inventory.Snapshot().Govern(Request{ID: "si-1", Resources: Resources{"cpu": 1000}}, Consumer{Platform: "cf"})
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed")
	}
	woken := false
	inventory.OnWake(func(string) { woken = true })
	if inventory.UpsertCluster(priced(2e9)); !woken {
		t.Error("it is not woken")
	}
	if _, err := inventory.Place(r); err != nil {
		t.Error(err)
	}
}

// Each quota counts that concerns the consumer: none by a name that it lacks, and every other one, whatever their order.
// An instance on several clusters is one instance, also if the quota comes into force later or the instance changes hands.
func TestSeveralQuotas(t *testing.T) {
	instances := func(per v1alpha1.Scope, most, warnAt int32) *Policy {
		return &Policy{Name: "per-" + string(per), Quota: &v1alpha1.Quota{Per: per, Instances: &most, WarnAt: warnAt}}
	}
	inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(9)}, {Name: "us", Ready: true, AccessVerified: true, Allocatable: cores(9)}})
	both := map[string]Resources{"eu": cores(1), "us": cores(1)}
	consumer := Consumer{Platform: "cf", Space: "one"}
	inventory.Reserve(Holding{Instance: "si-0", Consumer: consumer, Held: both})
	place := func(id string, of Consumer) (Decision, string) {
		d, err := inventory.Place(inventory.Snapshot().Govern(Request{ID: id, Resources: cores(1), Clusters: 2}, of))
		if err != nil {
			return d, err.Error()
		}
		return d, ""
	}
	inventory.SetPolicies(Policies{instances(v1alpha1.ScopeApplication, 0, 1), instances(v1alpha1.ScopeSpace, 2, 100)})
	d, why := place("si-1", consumer)
	if want := []string{"per-space allows each space 2 service instances: 2 are held"}; why != "" || !slices.Equal(d.Warnings, []string{"policy " + want[0]}) {
		t.Errorf("%q, with the warnings %q, want %q", why, d.Warnings, want)
	}
	const refused = "policy per-space allows each space 2 service instances: 2 are held, 1 asked for"
	if _, why := place("si-2", consumer); why != refused {
		t.Errorf("a third one: %q, want %q", why, refused)
	}
	if _, why := place("si-2", Consumer{Platform: "cf", Space: "one", Application: "shop"}); why != "policy per-application allows each application 0 service instances: 0 are held, 1 asked for" {
		t.Errorf("one of an application: %q", why)
	}
	inventory.Reserve(Holding{Instance: "si-1", Consumer: Consumer{Platform: "cf", Space: "two"}, Held: both})
	if _, why := place("si-2", consumer); why != "" {
		t.Errorf("one has gone to another space, and there is no room for another: %s", why)
	}
	if d, why := place("si-3", Consumer{Platform: "cf", Space: "two"}); why != "" || len(d.Warnings) != 1 {
		t.Errorf("the other space has one: %s, warnings %q", why, d.Warnings)
	}
	if _, why := place("si-4", Consumer{Platform: "cf", Space: "two"}); why != refused {
		t.Errorf("the other space has two: %q", why)
	}
	inventory.SetPolicies(Policies{instances(v1alpha1.ScopeSpace, 2, 0)})
	inventory.Release("si-3")
	if d, why := place("si-4", Consumer{Platform: "cf", Space: "two"}); why != "" || len(d.Warnings) != 0 {
		t.Errorf("a quota that does not warn: %s, warnings %q", why, d.Warnings)
	}
}

// A price of a month is rounded to the nearest ten-thousandth.
func TestPricesOfAMonthAreRounded(t *testing.T) {
	for perHour, want := range map[int64]string{68: "0 EUR", 69: "0.0001 EUR", 205: "0.0001 EUR", 206: "0.0002 EUR", 1e9: "730 EUR"} { // in billionths
		if got := showHeld(priceIn("EUR"), perHour); got != want {
			t.Errorf("%d an hour: %s, want %s", perHour, got, want)
		}
	}
}

// A budget binds beside limits of resources, in whatever order these are looked at.
func TestABudgetBesideLimits(t *testing.T) {
	eu := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8), Currency: "EUR", Prices: map[corev1.ResourceName]int64{"cpu": 2}}
	limits := Resources{"cpu": 9000, "memory": 1, "pods": 1, pricePrefix + "EUR": 1}
	for range 10 { // maps have no order
		r := Request{ID: "si", Resources: cores(1), Consumer: Consumer{Platform: "cf"}, Quotas: []Quota{{By: "policy small", Per: v1alpha1.ScopePlatform, Limits: limits}}}
		if d, err := Place(r, stock([]*Cluster{eu}).Snapshot()); err == nil {
			t.Fatalf("it costs more than the budget, and is on %+v", d.Placements)
		}
	}
}

// A quota warns by what is recorded of an instance, not by what is reserved for it already: a decision that has to be made
// again, because it could not be written, warns again.
func TestAQuotaWarnsUntilItIsRecorded(t *testing.T) {
	inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(9)}})
	r := Request{ID: "si", Consumer: Consumer{Platform: "cf"}, Resources: cores(4), Quotas: []Quota{{By: "policy small", Per: v1alpha1.ScopePlatform, Limits: cores(4), WarnAt: 90}}}
	for _, row := range []struct {
		recorded *Holding
		warnings int
	}{
		{nil, 1}, {nil, 0}, // it is reserved
		{&Holding{Instance: "si"}, 1},
		{&Holding{Instance: "si", Held: map[string]Resources{"eu": cores(3)}}, 1},
		{&Holding{Instance: "si", Held: map[string]Resources{"eu": cores(4)}}, 0},
	} {
		r.Recorded = row.recorded
		if d, err := inventory.Place(r); err != nil || len(d.Warnings) != row.warnings {
			t.Errorf("recorded is %+v: warnings %q, %v", row.recorded, d.Warnings, err)
		}
	}
}
