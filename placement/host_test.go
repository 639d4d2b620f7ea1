package placement

import (
	"slices"
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

// The hosts of an update and of what it replaces are in order, so that recordings of the same state are the same.
func TestHostsOfAnUpdateAreInOrder(t *testing.T) {
	status := v1alpha1.ServiceInstanceStatus{
		Decision: &v1alpha1.Decision{Hosts: []string{"b", "d"}}, Delivered: &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Hosts: []string{"a", "b", "c"}}},
	}
	if got := HoldingOf(&v1alpha1.ServiceInstance{Status: status}).Hosts; !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("they are %v", got)
	}
}

// A host in a domain of consumers is theirs where the operator says so, and nobody else's.
func TestWholeHostsNeedADomain(t *testing.T) {
	const field = "components[web].ports[http].host"
	acme := v1alpha1.ConsumerReference{Platform: "cf", Organization: "acme"}
	exposing := func(name string, domains ...v1alpha1.ExposureDomain) *Cluster {
		return &Cluster{
			Name: name, Ready: true, AccessVerified: true, Allocatable: Resources{corev1.ResourceCPU: 4000},
			Exposure: &v1alpha1.ClusterExposure{Domain: name + ".apps.example", Domains: domains},
		}
	}
	inv := NewInventory()
	inv.UpsertCluster(exposing("a"))
	inv.UpsertCluster(exposing("b",
		v1alpha1.ExposureDomain{Name: "example", Consumers: []v1alpha1.ConsumerReference{{Platform: "cf"}}},
		v1alpha1.ExposureDomain{Name: "acme.example", Consumers: []v1alpha1.ConsumerReference{acme}},
	))
	for _, row := range []struct{ host, organization, want string }{
		{"acme.example", "acme", ""},
		{"www.acme.example", "acme", ""},
		{"www.acme.example", "other", "www.acme.example is in no domain that is yours"}, // the longest domain decides
		{"notacme.example", "other", ""},
		{"www.bank.test", "acme", "www.bank.test is in no domain that is yours"},
		{"shop.a.apps.example", "acme", "shop.a.apps.example is in the domain of a cluster, in which hosts are asked for by their first label"},
	} {
		r := Request{
			ID: "si-" + row.organization, Resources: cores(1), Consumer: Consumer{Platform: "cf", Organization: row.organization},
			Public: []v1alpha1.AppProtocol{v1alpha1.AppProtocolHTTP}, Hosts: map[string]string{row.host: field},
		}
		d, err := Place(r, inv.Snapshot())
		if row.want == "" {
			if err != nil || d.Placements[0].Cluster != "b" || d.Rejections[0].Examples[0].Message != "has a Gateway for public ports, which does not serve "+row.host+" for this consumer" {
				t.Errorf("%s of %s: %+v, %v", row.host, row.organization, d, err)
			}
			continue
		}
		if unplaceable, ok := AsUnplaceable(err); !ok || unplaceable.ForConsumer() != field+": "+row.want {
			t.Errorf("%s of %s: got %v, want %s", row.host, row.organization, err, row.want)
		}
		if !Hopeless(r, inv.Snapshot()) {
			t.Errorf("%s of %s: it waits", row.host, row.organization)
		}
	}
}
