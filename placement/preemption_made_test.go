package placement

import (
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// Room that is being made for somebody is left alone by whoever is not more important: by the
// same class too, and by who has none.
func TestRoomThatIsBeingMade(t *testing.T) {
	eu := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8)}
	inventory := stock([]*Cluster{eu})
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
	for _, id := range []string{"si-2", "si-1", "si-3"} {
		inventory.Preempt(id, &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu"}, PriorityClass: "silver", Priority: 100})
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
	fork.Preempt("si-0", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu"}})
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
	inventory.Preempt("si-3", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu", Victims: victims("si-a", "si-b")}})
	inventory.Preempt("si-2", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu", Victims: victims("si-b")}})
	inventory.Preempt("si-1", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "an old one", Victims: victims("si-a", "si-b")}})
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
// not take the request or one of its components at all, if they are of no lower class, or if they hold too little.
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
		"a component":                {request: Request{Components: []Component{{Name: "web", Resources: cores(4)}}}, held: 4, class: "bronze", wakes: true},
		"a component that is larger": {request: Request{Components: []Component{{Name: "web", Resources: cores(8)}}}, held: 4, class: "bronze"},
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
			p := &v1alpha1.Preemption{PriorityClass: "gold", Priority: 1000, Room: v1alpha1.Room{Cluster: "eu", Victims: []v1alpha1.Victim{
				{Instance: "si-1", PriorityClass: "bronze"}, {Instance: "si-2", PriorityClass: "bronze"},
			}}}
			if row.change != nil {
				row.change(&asked, p)
			}
			if inventory.Snapshot().Stands(asked, p) != row.stands {
				t.Errorf("it stands: %t", !row.stands)
			}
		})
	}
}

// An instance stays where room is made for a higher priority, and does not grow into it: by a new decision or by one that
// was made before. With a higher priority it does.
func TestWhoGrowsTakesNoRoomThatIsMadeForAnother(t *testing.T) {
	for name, row := range map[string]struct {
		asks  int64
		class string
		grows bool
	}{
		"as much as before": {4, "", true}, "more": {6, "", false}, "more, with the same class": {6, "silver", false}, "more, with a higher class": {6, "gold", true},
	} {
		inventory := stock([]*Cluster{withCores("eu", 12)})
		inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsNever)}))
		inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"eu": cores(4)}})
		r := Request{ID: "si", Resources: cores(row.asks), Class: row.class, Current: []string{"eu"}}
		before := inventory.Snapshot()
		decided, err := Place(r, before)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		inventory.Preempt("si-other", &v1alpha1.Preemption{PriorityClass: "silver", Priority: 100, Room: v1alpha1.Room{Cluster: "eu"}})
		now := inventory.Snapshot()
		if now.allows(r, decided, before) != row.grows {
			t.Errorf("%s: an earlier decision is made is %t", name, !row.grows)
		}
		if _, err := Place(r, now); (err == nil) != row.grows {
			t.Errorf("%s: %v", name, err)
		}
	}
}
