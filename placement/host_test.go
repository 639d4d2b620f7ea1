package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Two orders for the same host at the same time: the inventory gives it to one of them, keeps it over a
// restart, and gives it to the other when the first has gone.
func TestAHostIsGivenOnce(t *testing.T) {
	const field = "components[web].ports[http].host"
	inventory := func() *Inventory {
		inv := NewInventory()
		inv.UpsertCluster(&Cluster{Name: "a", Ready: true, AccessVerified: true, Allocatable: Resources{corev1.ResourceCPU: 4000}})
		return inv
	}
	asks := func(id, host string) Request {
		return Request{ID: id, Resources: cores(1), Hosts: map[string]string{host: field}}
	}
	inv := inventory()
	if _, err := inv.Place(asks("si-1", "shop")); err != nil {
		t.Fatal(err)
	}
	refused := func(inv *Inventory, host string) {
		t.Helper()
		request := asks("si-2", host)
		_, err := inv.Place(request)
		unplaceable, ok := AsUnplaceable(err)
		if want := field + ": " + host + " is taken by another instance"; !ok || unplaceable.ForConsumer() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if !Hopeless(request, inv.Snapshot()) {
			t.Error("it waits for the host")
		}
	}
	refused(inv, "shop")

	// An update to another host holds both until it is delivered.
	if _, err := inv.Place(asks("si-1", "market")); err != nil {
		t.Fatal(err)
	}
	refused(inv, "shop")
	refused(inv, "market")

	decision := v1alpha1.Decision{Hosts: []string{"market"}, Placements: []v1alpha1.Placement{{Cluster: "a", Reserved: cores(1).List()}}}
	instance := &v1alpha1.ServiceInstance{Status: v1alpha1.ServiceInstanceStatus{Decision: &decision, Delivered: &v1alpha1.DeliveredState{Decision: decision}}}
	instance.Name = "si-1"
	inv.Reserve(HoldingOf(instance))
	refused(inv, "market")
	if _, err := inv.Place(asks("si-3", "shop")); err != nil {
		t.Errorf("a host that was given back is still taken: %v", err)
	}

	restarted := inventory()
	restarted.ReserveAll([]Holding{HoldingOf(instance)})
	refused(restarted, "market")
	restarted.Release("si-1")
	if _, err := restarted.Place(asks("si-2", "market")); err != nil {
		t.Errorf("a host of an instance that has gone is still taken: %v", err)
	}
}
