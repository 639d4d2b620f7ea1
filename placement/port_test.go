package placement

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Public ports that speak TCP: no two instances have the same on a cluster, each keeps its own over updates and
// restarts, and who finds none waits until one is given back.
func TestAPublicPortIsGivenOnce(t *testing.T) {
	exposure := func(first, last int32) *v1alpha1.ClusterExposure {
		return &v1alpha1.ClusterExposure{Domain: "apps.example", TCP: &v1alpha1.ExposureTCP{First: first, Last: last}}
	}
	cluster := func(e *v1alpha1.ClusterExposure) *Cluster {
		mc := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Exposure: e}}
		mc.Name, mc.Status.Allocatable = "a", Resources{corev1.ResourceCPU: 9000}.List()
		c := ClusterOf(mc, goldenTime)
		c.Ready, c.AccessVerified = true, true
		return c
	}
	asks := func(id string, components ...string) Request {
		return Request{
			ID: id, Resources: takeTCP(Resources{corev1.ResourceCPU: 1000}, len(components)),
			Public: []v1alpha1.AppProtocol{v1alpha1.AppProtocolTCP}, TCP: components,
		}
	}
	statuses := map[string]*v1alpha1.ServiceInstance{}
	// decided places a request, and writes the decision as the controller does.
	decided := func(inv *Inventory, r Request) Ports {
		t.Helper()
		if statuses[r.ID] != nil {
			r.Current = []string{"a"}
		}
		d, err := inv.Place(r)
		if err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
		if statuses[r.ID] == nil {
			statuses[r.ID] = &v1alpha1.ServiceInstance{}
			statuses[r.ID].Name = r.ID
		}
		status := &statuses[r.ID].Status
		status.Decision = d.API(1)
		inv.Reserve(HoldingOf(statuses[r.ID]))
		return d.Placements[0].PublicPorts
	}
	delivered := func(inv *Inventory, id string) {
		status := &statuses[id].Status
		status.Delivered = &v1alpha1.DeliveredState{Decision: *status.Decision}
		inv.Reserve(HoldingOf(statuses[id]))
	}

	inv := NewInventory()
	woken := map[string]bool{}
	inv.OnWake(func(instance string) { woken[instance] = true })
	inv.UpsertCluster(cluster(exposure(30500, 30502)))
	first := decided(inv, asks("si-1", "mqtt"))
	delivered(inv, "si-1")
	second := decided(inv, asks("si-2", "mqtt", "amqp"))
	delivered(inv, "si-2")
	all := map[int32]bool{first["mqtt"]: true, second["mqtt"]: true, second["amqp"]: true}
	if len(all) != 3 || !all[30500] || !all[30501] || !all[30502] {
		t.Fatalf("the ports are %v and %v", first, second)
	}
	full := func(inv *Inventory) {
		t.Helper()
		_, err := inv.Place(asks("si-3", "mqtt"))
		unplaceable, ok := AsUnplaceable(err)
		if !ok || unplaceable.Error() != "the only cluster does not fit: InsufficientSluiceDevPublicPorts on 1 (a: needs 1 sluice.dev/public-ports, 0 free of 3 after 3 reserved and 0 used by others)" {
			t.Errorf("a fourth port: %v", err)
		}
		if Hopeless(asks("si-3", "mqtt"), inv.Snapshot()) {
			t.Error("it does not wait")
		}
	}
	full(inv)

	// An update of the instance, and one that gives another component the port.
	if again := decided(inv, asks("si-1", "mqtt")); again["mqtt"] != first["mqtt"] {
		t.Errorf("an update changes the port from %v to %v", first, again)
	}
	if renamed := decided(inv, asks("si-1", "broker")); renamed["broker"] != first["mqtt"] || len(renamed) != 1 {
		t.Errorf("an update to another component gives it %v, want that of %v", renamed, first)
	}
	full(inv) // the former component is still delivered

	restarted := NewInventory()
	restarted.UpsertCluster(cluster(exposure(30500, 30502)))
	restarted.ReserveAll([]Holding{HoldingOf(statuses["si-1"]), HoldingOf(statuses["si-2"])})
	full(restarted)

	inv.Release("si-1")
	if !woken["si-3"] {
		t.Error("who waits for a port is not woken when one is given back")
	}
	if third := decided(inv, asks("si-3", "mqtt")); third["mqtt"] != first["mqtt"] {
		t.Errorf("got %v, want the one that was given back, of %v", third, first)
	}

	// The range was moved away from the instances, and one of them asks for one more.
	inv.UpsertCluster(cluster(exposure(30600, 30603)))
	if moved := decided(inv, asks("si-3", "mqtt")); moved["mqtt"] < 30600 {
		t.Errorf("an update keeps %v, which is outside of the range", moved)
	}
}

// Two leaders may have given the same port: the decision that is made again gets another one.
func TestAPortThatAnotherInstanceHasIsNotKept(t *testing.T) {
	inv := NewInventory()
	inv.UpsertCluster(&Cluster{
		Name: "a", Ready: true, AccessVerified: true, Allocatable: Resources{v1alpha1.ResourcePublicPorts: 3},
		Exposure: &v1alpha1.ClusterExposure{TCP: &v1alpha1.ExposureTCP{First: 1, Last: 3}},
	})
	for _, id := range []string{"si-1", "si-2"} {
		inv.Reserve(Holding{Instance: id, Held: map[string]Resources{"a": {v1alpha1.ResourcePublicPorts: 1}}, Ports: map[string]Ports{"a": {"mqtt": 2}}})
	}
	d, err := inv.Place(Request{ID: "si-2", Resources: Resources{v1alpha1.ResourcePublicPorts: 1}, TCP: []string{"mqtt"}, Current: []string{"a"}})
	if err != nil || d.Placements[0].PublicPorts["mqtt"] == 2 {
		t.Errorf("%+v, %v", d.Placements, err)
	}
}

// A range that was made smaller has capacity on paper that no port stands for.
func TestARangeThatWasMovedAwayIsExplained(t *testing.T) {
	inv := NewInventory()
	inv.UpsertCluster(&Cluster{
		Name: "a", Ready: true, AccessVerified: true, Allocatable: Resources{v1alpha1.ResourcePublicPorts: 2},
		Exposure: &v1alpha1.ClusterExposure{TCP: &v1alpha1.ExposureTCP{First: 1, Last: 1}},
	})
	inv.Reserve(Holding{Instance: "si-1", Held: map[string]Resources{"a": {v1alpha1.ResourcePublicPorts: 1}}, Ports: map[string]Ports{"a": {"mqtt": 1}}})
	_, err := inv.Place(Request{ID: "si-2", Resources: Resources{v1alpha1.ResourcePublicPorts: 1}, TCP: []string{"mqtt"}})
	if unplaceable := (*UnplaceableError)(nil); !errors.As(err, &unplaceable) || unplaceable.Why != "a has too few ports for plain TCP that are free" {
		t.Errorf("got %v", err)
	}
}

// Orders that are decided at the same time, each by a snapshot without the others, get different ports.
func TestPortsOfDecisionsBesideEachOther(t *testing.T) {
	const all = 16
	inv := NewInventory()
	inv.UpsertCluster(&Cluster{
		Name: "a", Ready: true, AccessVerified: true, Allocatable: Resources{v1alpha1.ResourcePublicPorts: all},
		Exposure: &v1alpha1.ClusterExposure{TCP: &v1alpha1.ExposureTCP{First: 1, Last: all}},
	})
	ports := make([]int32, all)
	var racing sync.WaitGroup
	for i := range ports {
		racing.Go(func() {
			d, err := inv.Place(Request{ID: fmt.Sprint("si-", i), Resources: Resources{v1alpha1.ResourcePublicPorts: 1}, TCP: []string{"mqtt"}})
			if err != nil {
				t.Error(err)
				return
			}
			ports[i] = d.Placements[0].PublicPorts["mqtt"]
		})
	}
	racing.Wait()
	if different := slices.Compact(slices.Sorted(slices.Values(ports))); len(different) != all || different[0] == 0 {
		t.Errorf("%d orders have the ports %v", all, different)
	}

	// As if another order had been reserved between this one's snapshot and its reservation.
	inv.Release("si-0")
	inv.Release("si-1")
	r := Request{ID: "si-0", Resources: Resources{v1alpha1.ResourcePublicPorts: 1}, TCP: []string{"mqtt"}}
	before := inv.Snapshot()
	d, err := Place(r, before)
	if err != nil {
		t.Fatal(err)
	}
	inv.Reserve(Holding{
		Instance: "si-between", Held: map[string]Resources{"a": {v1alpha1.ResourcePublicPorts: 1}}, Ports: map[string]Ports{"a": d.Placements[0].PublicPorts},
	})
	if inv.Snapshot().allows(r, d, before) {
		t.Errorf("it gets the port %v that another one has now", d.Placements[0].PublicPorts)
	}
}

// Components keep their ports where these can be used; others get those that the instance gives back, and then free
// ones. No port is given twice, or outside of the range.
func TestPortsOfComponents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, last := int32(10), int32(10+rapid.IntRange(0, 5).Draw(t, "ports"))
		inventory, taken, own := NewInventory(), map[int32]bool{}, Ports{}
		inventory.UpsertCluster(&Cluster{Name: "a", Exposure: &v1alpha1.ClusterExposure{TCP: &v1alpha1.ExposureTCP{First: first, Last: last}}})
		free := rapid.Permutation([]int32{9, 10, 11, 12, 13, 14, 15, 16}).Draw(t, "in the order") // also outside of the range
		for i := range rapid.IntRange(0, 4).Draw(t, "of others") {
			taken[free[i]] = true
			inventory.Reserve(Holding{Instance: fmt.Sprint("si-", i), Held: map[string]Resources{"a": {}}, Ports: map[string]Ports{"a": {"x": free[i]}}})
		}
		for i, name := range []string{"v", "w", "x", "y"}[:rapid.IntRange(0, 4).Draw(t, "own")] {
			own[name] = free[4+i]
		}
		inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"a": {}}, Ports: map[string]Ports{"a": own}})
		asked := []string{"x", "y", "z", "zz"}[:rapid.IntRange(0, 4).Draw(t, "components")]
		got := inventory.Snapshot().portsFor("si", "a", asked)
		usable, kept, back, given := 0, map[int32]bool{}, 0, map[int32]bool{}
		for port := first; port <= last; port++ {
			if !taken[port] {
				usable++
			}
		}
		in := func(port int32) bool { return port >= first && port <= last && !taken[port] }
		for name, port := range own {
			switch {
			case in(port) && slices.Contains(asked, name):
				if kept[port] = true; got[name] != port {
					t.Fatalf("%s had %d, and gets %d", name, port, got[name])
				}
			case in(port):
				back++
			}
		}
		again := 0
		for name, port := range got {
			if !in(port) || given[port] || !slices.Contains(asked, name) {
				t.Fatalf("%s gets %d of %d to %d, of which %v are taken: %v", name, port, first, last, taken, got)
			}
			if given[port] = true; !kept[port] && slices.Contains(slices.Collect(maps.Values(own)), port) {
				again++
			}
		}
		if want := min(usable, len(asked)); len(got) != want || again != min(back, want-len(kept)) {
			t.Fatalf("%d of %d components get ports, %d of %d that are given back: %v of %v", len(got), len(asked), again, back, got, own)
		}
	})
}

// Clusters without ports give none.
func TestNoPortsWhereThereAreNone(t *testing.T) {
	s := stock([]*Cluster{{Name: "a"}, {Name: "b", Exposure: &v1alpha1.ClusterExposure{Domain: "apps.example"}}}).Snapshot()
	for _, cluster := range []string{"a", "b", "gone"} {
		if got := s.portsFor("si", cluster, []string{"mqtt"}); len(got) > 0 {
			t.Errorf("%s gives %v", cluster, got)
		}
	}
}

// A request that asks for nothing else still takes its public ports, and what it shares its amounts with takes none.
func TestPublicPortsAreTaken(t *testing.T) {
	if got := takeTCP(nil, 2); !maps.Equal(got, Resources{v1alpha1.ResourcePublicPorts: 2}) {
		t.Errorf("of nothing: %v", got)
	}
	asked := cores(1)
	if got := takeTCP(asked, 1); got[v1alpha1.ResourcePublicPorts] != 1 || !maps.Equal(asked, cores(1)) {
		t.Errorf("it takes %v of %v", got, asked)
	}
}
