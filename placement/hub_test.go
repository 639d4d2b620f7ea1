package placement

import (
	"slices"
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
		for _, name := range []string{"seller", "hub"} {
			why := inventory.Refuses(name, []v1alpha1.ConsumerReference{{Platform: "cf"}})
			if (why != "") != slices.Contains(refused, name) {
				t.Errorf("appliesTo %q: %s: %q", scope, name, why)
			}
		}
	}
}
