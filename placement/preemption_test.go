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
		if rapid.IntRange(0, 2).Draw(t, "divided") == 0 {
			r.Replicas, r.Clusters = rapid.IntRange(1, 4).Draw(t, "replicas"), rapid.IntRange(1, 3).Draw(t, "on clusters")
		}
		held := map[string]Holding{}
		var fleet []*Cluster
		for c := range rapid.IntRange(1, 4).Draw(t, "clusters") {
			cluster := &Cluster{Name: fmt.Sprintf("cluster-%d", c), Ready: rapid.IntRange(0, 4).Draw(t, "ready") > 0, AccessVerified: true, Allocatable: Resources{}}
			for i := range rapid.IntRange(0, 7).Draw(t, "instances") {
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
		if r.Clusters <= 1 && rapid.Bool().Draw(t, "is an update") {
			on, own := rapid.SampledFrom(fleet).Draw(t, "on"), drawn("its own")
			on.Ready = true
			on.Allocatable.Add(own, 1)
			inventory.UpsertCluster(on)
			inventory.Reserve(Holding{Instance: r.ID, Class: r.Class, Consumer: r.Consumer, Held: map[string]Resources{on.Name: own}})
			r.Current, fleet = []string{on.Name}, []*Cluster{on} // it stays there
		}
		s := inventory.Snapshot()
		if _, err := Place(r, s); err == nil {
			return
		}
		got := Preempt(r, s)

		var best cost
		found := false
		for _, c := range fleet {
			var mayLeave []Holding
			for _, h := range held {
				declared := preempts != "" && preempts != v1alpha1.PreemptsNever && classValues[r.Class] > 10 && classValues[h.Class] > 0
				own := h.Consumer.Space == r.Consumer.Space || preempts == v1alpha1.PreemptsAnyConsumer
				if h.Held[c.Name] != nil && declared && own && classValues[h.Class] < classValues[r.Class] {
					mayLeave = append(mayLeave, h)
				}
			}
			if one, ok := least(r, s, fleet, c, mayLeave); ok && c.Ready && (!found || one.compare(best) < 0) {
				best, found = one, true
			}
		}
		if found != (got != nil) {
			t.Fatalf("room can be made is %t, and Preempt says %+v", found, got)
		}
		if got == nil {
			return
		}
		now := cost{count: len(got.Victims)}
		for _, v := range got.Victims {
			h := held[v.Instance]
			if h.Held[got.Cluster] == nil || classValues[h.Class] >= classValues[r.Class] {
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

// An update gets room where its instance stays, whether or not that cluster answers, and what the instance has there counts
// as free. If it needs another cluster as well, or moves, others leave that one.
func TestRoomForAnUpdate(t *testing.T) {
	classes := CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)})
	for name, row := range map[string]struct {
		asks    Request
		cluster string // on which room is made, by each of the two ways; none if it is empty
	}{
		"more on its cluster":            {Request{Resources: cores(8), Current: []string{"eu"}}, "eu"},
		"more than its cluster has":      {Request{Resources: cores(9), Current: []string{"eu"}}, ""},
		"as much on another":             {Request{Resources: cores(8), Leaving: []string{"eu"}}, "us"},
		"another cluster as well":        {Request{Resources: cores(4), Clusters: 2, Current: []string{"eu"}}, "us"},
		"more, and another cluster":      {Request{Resources: cores(6), Clusters: 2, Current: []string{"eu"}}, ""},
		"more replicas":                  {Request{Resources: cores(2), Replicas: 4, Clusters: 1, Current: []string{"eu"}}, "eu"},
		"more replicas, also on another": {Request{Resources: cores(2), Replicas: 6, Clusters: 2, Current: []string{"eu"}}, "us"},
		"it is on both":                  {Request{Resources: cores(5), Clusters: 2, Current: []string{"eu", "us"}}, ""},
		"replicas on both":               {Request{Resources: cores(2), Replicas: 6, Clusters: 2, Current: []string{"eu", "us"}}, "us"},
		"more replicas than both take":   {Request{Resources: cores(2), Replicas: 7, Clusters: 2, Current: []string{"eu", "us"}}, ""},
	} {
		silent := withCores("eu", 8)
		silent.Ready = false
		inventory := stock([]*Cluster{silent, withCores("us", 8)})
		inventory.SetPolicies(slices.Concat(roomPolicies(2), classes))
		spare := withCores("spare", 8) // takes only those that move
		spare.Taints = []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}}
		inventory.UpsertCluster(spare)
		r := row.asks
		r.ID, r.Class = "si", "gold"
		mine := map[string]Resources{"eu": cores(4)}
		if len(r.Current) == 2 {
			mine["us"] = cores(1)
		}
		inventory.Reserve(Holding{Instance: r.ID, Class: r.Class, Held: mine})
		var others []Request
		for cluster, n := range map[string]int64{"eu": 4, "us": 7} {
			other := Request{ID: "si-" + cluster, Consumer: Consumer{Plan: "p2"}, Class: "bronze", Resources: cores(n), Current: []string{cluster}, Free: true}
			other.Tolerations = []corev1.Toleration{{Key: "spare", Operator: corev1.TolerationOpExists}}
			others = append(others, other)
			inventory.Reserve(Holding{Instance: other.ID, Consumer: other.Consumer, Class: other.Class, Held: map[string]Resources{cluster: other.Resources}})
		}
		for way, p := range map[string]*v1alpha1.Preemption{
			"displaced": Preempt(r, inventory.Snapshot()), "moved": MakeRoom(r, inventory, movableAmong(others)),
		} {
			switch {
			case p == nil && row.cluster == "":
			case p == nil:
				t.Errorf("%s: nobody is %s", name, way)
			case p.Cluster != row.cluster || len(p.Victims) != 1 || p.Victims[0].Instance != "si-"+row.cluster:
				t.Errorf("%s: %+v of %s are %s", name, p.Victims, p.Cluster, way)
			}
		}
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
func TestDescribePreemption(t *testing.T) {
	p := &v1alpha1.Preemption{PriorityClass: "gold", Priority: 1000, Victims: []v1alpha1.Victim{
		{Instance: "si-1", PriorityClass: "bronze", Priority: 10, Reserved: cores(1).List()}, {Instance: "si-2", PriorityClass: "silver", Priority: 100, Reserved: cores(2).List()},
	}}
	const want = "room for class gold (1000) without si-1 of class bronze (10, 1 cpu), si-2 of class silver (100, 2 cpu)"
	if got := describePreemption(p); got != want {
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
			for b.Loop() {
				if p := Preempt(r, s); p == nil || slices.ContainsFunc(p.Victims, func(v v1alpha1.Victim) bool { return v.PriorityClass != "bronze" }) {
					b.Fatalf("%+v", p)
				}
			}
		})
	}
}

// Room that is being made for somebody is left alone by whoever is not more important: by the
// same class too, and by who has none.
func TestRoomThatIsBeingMade(t *testing.T) {
	eu := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8)}
	inventory := stock([]*Cluster{eu})
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
	for _, id := range []string{"si-2", "si-1", "si-3"} {
		inventory.Preempt(id, &v1alpha1.Preemption{Cluster: "eu", PriorityClass: "silver", Priority: 100})
	}
	for class, refused := range map[string]bool{"gold": false, "silver": true, "bronze": true, "": true, "none": true} {
		d, err := Place(Request{ID: "si-new", Class: class, Resources: cores(1)}, inventory.Snapshot())
		if (err != nil) != refused {
			t.Errorf("class %q: %v", class, err)
		}
		if refused && d.Rejections[0].Examples[0].Message != "room is being made there for si-1 of priority class silver" {
			t.Errorf("class %q: %+v", class, d.Rejections)
		}
	}
	if _, err := Place(Request{ID: "si-1", Class: "silver", Resources: cores(1)}, inventory.Snapshot()); err == nil {
		t.Error("si-1 takes its room while si-2 has room made there too")
	}
	fork := inventory.Fork()
	fork.Preempt("si-0", &v1alpha1.Preemption{Cluster: "eu"})
	if d, _ := Place(Request{ID: "si-new", Resources: cores(1)}, fork.Snapshot()); len(d.Rejections) != 1 || d.Rejections[0].Examples[0].Message != "room is being made there for si-0" {
		t.Errorf("for one without a class: %+v", d.Rejections)
	}
	inventory.Preempt("si-2", nil)
	inventory.Preempt("si-3", nil)
	if _, err := Place(Request{ID: "si-1", Class: "silver", Resources: cores(1)}, inventory.Snapshot()); err != nil {
		t.Errorf("si-1 does not take its own room: %v", err)
	}
}

// An instance leaves a cluster for the first, by name, of those for which it has to. Room on a cluster that has gone is
// nobody else's.
func TestPreempting(t *testing.T) {
	inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8)}})
	victims := func(names ...string) (all []v1alpha1.Victim) {
		for _, name := range names {
			all = append(all, v1alpha1.Victim{Instance: name})
		}
		return all
	}
	inventory.Preempt("si-3", &v1alpha1.Preemption{Cluster: "eu", Victims: victims("si-a", "si-b")})
	inventory.Preempt("si-2", &v1alpha1.Preemption{Cluster: "eu", Victims: victims("si-b")})
	inventory.Preempt("si-1", &v1alpha1.Preemption{Cluster: "an old one", Victims: victims("si-a", "si-b")})
	for _, row := range [][3]string{{"si-a", "eu", "si-3"}, {"si-b", "eu", "si-2"}, {"si-c", "eu", ""}, {"si-a", "an old one", "si-1"}, {"si-a", "us", ""}} {
		if by, p := inventory.Snapshot().Preempting(row[0], row[1]); by != row[2] || (p != nil) != (row[2] != "") || p != nil && p.Cluster != row[1] {
			t.Errorf("%s leaves %s for %q: %+v, want %q", row[0], row[1], by, p, row[2])
		}
	}
	inventory.Preempt("si-2", nil)
	inventory.Preempt("si-3", nil)
	if _, err := Place(Request{ID: "si-new", Resources: cores(1)}, inventory.Snapshot()); err != nil {
		t.Errorf("room is made on a cluster that has gone, and eu takes nothing: %v", err)
	}
}

// A cluster wakes a request that may displace others if it would have room without them, and only then: not if it would
// not take the request at all, if they are of no lower class, or if they hold too little. Requests with
// components displace nothing.
func TestWhoMayDisplaceOthersIsWokenByTheirClusters(t *testing.T) {
	for name, row := range map[string]struct {
		request  Request
		held     int64
		class    string
		cordoned bool
		wakes    bool
	}{
		"they hold enough":           {request: Request{Resources: cores(4)}, held: 4, class: "bronze", wakes: true},
		"they hold too little":       {request: Request{Resources: cores(8)}, held: 4, class: "bronze"},
		"they are of the same class": {request: Request{Resources: cores(4)}, held: 4, class: "gold"},
		"they are of none":           {request: Request{Resources: cores(4)}, held: 4},
		"the cluster is cordoned":    {request: Request{Resources: cores(4)}, held: 4, class: "bronze", cordoned: true},
		"they hold room for each":    {request: Request{Resources: cores(2), Replicas: 2}, held: 4, class: "bronze", wakes: true},
		"components":                 {request: Request{Components: []Component{{Name: "web", Resources: cores(4)}}}, held: 4, class: "bronze"},
	} {
		t.Run(name, func(t *testing.T) {
			eu := func(used int64) *Cluster {
				return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Cordoned: row.cordoned, Allocatable: cores(7), ForeignUse: cores(used)}
			}
			inventory, woken := watched(eu(3))
			inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
			inventory.Reserve(Holding{Instance: "si-other", Class: row.class, Held: map[string]Resources{"eu": cores(row.held)}})
			r := row.request
			r.ID, r.Class = "si-gold", "gold"
			if _, err := inventory.Place(r); err == nil {
				t.Fatal("it fits at once")
			}
			if p := Preempt(r, inventory.Snapshot()); (p != nil) != row.wakes {
				t.Errorf("room is made for it: %+v", p)
			}
			if woken(); row.wakes {
				inventory.UpsertCluster(eu(2))
			} else {
				inventory.UpsertCluster(eu(1))
			}
			if got := woken()["si-gold"]; (got > 0) != row.wakes {
				t.Errorf("it is woken %d times", got)
			}
		})
	}
}

// A preemption stands as long as its classes are as they were, and its cluster would take the
// request without the victims.
func TestPreemptionsThatNoLongerStand(t *testing.T) {
	eu := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8)}
	r := Request{ID: "si-gold", Class: "gold", Resources: cores(8)}
	for name, row := range map[string]struct {
		change   func(*Request, *v1alpha1.Preemption)
		preempts v1alpha1.Preempts
		stands   bool
	}{
		"as it was":                        {stands: true},
		"classes displace nobody any more": {preempts: v1alpha1.PreemptsNever},
		"the request's class is another":   {change: func(r *Request, _ *v1alpha1.Preemption) { r.Class = "silver" }},
		"the class has another value":      {change: func(_ *Request, p *v1alpha1.Preemption) { p.Priority = 999 }},
		"a victim is no lower":             {change: func(_ *Request, p *v1alpha1.Preemption) { p.Victims[0].PriorityClass = "gold" }},
		"a victim's class has gone":        {change: func(_ *Request, p *v1alpha1.Preemption) { p.Victims[0].PriorityClass = "tin" }},
		"one victim is not enough":         {change: func(_ *Request, p *v1alpha1.Preemption) { p.Victims = p.Victims[:1] }},
		"the request has grown":            {change: func(r *Request, _ *v1alpha1.Preemption) { r.Resources = cores(9) }},
		"the cluster has gone":             {change: func(_ *Request, p *v1alpha1.Preemption) { p.Cluster = "us" }},
	} {
		t.Run(name, func(t *testing.T) {
			if row.preempts == "" {
				row.preempts = v1alpha1.PreemptsAnyConsumer
			}
			inventory := stock([]*Cluster{eu})
			inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", row.preempts)}))
			for _, id := range []string{"si-1", "si-2"} {
				inventory.Reserve(Holding{Instance: id, Class: "bronze", Held: map[string]Resources{"eu": cores(4)}})
			}
			asked := r
			p := &v1alpha1.Preemption{Cluster: "eu", PriorityClass: "gold", Priority: 1000, Victims: []v1alpha1.Victim{
				{Instance: "si-1", PriorityClass: "bronze"}, {Instance: "si-2", PriorityClass: "bronze"},
			}}
			if row.change != nil {
				row.change(&asked, p)
			}
			if inventory.Snapshot().Stands(asked, p) != row.stands {
				t.Errorf("it stands: %t", !row.stands)
			}
		})
	}
}
