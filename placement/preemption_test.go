package placement

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

var classValues = map[string]int32{"gold": 1000, "silver": 100, "bronze": 10}

// least returns, by trying all sets, the cheapest set of holdings to remove from a cluster so that a request fits.
func least(r Request, s *Snapshot, fleet []*Cluster, cluster *Cluster, mayLeave []Holding) (best cost, found bool) {
	for subset := range 1 << len(mayLeave) {
		free := map[string]Resources{}
		for _, c := range fleet {
			free[c.Name] = Resources{}
			for name := range r.Resources {
				free[c.Name][name] = s.Free(c.Name, name) + s.Reserved(r.ID, c.Name)[name]
			}
		}
		now := cost{count: bits.OnesCount(uint(subset))}
		for i, h := range mayLeave {
			if subset&(1<<i) != 0 {
				free[cluster.Name].Add(h.Held[cluster.Name], 1)
				now.highest = max(now.highest, classValues[h.Class])
				now.sum += int64(classValues[h.Class])
			}
		}
		if hasRoom(r, cluster, fleet, free) && (!found || now.compare(best) < 0) {
			best, found = now, true
		}
	}
	return best, found
}

// leastTogether is least for a request that needs several clusters, of the holdings on all of them.
func leastTogether(r Request, s *Snapshot, fleet []*Cluster, mayLeave []Holding) (best cost, found bool) {
	for subset := range 1 << len(mayLeave) {
		now, given := cost{count: bits.OnesCount(uint(subset))}, map[string]Resources{}
		for _, c := range fleet {
			given[c.Name] = Resources{}
			given[c.Name].Add(s.Reserved(r.ID, c.Name), 1)
		}
		for i, h := range mayLeave {
			if subset&(1<<i) == 0 {
				continue
			}
			for cluster, amounts := range h.Held {
				given[cluster].Add(amounts, 1)
			}
			now.highest = max(now.highest, classValues[h.Class])
			now.sum += int64(classValues[h.Class])
		}
		take, stays := 0, len(r.Current) == 0
		for _, c := range fleet {
			fits := c.Ready
			for name, needed := range r.Resources {
				fits = fits && s.Free(c.Name, name)+given[c.Name][name] >= needed
			}
			if fits {
				take++
				stays = stays || slices.Contains(r.Current, c.Name)
			}
		}
		if take >= r.Clusters && stays && (!found || now.compare(best) < 0) {
			best, found = now, true
		}
	}
	return best, found
}

func TestPreemptTakesTheLeastThatMayBeTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := func(label string) Resources {
			return Resources{corev1.ResourceCPU: rapid.Int64Range(0, 8).Draw(t, label), corev1.ResourceMemory: rapid.Int64Range(0, 8).Draw(t, label)}
		}
		preempts := rapid.SampledFrom([]v1alpha1.Preempts{"", v1alpha1.PreemptsNever, v1alpha1.PreemptsSameConsumer, v1alpha1.PreemptsAnyConsumer}).Draw(t, "preempts")
		inventory := NewInventory()
		if preempts != "" {
			inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", preempts)}))
		}
		r := Request{
			ID: "si-new", Resources: drawn("asked"), Consumer: Consumer{Platform: "cf", Space: "s1", Application: "mine"},
			Class: rapid.SampledFrom([]string{"gold", "silver", "bronze", "none", ""}).Draw(t, "class"),
		}
		mostInstances := 7
		switch rapid.IntRange(0, 3).Draw(t, "divided") {
		case 0:
			r.Replicas, r.Clusters = rapid.IntRange(1, 4).Draw(t, "replicas"), rapid.IntRange(1, 3).Draw(t, "on clusters")
		case 1:
			r.Clusters, mostInstances = rapid.IntRange(2, 3).Draw(t, "on each of"), 3 // since all their sets are tried
		}
		held := map[string]Holding{}
		var fleet []*Cluster
		for c := range rapid.IntRange(1, 4).Draw(t, "clusters") {
			cluster := &Cluster{Name: fmt.Sprintf("cluster-%d", c), Ready: rapid.IntRange(0, 4).Draw(t, "ready") > 0, AccessVerified: true, Allocatable: Resources{}}
			for i := range rapid.IntRange(0, mostInstances).Draw(t, "instances") {
				h := Holding{
					Instance: fmt.Sprintf("si-%d-%d", c, i), Class: rapid.SampledFrom([]string{"gold", "silver", "bronze", "bronze", "none", ""}).Draw(t, "of class"),
					Consumer: Consumer{Platform: "cf", Space: rapid.SampledFrom([]string{"s1", "s1", "s2"}).Draw(t, "space"), Application: "theirs"},
					Held:     map[string]Resources{cluster.Name: drawn("held")},
				}
				held[h.Instance] = h
				cluster.Allocatable.Add(h.Held[cluster.Name], 1)
			}
			cluster.Allocatable.Add(drawn("free"), 1)
			fleet = append(fleet, cluster)
			inventory.UpsertCluster(cluster)
		}
		for _, h := range held {
			inventory.Reserve(h)
		}
		if (r.Clusters <= 1 || r.Replicas == 0) && rapid.Bool().Draw(t, "is an update") {
			on, own := rapid.SampledFrom(fleet).Draw(t, "on"), drawn("its own")
			on.Ready = true
			on.Allocatable.Add(own, 1)
			inventory.UpsertCluster(on)
			inventory.Reserve(Holding{Instance: r.ID, Class: r.Class, Consumer: r.Consumer, Held: map[string]Resources{on.Name: own}})
			if r.Current = []string{on.Name}; r.Clusters <= 1 {
				fleet = []*Cluster{on} // it stays there
			}
		}
		s := inventory.Snapshot()
		if _, err := Place(r, s); err == nil {
			return
		}
		got := Preempt(r, s)

		var best cost
		found := false
		var all []Holding
		for _, c := range fleet {
			var mayLeave []Holding
			for _, h := range held {
				declared := preempts != "" && preempts != v1alpha1.PreemptsNever && classValues[r.Class] > 10 && classValues[h.Class] > 0
				own := h.Consumer.Space == r.Consumer.Space || preempts == v1alpha1.PreemptsAnyConsumer
				if h.Held[c.Name] != nil && declared && own && classValues[h.Class] < classValues[r.Class] {
					mayLeave = append(mayLeave, h)
				}
			}
			if all = append(all, mayLeave...); r.Clusters > 1 && r.Replicas == 0 {
				continue
			}
			if one, ok := least(r, s, fleet, c, mayLeave); ok && c.Ready && (!found || one.compare(best) < 0) {
				best, found = one, true
			}
		}
		if r.Clusters > 1 && r.Replicas == 0 {
			best, found = leastTogether(r, s, fleet, all)
		}
		if r.Replicas > 0 && !found {
			given := map[string]Resources{}
			for _, h := range all {
				for cluster, amounts := range h.Held {
					if given[cluster] == nil {
						given[cluster] = Resources{}
					}
					given[cluster].Add(amounts, 1)
				}
			}
			if _, err := Place(r, s.with(given)); err == nil { // on several clusters
				if got == nil || len(got.Clusters()) < 2 || !s.Stands(r, got) {
					t.Fatalf("room can be made on several clusters, and Preempt says %+v", got)
				}
				return
			}
		}
		if found != (got != nil) {
			t.Fatalf("room can be made is %t, and Preempt says %+v", found, got)
		}
		if got == nil {
			return
		}
		now := cost{count: len(got.AllVictims())}
		for _, v := range got.AllVictims() {
			h := held[v.Instance]
			if !slices.ContainsFunc(got.Clusters(), func(c string) bool { return h.Held[c] != nil && got.On(c).Victim(v.Instance) != nil }) || classValues[h.Class] >= classValues[r.Class] {
				t.Fatalf("%s of class %q is displaced for one of %q", v.Instance, h.Class, r.Class)
			}
			if preempts != v1alpha1.PreemptsAnyConsumer && h.Consumer.Space != r.Consumer.Space {
				t.Fatalf("%s of another consumer is displaced", v.Instance)
			}
			now.highest, now.sum = max(now.highest, v.Priority), now.sum+int64(v.Priority)
		}
		if now != best {
			t.Fatalf("%+v costs %+v, and the least is %+v", got.Victims, now, best)
		}
		if !s.Stands(r, got) {
			t.Fatalf("%+v does not stand", got)
		}
	})
}

// One victim that releases everything is better than two that were found before.
func TestPreemptFindsTheOneAmongLarger(t *testing.T) {
	inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: Resources{corev1.ResourceCPU: 9, corev1.ResourceMemory: 10}}})
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
	for id, held := range map[string]Resources{
		"si-1": {corev1.ResourceCPU: 5},
		"si-2": {corev1.ResourceCPU: 4, corev1.ResourceMemory: 4},
		"si-3": {corev1.ResourceMemory: 3},
		"si-4": {corev1.ResourceMemory: 3},
	} {
		inventory.Reserve(Holding{Instance: id, Class: "bronze", Consumer: Consumer{Platform: "cf"}, Held: map[string]Resources{"eu": held}})
	}
	r := Request{ID: "si-new", Class: "gold", Consumer: Consumer{Platform: "cf"}, Resources: Resources{corev1.ResourceCPU: 4, corev1.ResourceMemory: 4}}
	got := Preempt(r, inventory.Snapshot())
	if got == nil || len(got.Victims) != 1 || got.Victims[0].Instance != "si-2" {
		t.Errorf("got %+v, want si-2 alone", got)
	}
}

// The best victims are found among many, unless too many sets of victims were tried for other clusters: then some are still
// tried on each, and the best of these is taken.
func TestManySetsOfVictims(t *testing.T) {
	random, has := rand.New(rand.NewPCG(86, 1)), Resources{}
	inventory := NewInventory()
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
	for i := range 24 {
		held := Resources{corev1.ResourceCPU: 1 + random.Int64N(40), corev1.ResourceMemory: 1 + random.Int64N(40)}
		has.Add(held, 1)
		inventory.Reserve(Holding{Instance: fmt.Sprint("si-", i), Class: []string{"bronze", "silver"}[random.IntN(2)], Held: map[string]Resources{"eu": held}})
	}
	inventory.UpsertCluster(&Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: has})
	s := inventory.Snapshot()
	at, _ := s.find("eu")
	r := Request{ID: "si-new", Class: "gold", Resources: Resources{corev1.ResourceCPU: has["cpu"] * 2 / 3, corev1.ResourceMemory: has["memory"] * 2 / 3}}
	for tried, want := range map[int]cost{0: {100, 410, 14}, mostSubsets: {100, 420, 15}} {
		x := newSearch(r, s)
		x.subsets = tried
		if found, ok := x.room(at); !ok || found.cost != want {
			t.Errorf("after %d: victims cost %+v, want %+v", tried, found.cost, want)
		}
	}
}

// The victims are listed with their classes and with what they hold.
func TestDescribeRoom(t *testing.T) {
	p := &v1alpha1.Preemption{PriorityClass: "gold", Priority: 1000}
	room := v1alpha1.Room{Victims: []v1alpha1.Victim{
		{Instance: "si-1", PriorityClass: "bronze", Priority: 10, Reserved: cores(1).List()}, {Instance: "si-2", PriorityClass: "silver", Priority: 100, Reserved: cores(2).List()},
	}}
	const want = "room for class gold (1000) without si-1 of class bronze (10, 1 cpu), si-2 of class silver (100, 2 cpu)"
	if got := describeRoom(p, &room); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Room is made on a cluster if those that may leave it hold what is lacking, and are not too many; not if nothing is lacking.
func TestRoomOnACluster(t *testing.T) {
	for _, row := range []struct {
		asked, each int64
		victims     int
		leave       int // 0 if no room is made
	}{{2, 1, 3, 1}, {3, 1, 3, 2}, {4, 1, 3, 3}, {5, 1, 3, 0}, {1, 1, 3, 0}, {64, 1, 80, 63}, {65, 1, 80, 64}, {66, 1, 80, 0}, {66, 2, 80, 33}} {
		eu := &Cluster{Name: "eu", Ready: true, AccessVerified: true, StorageClasses: []string{"fast"}, Allocatable: cores(1 + row.each*int64(row.victims))}
		inventory := stock([]*Cluster{eu})
		inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
		for i := range row.victims {
			inventory.Reserve(Holding{Instance: fmt.Sprint("si-", i), Class: "bronze", Held: map[string]Resources{"eu": cores(row.each)}})
		}
		s := inventory.Snapshot()
		at, _ := s.find("eu")
		asked := cores(row.asked)
		asked[v1alpha1.StorageResource("fast")] = 1 // of which no capacity is known
		found, ok := newSearch(Request{ID: "si-new", Class: "gold", Resources: asked}, s).room(at)
		if ok != (row.leave > 0) || len(found.victims) != row.leave {
			t.Errorf("%+v: %d leave (%t)", row, len(found.victims), ok)
		}
	}
}

// BenchmarkPreempt searches for room in a fleet that is full of instances that may be
// displaced.
func BenchmarkPreempt(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			inventory := syntheticFleet(n)
			inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
			var all []Holding
			for i := range 10 * n {
				c := inventory.Snapshot().Cluster(fmt.Sprintf("cluster-%05d", i%n))
				share := Resources{corev1.ResourceCPU: c.Unreserved(corev1.ResourceCPU) / 10, corev1.ResourceMemory: c.Unreserved(corev1.ResourceMemory) / 10}
				all = append(all, Holding{
					Instance: fmt.Sprintf("si-%07d", i), Consumer: Consumer{Platform: "cf"}, Class: []string{"silver", "bronze"}[i/n%2],
					Held: map[string]Resources{c.Name: share},
				})
			}
			inventory.ReserveAll(all)
			s := inventory.Snapshot()
			r := Request{ID: "si-bench", Class: "gold", Resources: Resources{corev1.ResourceCPU: 8000, corev1.ResourceMemory: 16 << 30}}
			parts := Request{ID: r.ID, Class: r.Class}
			for _, name := range []string{"a", "b", "c"} {
				parts.Components = append(parts.Components, Component{Name: name, Resources: r.Resources})
			}
			for what, r := range map[string]Request{"whole": r, "three components": parts} {
				b.Run(what, func(b *testing.B) {
					for b.Loop() {
						if p := Preempt(r, s); p == nil || slices.ContainsFunc(p.Victims, func(v v1alpha1.Victim) bool { return v.PriorityClass != "bronze" }) {
							b.Fatalf("%+v", p)
						}
					}
				})
			}
		})
	}
}
