package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// An order that waits for a hub is woken when one accepts it.
func TestWhoWaitsForAHubIsWoken(t *testing.T) {
	hub := func(cordoned bool) *Cluster {
		return &Cluster{Name: "hub", Driver: v1alpha1.DriverLiqo, Ready: true, AccessVerified: true, Cordoned: cordoned, Liqo: &v1alpha1.LiqoCluster{Hub: true}}
	}
	own := &Cluster{Name: "own", Driver: v1alpha1.DriverLiqo, Ready: true, Liqo: &v1alpha1.LiqoCluster{}, Consumers: []v1alpha1.ConsumerReference{{Platform: "cf"}}}
	eu := &Cluster{Name: "eu", Driver: v1alpha1.DriverLiqo, Ready: true, AccessVerified: true, Liqo: &v1alpha1.LiqoCluster{}, Allocatable: Resources{corev1.ResourceCPU: 8000}}
	for _, c := range []*Cluster{own, eu} {
		c.Liqo.Modules = v1alpha1.ModulesFor(true)
	}
	open, closed := hub(false), hub(true)
	open.Liqo.Modules, closed.Liqo.Modules = v1alpha1.ModulesFor(true), v1alpha1.ModulesFor(true)
	inventory := stock([]*Cluster{own, eu, closed})
	woken := map[string]int{}
	inventory.OnWake(func(instance string) { woken[instance]++ })
	ordered := Request{ID: "si-new", Resources: Resources{corev1.ResourceCPU: 1000}, Peering: &Peering{
		PeeringPlan: v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleHubAndSpoke},
	}}
	place := func() (Request, error) {
		r := inventory.Snapshot().Govern(ordered, Consumer{Platform: "cf"})
		_, err := inventory.Place(r)
		return r, err
	}
	r, err := place()
	if err == nil || Hopeless(r, inventory.Snapshot()) {
		t.Fatalf("it is placed through a cordoned hub, or would not wait for it: %v", err)
	}
	if inventory.UpsertCluster(open); woken["si-new"] != 1 {
		t.Fatalf("it is woken %d times when the hub takes new placements", woken["si-new"])
	}
	if r, err = place(); err != nil || r.Peering.Hub != "hub" {
		t.Fatalf("it is not placed: %v", err)
	}
	if n := inventory.Snapshot().through("hub"); n != 1 {
		t.Errorf("%d instances are reached through the hub", n)
	}
	if inventory.Release("si-new"); inventory.Snapshot().through("hub") != 0 {
		t.Error("it is still counted after it has gone")
	}
}

// What waits for a hub is woken by a cluster that becomes one, and by no other that takes part in peerings.
func TestWhoWaitsForAHubSleepsOnUntilThereIsOne(t *testing.T) {
	member := func(name string, c Cluster, hub bool) *Cluster {
		c.Name, c.Driver, c.Ready, c.AccessVerified = name, v1alpha1.DriverLiqo, true, true
		c.Liqo = &v1alpha1.LiqoCluster{Hub: hub, Modules: v1alpha1.ModulesFor(true)}
		return &c
	}
	inventory, woken := watched(member("own", Cluster{Consumers: []v1alpha1.ConsumerReference{{Platform: "cf"}}}, false), member("eu", Cluster{Allocatable: cores(8)}, false))
	r := inventory.Snapshot().Govern(Request{ID: "si-new", Resources: cores(1), Peering: &Peering{
		PeeringPlan: v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleHubAndSpoke},
	}}, Consumer{Platform: "cf"})
	if _, err := inventory.Place(r); err == nil || !Hopeless(r, inventory.Snapshot()) {
		t.Fatalf("it is placed without a hub, or waits for one that was never there: %v", err)
	}
	if _, err := inventory.Place(Request{ID: "si-large", Resources: cores(99)}); err == nil { // which waits for no hub
		t.Fatal("si-large is placed")
	}
	if inventory.UpsertCluster(member("us", Cluster{Region: "us"}, false)); woken()["si-new"] != 0 {
		t.Error("it is woken by a cluster that is no hub")
	}
	inventory.UpsertCluster(member("hub", Cluster{}, true))
	if got := woken(); got["si-new"] != 1 || got["si-large"] != 0 {
		t.Errorf("there is a hub, and woken are %v", got)
	}
	notLiqo := member("hub", Cluster{}, true)
	notLiqo.Liqo = nil
	if inventory.UpsertCluster(notLiqo); woken()["si-new"] != 0 {
		t.Error("it is woken when the hub goes")
	}
	if inventory.UpsertCluster(member("hub", Cluster{}, true)); woken()["si-new"] != 1 {
		t.Error("the hub takes part in peerings again, and it slept on")
	}
}

// Of several hubs, the one that a preference prefers is chosen: one for hubs or for the whole path, and not one for the
// chosen clusters. A hub that will never do is not waited for.
func TestPreferencesAboutHubsAreAskedOfHubs(t *testing.T) {
	hub := func(name, provider string) *Cluster {
		return &Cluster{
			Name: name, Driver: v1alpha1.DriverLiqo, Ready: true, AccessVerified: true, Provider: provider, Labels: map[string]string{v1alpha1.LabelProvider: provider},
			Liqo: &v1alpha1.LiqoCluster{Hub: true, Modules: v1alpha1.ModulesFor(true)},
		}
	}
	inventory := stock([]*Cluster{hub("one", "acme"), hub("other", "acme"), hub("green", "green")})
	own := hub("own", "")
	own.Consumers, own.Liqo.Hub = []v1alpha1.ConsumerReference{{Platform: "cf"}}, false
	inventory.UpsertCluster(own)
	for i := range 3 { // the green one is the fullest
		inventory.Reserve(Holding{Instance: fmt.Sprint("si-", i), Hub: "green", Held: map[string]Resources{"one": cores(1)}})
	}
	peered := Request{ID: "si-new", Peering: &Peering{PeeringPlan: v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleHubAndSpoke}}}
	for scope, prefers := range map[v1alpha1.RuleScope]bool{"": true, v1alpha1.RulePath: true, v1alpha1.RuleClusters: false, v1alpha1.RuleHubs: true} {
		policy := v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{Prefer: []v1alpha1.PolicyPreference{
			{PolicyRule: v1alpha1.PolicyRule{Name: "green", AppliesTo: scope, Expression: "cluster.provider == 'green'"}, Weight: 100},
		}}}
		inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{policy}))
		r := inventory.Snapshot().Govern(peered, Consumer{Platform: "cf"})
		for i, hub := range r.Peering.hubs {
			if hub.Chosen != (i == 0) || (hub.Reason == ReasonOutranked) != (i > 0) {
				t.Errorf("appliesTo %q: hub %d is %+v", scope, i, hub)
			}
		}
		if (r.Peering.Hub == "green") != prefers {
			t.Errorf("appliesTo %q: the hub is %q (%s)", scope, r.Peering.Hub, r.Peering.Problem)
		}
	}
	avoided := hub("one", "acme")
	avoided.Taints = []corev1.Taint{{Key: "noisy", Effect: corev1.TaintEffectPreferNoSchedule}}
	fork := inventory.Fork()
	fork.SetPolicies(nil)
	fork.UpsertCluster(avoided)
	if r := fork.Snapshot().Govern(peered, Consumer{Platform: "cf"}); r.Peering.Hub != "other" || r.Peering.hubs[1].Score != 50 {
		t.Errorf("the hub is %q of %+v, though one is better avoided and one is full", r.Peering.Hub, r.Peering.hubs)
	}
	for name, row := range map[string]struct {
		cordoned string // of the hubs
		excludes []string
		hopeless bool
	}{
		"all are excluded":                              {excludes: []string{"acme", "green"}, hopeless: true},
		"all are excluded, and one is cordoned":         {cordoned: "green", excludes: []string{"acme", "green"}, hopeless: true},
		"the only one that is not excluded is cordoned": {cordoned: "green", excludes: []string{"acme"}},
	} {
		fork := inventory.Fork()
		if row.cordoned != "" {
			c := hub(row.cordoned, row.cordoned)
			c.Cordoned = true
			fork.UpsertCluster(c)
		}
		asked := peered
		asked.ExcludeProviders = row.excludes
		r := fork.Snapshot().Govern(asked, Consumer{Platform: "cf"})
		if r.Peering.Problem == "" || r.Peering.passing == row.hopeless {
			t.Errorf("%s: the hub is %q (%s), for a time: %t", name, r.Peering.Hub, r.Peering.Problem, r.Peering.passing)
		}
	}
}

// The reasons of the first hubs that do not fit are listed, and the number of the others.
func TestListVerdicts(t *testing.T) {
	var all []Verdict
	for i := range maxExamples + 2 {
		all = append(all, Verdict{Cluster: fmt.Sprint("h", i), Reason: ReasonCordoned, Message: "is cordoned"})
	}
	one := func(i int) string { return fmt.Sprintf("h%d: %s (is cordoned)", i, ReasonCordoned) }
	first := one(0)
	for i := 1; i < maxExamples; i++ {
		first += ", " + one(i)
	}
	for n, want := range map[int]string{0: "", 1: one(0), maxExamples: first, maxExamples + 2: first + ", and 2 more"} {
		if got := listVerdicts(all[:n]); got != want {
			t.Errorf("%d hubs: %q, want %q", n, got, want)
		}
	}
}

// A rule for hubs alone does not apply to chosen clusters, but does apply to hubs.
func TestRulesAboutHubsAreAskedOfHubs(t *testing.T) {
	seller := &Cluster{Name: "seller", Driver: v1alpha1.DriverLiqo, Liqo: &v1alpha1.LiqoCluster{}}
	hub := &Cluster{Name: "hub", Driver: v1alpha1.DriverLiqo, Liqo: &v1alpha1.LiqoCluster{Hub: true}}
	inventory := stock([]*Cluster{seller, hub})
	for scope, refused := range map[v1alpha1.RuleScope][]string{
		"": {"seller", "hub"}, v1alpha1.RulePath: {"seller", "hub"}, v1alpha1.RuleClusters: {"seller", "hub"}, v1alpha1.RuleHubs: {"hub"},
	} {
		policy := v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{Require: []v1alpha1.PolicyRule{
			{Name: "residency", AppliesTo: scope, Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"EU"}}},
		}}}
		inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{policy}))
		if why := inventory.Refuses("gone", []v1alpha1.ConsumerReference{{Platform: "cf"}}); why != "" {
			t.Errorf("a cluster that is not there: %q", why)
		}
		for _, name := range []string{"seller", "hub"} {
			why := inventory.Refuses(name, []v1alpha1.ConsumerReference{{Platform: "cf"}})
			if (why != "") != slices.Contains(refused, name) {
				t.Errorf("appliesTo %q: %s: %q", scope, name, why)
			}
		}
	}
	rules := []v1alpha1.PolicyRule{{Name: "of-hubs", AppliesTo: v1alpha1.RuleHubs, Expression: "cluster.name == 'hub'"}, {Name: "of-all", Expression: "cluster.name == 'hub'"}}
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{{Spec: v1alpha1.PlacementPolicySpec{Require: rules}}}))
	for name, refuses := range map[string]bool{"seller": true, "hub": false} {
		if why := inventory.Refuses(name, []v1alpha1.ConsumerReference{{Platform: "cf"}}); (why != "") != refuses || strings.Contains(why, "of-all") != refuses {
			t.Errorf("after a rule for hubs: %s: %q", name, why)
		}
	}
}
