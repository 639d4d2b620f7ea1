package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// TestTheMarketKnowsTheRoom: of the engine's inventory, once that is filled, and under the policies for who asks.
func TestTheMarketKnowsTheRoom(t *testing.T) {
	resources := &v1alpha1.ResourcesPlan{Clusters: 1, Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	spec := &v1alpha1.ServiceOfferingSpec{ID: "s", Name: "s", Description: "s", Plans: []v1alpha1.Plan{
		{ID: "plain", Name: "plain", Description: "p", Kind: v1alpha1.PlanKindResources, Resources: resources},
		{ID: "asking", Name: "asking", Description: "p", Kind: v1alpha1.PlanKindResources, Resources: resources,
			Schemas: &v1alpha1.PlanSchemas{InstanceCreate: &runtime.RawExtension{Raw: []byte(`{"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}`)}}},
	}}
	built, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	plans := built.All()[0].Plans
	s := newSoldInventory()
	has := placementtest.Quantities("cpu=9,memory=10Gi,pods=100")
	row := placementtest.Cluster{Name: "a", Has: has, Currency: "EUR", Prices: placementtest.Quantities("cpu=0.01")}
	s.UpsertCluster(placement.ClusterOf(row.MemberCluster(), time.Time{}))
	if rooms := s.Rooms(plans, "", time.Now()); rooms != nil {
		t.Errorf("before it is filled it knows %v", rooms)
	}
	changed := s.Changed()
	s.fill()
	select {
	case <-changed:
	default:
		t.Error("that it is filled is no change")
	}
	rooms := s.Rooms(plans, "cf", time.Now())
	if want := (market.Room{Known: true, Orders: 4, Clusters: 1, Currency: "EUR", NanoPerHour: 20_000_000}); rooms[0] != want {
		t.Errorf("got %+v, want %+v", rooms[0], want)
	}
	if rooms[1].Known {
		t.Errorf("of a plan that needs parameters it knows %+v", rooms[1])
	}
	changed = s.Changed()
	s.SetPolicies(placement.CompilePolicies([]v1alpha1.PlacementPolicy{{Spec: v1alpha1.PlacementPolicySpec{
		Require: []v1alpha1.PolicyRule{{Name: "not-cf", Expression: "consumer.platform != 'cf'"}},
	}}}))
	select {
	case <-changed:
	default:
		t.Error("a policy is no change")
	}
	if here, there := s.Rooms(plans, "cf", time.Now())[0], s.Rooms(plans, "korifi", time.Now())[0]; here.Orders != 0 || there.Orders != 4 {
		t.Errorf("under a policy, cf has room for %d and korifi for %d", here.Orders, there.Orders)
	}
	changed = s.Changed()
	s.Reserve(placement.Holding{Instance: "i", Held: map[string]placement.Resources{"a": {corev1.ResourceCPU: 6000}}})
	select {
	case <-changed:
	default:
		t.Error("a reservation is no change")
	}
	if room := s.Rooms(plans, "korifi", time.Now())[0]; room.Orders != 1 {
		t.Errorf("with 3 cores free: %+v", room)
	}
}
