package placement

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// roomPolicies let instances of plan p<n> move together with at most n − 1 others.
func roomPolicies(most ...int32) Policies {
	var all []v1alpha1.PlacementPolicy
	for _, n := range most {
		p := v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PolicyMatch{Plans: []string{fmt.Sprint("p", n)}}, MakeRoom: &v1alpha1.MakeRoom{AtMost: n},
		}}
		p.Name = fmt.Sprint("room-", n)
		all = append(all, p)
	}
	return CompilePolicies(all)
}

// hasRoom reports whether a request fits by what is free: on one cluster, or with its replicas on those that take most of
// them. It knows sums, selectors and readiness.
func hasRoom(r Request, on *Cluster, fleet []*Cluster, free map[string]Resources) bool {
	replicas := func(c *Cluster) (n int64) {
		if !c.Ready || r.Selector != nil && !r.Selector.Matches(c.Labels) {
			return 0
		}
		for n < int64(max(r.Replicas, 1)) {
			for name := range r.Resources {
				if amount := r.Common[name] + (n+1)*r.Resources[name]; amount > 0 && free[c.Name][name] < amount {
					return n
				}
			}
			n++
		}
		return n
	}
	if r.Replicas == 0 {
		return replicas(on) > 0
	}
	var all []int64
	for _, c := range fleet {
		if n := replicas(c); n > 0 {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	clusters := min(r.Clusters, r.Replicas)
	if len(all) < clusters {
		return false
	}
	sum := int64(0)
	for _, n := range all[len(all)-clusters:] {
		sum += n
	}
	return sum >= int64(r.Replicas)
}

// fewestMoves returns, by trying all clusters, sets of instances and destinations, how few moves make room; 0 if none do.
// It knows the policies' numbers and hasRoom, and nothing of the engine's search.
func fewestMoves(r Request, fleet []*Cluster, all []Request, most map[string]int) (fewest int) {
	free := map[string]Resources{}
	for _, c := range fleet {
		free[c.Name] = Resources{}
		free[c.Name].Add(c.Allocatable, 1)
	}
	for _, one := range all {
		free[one.Current[0]].Add(one.Resources, -1)
	}
	for _, c := range fleet {
		var search func(from, moved, limit int)
		search = func(from, moved, limit int) {
			if moved > 0 && moved <= limit && hasRoom(r, c, fleet, free) && (fewest == 0 || moved < fewest) {
				fewest = moved
			}
			for i := from; i < len(all); i++ {
				one := all[i]
				if one.Current[0] != c.Name || most[one.ID] == 0 {
					continue
				}
				for _, to := range fleet {
					if to == c || !hasRoom(one, to, fleet, free) {
						continue
					}
					free[to.Name].Add(one.Resources, -1)
					free[c.Name].Add(one.Resources, 1)
					search(i+1, moved+1, min(limit, most[one.ID]))
					free[to.Name].Add(one.Resources, 1)
					free[c.Name].Add(one.Resources, -1)
				}
			}
		}
		search(0, 0, 8)
	}
	return fewest
}

// withCores returns a cluster that is labelled by its name.
func withCores(name string, has int64) *Cluster {
	return &Cluster{Name: name, Ready: true, AccessVerified: true, Allocatable: cores(has), Labels: labels.Set{v1alpha1.LabelCluster: name}}
}

// movableAmong returns the requests by name.
func movableAmong(all []Request) Movable {
	return func(instance string) (Request, bool) {
		i := slices.IndexFunc(all, func(r Request) bool { return r.ID == instance })
		if i < 0 {
			return Request{}, false
		}
		return all[i], true
	}
}

func TestMakeRoomFindsTheFewestMoves(t *testing.T) {
	asked, made := 0, map[int]int{}
	judge := func(t *rapid.T) {
		drawn := func(label string, most int64) Resources {
			return Resources{corev1.ResourceCPU: rapid.Int64Range(0, most).Draw(t, label), corev1.ResourceMemory: rapid.Int64Range(0, most).Draw(t, label)}
		}
		selector := func() labels.Selector {
			if rapid.IntRange(0, 3).Draw(t, "selects") > 0 {
				return nil
			}
			return labels.SelectorFromSet(labels.Set{"set": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "set")})
		}
		var fleet []*Cluster
		var all []Request
		most := map[string]int{}
		for c := range rapid.IntRange(2, 4).Draw(t, "clusters") {
			name := fmt.Sprintf("cluster-%d", c)
			cluster := &Cluster{
				Name: name, Ready: rapid.IntRange(0, 9).Draw(t, "ready") > 0, AccessVerified: true, Allocatable: drawn("free", 6),
				Labels: labels.Set{v1alpha1.LabelCluster: name, "set": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "in set")},
			}
			for i := range rapid.IntRange(1, 4).Draw(t, "instances") {
				n := rapid.SampledFrom([]int{0, 1, 2, 3, 3, 3}).Draw(t, "most")
				one := Request{
					ID: fmt.Sprintf("si-%d-%d", c, i), Resources: drawn("held", 4), Selector: selector(), Current: []string{name}, Free: true,
					Consumer: Consumer{Platform: "cf", Plan: fmt.Sprint("p", n)},
				}
				most[one.ID] = n
				all = append(all, one)
				cluster.Allocatable.Add(one.Resources, 1)
			}
			fleet = append(fleet, cluster)
		}
		in := stock(fleet)
		in.SetPolicies(roomPolicies(1, 2, 3))
		for _, one := range all {
			in.Reserve(Holding{Instance: one.ID, Consumer: one.Consumer, Held: map[string]Resources{one.Current[0]: one.Resources}})
		}
		r := Request{ID: "si-new", Consumer: Consumer{Platform: "cf"}, Resources: drawn("asked", 9), Selector: selector()}
		if rapid.IntRange(0, 2).Draw(t, "divided") == 0 {
			r.Resources, r.Common = drawn("each", 4), drawn("common", 1)
			r.Replicas, r.Clusters = rapid.IntRange(1, 5).Draw(t, "replicas"), rapid.IntRange(1, 3).Draw(t, "on clusters")
		}
		if _, err := Place(r, in.Snapshot()); err == nil {
			return
		}
		asked++
		got, want := MakeRoom(r, in, movableAmong(all)), fewestMoves(r, fleet, all, most)
		if again := MakeRoom(r, in, movableAmong(all)); !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v, and then %+v", got, again)
		}
		if got == nil {
			if want > 0 {
				t.Fatalf("no moves, although %d make room", want)
			}
			return
		}
		made[len(got.Victims)]++
		if len(got.Victims) != want {
			t.Fatalf("%d moves make room, and it found %+v", want, got)
		}
		if !MovesStand(r, in, got, movableAmong(all)) {
			t.Fatalf("%+v does not stand", got)
		}
		for i, v := range got.Victims {
			one, _ := movableAmong(all)(v.Instance)
			one.Free, one.Current, one.Leaving = false, nil, []string{got.Cluster}
			one.Selector, _ = OnlyClusters(one.Selector, v.To...)
			d, err := in.Place(one) // and it still holds what it leaves
			if err != nil {
				t.Fatalf("%s does not fit where it is to move: %v", v.Instance, err)
			}
			if !MovesStand(r, in, got, movableAmong(all)) {
				t.Fatalf("%+v does not stand while %s moves", got, v.Instance)
			}
			for _, c := range fleet {
				for name := range c.Allocatable {
					if free := in.Snapshot().Free(c.Name, name); free < 0 {
						t.Fatalf("after %d of %+v, %s has %d %s", i+1, got.Victims, c.Name, free, name)
					}
				}
			}
			in.Reserve(Holding{Instance: v.Instance, Consumer: one.Consumer, Held: map[string]Resources{d.Placements[0].Cluster: one.Resources}})
		}
		if d, err := Place(r, in.Snapshot()); err != nil || !d.Uses(got.Cluster) {
			t.Fatalf("after all moves of %+v: %+v, %v", got, d, err)
		}
	}
	for range 20 { // few of the refused requests get room
		rapid.Check(t, judge)
	}
	t.Logf("of %d refused requests, so many got room by so many moves: %v", asked, made)
	if len(made) == 0 {
		t.Error("none; the fleets prove nothing")
	}
}

// A pod that fits on no node gets the place of one that is at least as large and can move.
func TestMakeRoomForALargePod(t *testing.T) {
	for running, makes := range map[int64]bool{4: true, 3: false} {
		gpus := func(n int64) Resources { return Resources{testGPU: n} }
		cluster := func(name string, all, foreign int64, free ...Resources) *Cluster {
			return &Cluster{
				Name: name, Ready: true, AccessVerified: true, Labels: labels.Set{v1alpha1.LabelCluster: name},
				Allocatable: gpus(all), ForeignUse: gpus(foreign), Holes: HolesOf(free),
			}
		}
		// Three nodes of four: one has the instance's pod, and two have half of their GPUs used by others.
		in := stock([]*Cluster{cluster("full", 12, 4, gpus(4-running), gpus(2), gpus(2)), cluster("other", 4, 0, gpus(4))})
		in.SetPolicies(roomPolicies(1))
		runs := Request{ID: "si-1", Consumer: Consumer{Plan: "p1"}, Resources: gpus(running), LargestPods: []Resources{gpus(running)}, Current: []string{"full"}}
		in.Reserve(Holding{Instance: runs.ID, Consumer: runs.Consumer, Held: map[string]Resources{"full": runs.Resources}, Pods: map[string][]Resources{"full": runs.LargestPods}})
		r := Request{ID: "si-new", Resources: gpus(4), LargestPods: []Resources{gpus(4)}, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelCluster: "full"})}
		_, err := Place(r, in.Snapshot())
		why, _ := AsUnplaceable(err)
		if why == nil || !slices.ContainsFunc(why.Decision.Rejections, func(r Rejection) bool { return r.Reason == ReasonTooFragmented }) {
			t.Fatalf("%v", err)
		}
		p := MakeRoom(r, in, movableAmong([]Request{runs}))
		if makes != (p != nil) {
			t.Fatalf("an instance with a pod of %d: %+v", running, p)
		}
		if p != nil && (p.Cluster != "full" || len(p.Victims) != 1 || !slices.Equal(p.Victims[0].To, []string{"other"}) || !MovesStand(r, in, p, movableAmong([]Request{runs}))) {
			t.Errorf("%+v", p)
		}
	}
}

// BenchmarkMakeRoom asks for most of a cluster of a fleet whose clusters are at least half full.
func BenchmarkMakeRoom(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		for name, asked := range map[string]int64{"found": 14000, "in_vain": 60000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				in := NewInventory()
				var holdings []Holding
				all := map[string]Request{}
				for i := range n {
					cluster := fmt.Sprintf("cluster-%05d", i)
					in.UpsertCluster(&Cluster{Name: cluster, Ready: true, AccessVerified: true, Allocatable: cores(16 + 48*int64(i%2)), Labels: labels.Set{v1alpha1.LabelCluster: cluster}})
					for k := range 8 {
						r := Request{ID: fmt.Sprintf("si-%05d-%d", i, k), Consumer: Consumer{Platform: "cf", Plan: "p8"}, Resources: cores(1 + 6*int64(i%2)), Current: []string{cluster}, Free: true}
						if name == "in_vain" { // none fits anywhere else
							r.Selector, _ = OnlyClusters(nil, cluster)
						}
						all[r.ID] = r
						holdings = append(holdings, Holding{Instance: r.ID, Consumer: r.Consumer, Held: map[string]Resources{cluster: r.Resources}})
					}
				}
				in.ReserveAll(holdings)
				in.SetPolicies(roomPolicies(8))
				r := Request{ID: "si-bench", Resources: Resources{corev1.ResourceCPU: asked}}
				movable := func(instance string) (Request, bool) { r, ok := all[instance]; return r, ok }
				for b.Loop() {
					if p := MakeRoom(r, in, movable); (p != nil) != (name == "found") {
						b.Fatalf("%+v", p)
					}
				}
			})
		}
	}
}

// An instance that is on more clusters than it needs could leave one without another in its place. That is no move.
func TestMakeRoomMovesNobodyToNowhere(t *testing.T) {
	inventory := stock([]*Cluster{withCores("a", 4), withCores("b", 2)})
	inventory.SetPolicies(roomPolicies(1))
	spare := Request{ID: "si-1", Consumer: Consumer{Plan: "p1"}, Resources: cores(2), Clusters: 1, Current: []string{"a", "b"}}
	inventory.Reserve(Holding{Instance: spare.ID, Consumer: spare.Consumer, Held: map[string]Resources{"a": cores(2), "b": cores(2)}})
	if p := MakeRoom(Request{ID: "si-new", Resources: cores(4)}, inventory, movableAmong([]Request{spare})); p != nil {
		t.Errorf("%+v", p)
	}
}

// Of several instances each of which would make enough room, the smallest moves. Its class and that of the order are in
// the status, and the moves stand as long as the order's class is as it was.
func TestMakeRoomMovesTheSmallest(t *testing.T) {
	inventory := stock([]*Cluster{withCores("a", 9), withCores("b", 4)})
	classes := CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsNever)})
	inventory.SetPolicies(slices.Concat(roomPolicies(1), classes))
	var all []Request
	for i, n := range []int64{4, 3, 2} {
		r := Request{ID: fmt.Sprint("si-", i), Consumer: Consumer{Plan: "p1"}, Resources: cores(n), Current: []string{"a"}, Class: []string{"", "bronze", ""}[i]}
		all = append(all, r)
		inventory.Reserve(Holding{Instance: r.ID, Consumer: r.Consumer, Held: map[string]Resources{"a": r.Resources}})
	}
	r := Request{ID: "si-new", Resources: cores(3), Class: "silver", Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelCluster: "a"})}
	p := MakeRoom(r, inventory, movableAmong(all))
	if p == nil || len(p.Victims) != 1 || p.Victims[0].Instance != "si-1" || p.Victims[0].PriorityClass != "bronze" || p.Victims[0].Priority != 10 {
		t.Fatalf("%+v", p)
	}
	if p.PriorityClass != "silver" || p.Priority != 100 || p.Message == "" {
		t.Errorf("it is for class %q (%d): %q", p.PriorityClass, p.Priority, p.Message)
	}
	for name, row := range map[string]struct {
		change func(*Request, *v1alpha1.Preemption)
		stands bool
	}{
		"as it was":                 {func(*Request, *v1alpha1.Preemption) {}, true},
		"the order has none now":    {func(r *Request, _ *v1alpha1.Preemption) { r.Class = "" }, false},
		"it has another":            {func(r *Request, _ *v1alpha1.Preemption) { r.Class = "bronze" }, false},
		"it has another value":      {func(_ *Request, p *v1alpha1.Preemption) { p.Priority = 99 }, false},
		"it had none":               {func(_ *Request, p *v1alpha1.Preemption) { p.PriorityClass, p.Priority = "", 0 }, false},
		"it had none, and has none": {func(r *Request, p *v1alpha1.Preemption) { r.Class, p.PriorityClass, p.Priority = "", "", 0 }, true},
		"another is to move":        {func(_ *Request, p *v1alpha1.Preemption) { p.Victims[0].Instance = "si-9" }, false},
		"it is to move elsewhere":   {func(_ *Request, p *v1alpha1.Preemption) { p.Victims[0].To = []string{"gone"} }, false},
		"nor to what is no name":    {func(_ *Request, p *v1alpha1.Preemption) { p.Victims[0].To = []string{"no name"} }, false},
		"more than the policy lets": {func(_ *Request, p *v1alpha1.Preemption) {
			p.Victims = append(p.Victims, v1alpha1.Victim{Instance: "si-2", To: []string{"b"}})
		}, false},
	} {
		asked, room := r, p.DeepCopy()
		row.change(&asked, room)
		if got := MovesStand(asked, inventory, room, movableAmong(all)); got != row.stands {
			t.Errorf("%s: they stand: %t", name, got)
		}
	}
	inventory.Release("si-0") // so that there is room anyway
	for to, stands := range map[string]bool{"b": true, "gone": false, "no name": false} {
		if p.Victims[0].To = []string{to}; MovesStand(r, inventory, p, movableAmong(all)) != stands {
			t.Errorf("a move to %s: it stands: %t", to, !stands)
		}
	}
}

// Room is made for as many replicas as the other clusters do not take. One that takes a replica, and not enough of them,
// says how many are missing.
func TestRoomForReplicas(t *testing.T) {
	for name, row := range map[string]struct {
		order   Request
		moves   []string
		message string
	}{
		"three on one cluster":         {Request{Replicas: 3, Clusters: 1}, []string{"si-2"}, "needs room for 3 of the 3 replicas"},
		"four, of which one elsewhere": {Request{Replicas: 4, Clusters: 2}, []string{"si-2"}, "needs room for 3 of the 4 replicas"},
		"six, of which one elsewhere":  {Request{Replicas: 6, Clusters: 2}, []string{"si-1", "si-2"}, "needs room for 5 of the 6 replicas"},
		"seven":                        {Request{Replicas: 7, Clusters: 2}, nil, ""},
		"three in each group":          {Request{Replicas: 4, Spread: &Spread{By: []string{v1alpha1.LabelCluster}, Each: true}}, nil, ""},
	} {
		spare := withCores("c", 3) // takes only those that move
		spare.Taints = []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}}
		inventory := stock([]*Cluster{withCores("a", 5), withCores("b", 1), spare})
		inventory.SetPolicies(roomPolicies(2))
		var all []Request
		for i, n := range []int64{2, 1} {
			one := Request{ID: fmt.Sprint("si-", i+1), Consumer: Consumer{Plan: "p2"}, Resources: cores(n), Current: []string{"a"}, Free: true}
			one.Tolerations = []corev1.Toleration{{Key: "spare", Operator: corev1.TolerationOpExists}}
			all = append(all, one)
			inventory.Reserve(Holding{Instance: one.ID, Consumer: one.Consumer, Held: map[string]Resources{"a": one.Resources}})
		}
		r := row.order
		r.ID, r.Resources = "si-new", cores(1)
		p := MakeRoom(r, inventory, movableAmong(all))
		if p == nil {
			if row.moves != nil {
				t.Errorf("%s: no room is made", name)
			}
			continue
		}
		var moves []string
		for _, v := range p.Victims {
			moves = append(moves, v.Instance)
		}
		if slices.Sort(moves); !slices.Equal(moves, row.moves) || p.Cluster != "a" || p.Message != row.message {
			t.Errorf("%s: %v leave %s: %s", name, moves, p.Cluster, p.Message)
		}
	}
}
