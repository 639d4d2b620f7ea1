package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// told returns all that a snapshot says of its clusters, of what is held on them, and by whom. It does not depend on the
// order in which that came about.
func told(s *Snapshot) string {
	var b strings.Builder
	amounts := func(of Resources) (some []string) {
		for _, name := range of.names() {
			if of[name] != 0 {
				some = append(some, fmt.Sprint(name, "=", of[name]))
			}
		}
		return some
	}
	names := slices.Sorted(maps.Keys(s.columns))
	for _, p := range s.pages {
		fmt.Fprintf(&b, "%+v\n", p.rowSets)
		for row, c := range p.clusters {
			fmt.Fprintf(&b, "%s: %+v\n", c.Name, s.holes(c.Name))
			for _, name := range names {
				if one := p.column(s.columnOf(name)).cell(row); one.size > 0 || one.price > 0 { // what no cluster ever had has no column
					fmt.Fprintf(&b, "  %s: %+v\n", name, one)
				}
			}
			for _, held := range s.Reservations(c.Name) {
				fmt.Fprintf(&b, "  %s: %v\n", held.Instance, amounts(held.Resources))
			}
		}
	}
	for _, h := range rows[holding](s.store, tableHolding, indexID) {
		if some := amounts(h.Resources); some != nil {
			fmt.Fprintf(&b, "%s has %v\n", h.Holder, some)
		}
	}
	for _, load := range rows[hubLoad](s.store, tableHub, indexID) {
		if load.Instances != 0 {
			fmt.Fprintf(&b, "%s: %d instances\n", load.Hub, load.Instances)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.sold)) {
		if s.sold[name] != (sold{}) {
			fmt.Fprintf(&b, "%s: %+v\n", name, s.sold[name])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.preemptions)) {
		fmt.Fprintf(&b, "room for %s on %s\n", id, s.preemptions[id].Cluster)
	}
	return b.String()
}

// Whatever happens to an inventory, its snapshots never change; and in the end it says the same as one that is
// made anew of what is there.
func TestSnapshotsNeverChangeAndTheLastOneIsAsIfMadeAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := func(prefix string, n int) string {
			return fmt.Sprint(prefix, rapid.IntRange(0, n).Draw(t, prefix))
		}
		pod := func() Resources {
			return Resources{corev1.ResourceCPU: int64(rapid.IntRange(0, 3).Draw(t, "of pod")), testGPU: int64(rapid.IntRange(0, 2).Draw(t, "of pod"))}
		}
		var policies Policies
		clusters, held, rooms := map[string]*Cluster{}, map[string]Holding{}, map[string]*v1alpha1.Preemption{}
		inventory := NewInventory()
		type moment struct {
			*Snapshot
			told    string
			columns map[corev1.ResourceName]int
		}
		var moments []moment
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2:
				c := drawCluster(t, name("c", 5))
				if rapid.Bool().Draw(t, "has GPUs") {
					c.Allocatable[testGPU] = int64(rapid.IntRange(0, 8).Draw(t, "GPUs"))
				}
				if kinds := rapid.IntRange(0, 3).Draw(t, "kinds of nodes"); kinds > 0 {
					var nodes []Resources
					for range kinds {
						node := pod()
						for range rapid.IntRange(1, 3).Draw(t, "nodes of a kind") {
							nodes = append(nodes, node)
						}
					}
					c.Holes = HolesOf(nodes)
				}
				clusters[c.Name] = c
				inventory.UpsertCluster(c)
			case 3:
				gone := name("c", 5)
				delete(clusters, gone)
				inventory.DeleteCluster(gone)
			case 4:
				policies = nil
				if scope := rapid.SampledFrom([]v1alpha1.Scope{"", v1alpha1.ScopePlatform, v1alpha1.ScopeSpace, v1alpha1.ScopeApplication}).Draw(t, "quota"); scope != "" {
					policies = Policies{{Name: "small", Quota: &v1alpha1.Quota{Per: scope}}}
				}
				inventory.SetPolicies(policies)
			case 5:
				id := name("si-", 3)
				rooms[id] = &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: name("c", 5)}}
				if rapid.Bool().Draw(t, "no room") {
					delete(rooms, id)
				}
				inventory.Preempt(id, rooms[id])
			default:
				h := Holding{
					Instance: name("si-", 3), Consumer: Consumer{Platform: "cf", Space: name("s", 1), Application: rapid.SampledFrom([]string{"", "shop"}).Draw(t, "application")},
					Hub: rapid.SampledFrom([]string{"", "h0", "h1"}).Draw(t, "hub"), Held: map[string]Resources{}, Prices: map[string]Resources{}, Pods: map[string][]Resources{},
				}
				for range rapid.IntRange(0, 2).Draw(t, "on") {
					on := name("c", 5)
					h.Held[on], h.Prices[on], h.Pods[on] = pod(), Resources{priceIn("EUR"): 7}, []Resources{pod()}
				}
				held[h.Instance] = h
				h.Preemption = rooms[h.Instance]
				inventory.Reserve(h)
			}
			s := inventory.Snapshot()
			moments = append(moments, moment{s, told(s), maps.Clone(s.columns)})
		}
		for i, then := range moments {
			if now := told(then.Snapshot); now != then.told || !maps.Equal(then.Snapshot.columns, then.columns) {
				t.Fatalf("snapshot %d of %d said\n%sand says\n%s", i, len(moments), then.told, now)
			}
		}
		anew := NewInventory()
		anew.SetPolicies(policies)
		for _, c := range clusters {
			anew.UpsertCluster(c)
		}
		anew.ReserveAll(slices.Collect(maps.Values(held)))
		for id, room := range rooms {
			anew.Preempt(id, room)
		}
		if got, want := moments[len(moments)-1].told, told(anew.Snapshot()); got != want {
			t.Fatalf("it says\n%sand made anew\n%s", got, want)
		}
	})
}

// What is reserved of each resource that a cluster has, whatever others use or the provider holds back.
func TestUtilisation(t *testing.T) {
	eu := &Cluster{Name: "eu", Allocatable: Resources{corev1.ResourceCPU: 8000, testGPU: 2, "pods": 0}, ForeignUse: cores(3), Sell: &v1alpha1.Sale{Share: 50}}
	inventory := stock([]*Cluster{eu, {Name: "us", Allocatable: cores(4)}})
	for i, held := range []Resources{cores(1), {corev1.ResourceCPU: 500, testGPU: 1}} {
		inventory.Reserve(Holding{Instance: fmt.Sprint("si-", i), Held: map[string]Resources{"eu": held}})
	}
	want := map[string]Resources{"eu": {corev1.ResourceCPU: 1500, testGPU: 1}, "us": {corev1.ResourceCPU: 0}}
	got := map[string]Resources{}
	for c, reserved := range inventory.Snapshot().Utilisation() {
		got[c.Name] = reserved
	}
	if !maps.EqualFunc(got, want, maps.Equal) {
		t.Errorf("reserved is %v, want %v", got, want)
	}
}

// Who has seen enough of the clusters sees no more.
func TestUtilisationEnds(t *testing.T) {
	seen := 0
	for range stock([]*Cluster{inRegion("a", "a", 4), inRegion("b", "b", 4)}).Snapshot().Utilisation() {
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("%d are seen", seen)
	}
}
