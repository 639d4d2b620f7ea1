package placement

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func cores(n int64) Resources { return Resources{corev1.ResourceCPU: n * 1000} }

// watched returns an inventory, and a function that returns how often each instance was woken
// since it was called last.
func watched(fleet ...*Cluster) (*Inventory, func() map[string]int) {
	inventory := stock(fleet)
	woken := map[string]int{}
	inventory.OnWake(func(instance string) { woken[instance]++ })
	return inventory, func() map[string]int {
		since := woken
		woken = map[string]int{}
		return since
	}
}

// An instance with a cluster in each group learns of every cluster that changes the groups, and
// of no other.
func TestWhoFollowsGroupsIsWoken(t *testing.T) {
	const label = "country"
	eu := func(labels map[string]string, room int64) *Cluster {
		return &Cluster{Name: "eu", Ready: true, Labels: labels, Allocatable: cores(room)}
	}
	inventory, woken := watched()
	inventory.Follow("si-each", []string{"provider", label})
	for _, row := range []struct {
		name   string
		change func()
		wakes  bool
	}{
		{"a cluster comes", func() { inventory.UpsertCluster(eu(map[string]string{label: "DE"}, 1)) }, true},
		{"it grows", func() { inventory.UpsertCluster(eu(map[string]string{label: "DE"}, 2)) }, false},
		{"another label changes", func() { inventory.UpsertCluster(eu(map[string]string{label: "DE", "other": "x"}, 2)) }, false},
		{"its value changes", func() { inventory.UpsertCluster(eu(map[string]string{label: "FR"}, 2)) }, true},
		{"the label goes", func() { inventory.UpsertCluster(eu(nil, 2)) }, true},
		{"it comes back without a value", func() { inventory.UpsertCluster(eu(map[string]string{label: ""}, 2)) }, true},
		{"the cluster goes", func() { inventory.DeleteCluster("eu") }, true},
		{"one without the labels comes", func() { inventory.UpsertCluster(eu(nil, 2)) }, true},
		{"it goes, too", func() { inventory.DeleteCluster("eu") }, true},
		{"it goes again", func() { inventory.DeleteCluster("eu") }, false},
		{"nothing is followed any more", func() {
			inventory.Follow("si-each", nil)
			inventory.UpsertCluster(eu(map[string]string{label: "DE"}, 1))
		}, false},
	} {
		row.change()
		if got := woken()["si-each"]; (got > 0) != row.wakes {
			t.Errorf("%s: woken %d times", row.name, got)
		}
	}
}

// What waits is woken once when a cluster begins to accept it. What needs several replicas is woken whenever
// a cluster takes one more, and what has several components whenever a cluster that accepts one of them has
// more left, because they are counted together.
func TestWhoWaitsIsWokenByRoom(t *testing.T) {
	eu := func(room int64) *Cluster {
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(room)}
	}
	inventory, woken := watched(eu(1))
	for id, r := range map[string]Request{
		"si-one":        {Resources: cores(4)},
		"si-replicas":   {Resources: cores(2), Replicas: 8},
		"si-components": {Components: []Component{{Name: "db", Resources: cores(8)}, {Name: "web", Resources: cores(2)}}},
	} {
		r.ID = id
		if _, err := inventory.Place(inventory.Snapshot().Govern(r, Consumer{Platform: "cf"})); err == nil {
			t.Fatalf("%s fits", id)
		}
	}
	woken()
	for _, row := range []struct {
		room                      int64
		one, replicas, components int
	}{
		{room: 1},
		{room: 2, replicas: 1},
		{room: 3},
		{room: 4, one: 1, replicas: 1},
		{room: 5},
		{room: 5},
		{room: 3},
		{room: 4, one: 1, replicas: 1},
	} {
		inventory.UpsertCluster(eu(row.room))
		got := woken()
		if got["si-one"] != row.one || got["si-replicas"] != row.replicas {
			t.Errorf("with %d cores: %v", row.room, got)
		}
	}
	inventory.UpsertCluster(eu(10))
	if got := woken(); got["si-components"] == 0 {
		t.Errorf("the components fit, and are not woken: %v", got)
	}
}

// A preemption's cluster is looked at again whenever it changes, and when it goes.
func TestWhoMakesRoomIsWokenByItsCluster(t *testing.T) {
	eu := func(room int64) *Cluster {
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(room)}
	}
	inventory, woken := watched(eu(2), &Cluster{Name: "us", Ready: true, AccessVerified: true, Allocatable: cores(1)})
	if _, err := inventory.Place(Request{ID: "si-gold", Resources: cores(4)}); err == nil {
		t.Fatal("it fits")
	}
	inventory.Preempt("si-gold", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu", Victims: []v1alpha1.Victim{{Instance: "si-bronze"}}}})
	if got := woken(); got["si-bronze"] != 1 || got["si-gold"] != 0 {
		t.Errorf("when room is to be made: %v", got)
	}
	if inventory.UpsertCluster(eu(3)); woken()["si-gold"] != 1 {
		t.Error("its cluster changed, and it slept on")
	}
	if inventory.UpsertCluster(&Cluster{Name: "us", Ready: true, AccessVerified: true, Allocatable: cores(2)}); woken()["si-gold"] != 0 {
		t.Error("it is woken by another cluster")
	}
	if inventory.DeleteCluster("us"); woken()["si-gold"] != 0 {
		t.Error("it is woken when another cluster goes")
	}
	if inventory.DeleteCluster("eu"); woken()["si-gold"] != 1 {
		t.Error("its cluster went, and it slept on")
	}
	if inventory.Wake("si-gold"); woken()["si-gold"] != 1 {
		t.Error("it is called, and slept on")
	}
}

// An instance that is placed, or whose reservations are set, waits no longer.
func TestWhoNoLongerWaitsIsNotWoken(t *testing.T) {
	eu := func(room int64) *Cluster {
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(room)}
	}
	r := Request{ID: "si", Resources: cores(4)}
	for name, end := range map[string]func(*Inventory){
		"placed": func(i *Inventory) {
			if _, err := i.Place(r); err != nil {
				t.Fatal(err)
			}
		},
		"set":      func(i *Inventory) { i.Reserve(Holding{Instance: "si", Held: map[string]Resources{"eu": cores(1)}}) },
		"released": func(i *Inventory) { i.Reserve(Holding{Instance: "si"}) },
	} {
		inventory, woken := watched(eu(1))
		if _, err := inventory.Place(r); err == nil {
			t.Fatal("it fits")
		}
		inventory.UpsertCluster(eu(4))
		end(inventory)
		if woken()["si"] == 0 {
			t.Errorf("%s: it was not woken while it waited", name)
		}
		inventory.UpsertCluster(eu(3))
		if inventory.UpsertCluster(eu(16)); woken()["si"] != 0 {
			t.Errorf("%s: it is woken, and waits no longer", name)
		}
	}
}

// A rise of what is free helps whoever waits for replicas if one more fits beside what they have in common.
func TestGains(t *testing.T) {
	w := &waiter{Request: Request{Resources: cores(2), Common: cores(1)}}
	for _, row := range []struct {
		before, now int64
		want        bool
	}{{0, 2, false}, {2, 3, true}, {3, 4, false}, {4, 5, true}, {3, 3, false}, {5, 3, false}} {
		if got := w.gains(corev1.ResourceCPU, row.before*1000, row.now*1000); got != row.want {
			t.Errorf("from %d to %d: %t", row.before, row.now, got)
		}
	}
	w.Common[corev1.ResourceMemory] = 3 // of which replicas take nothing
	for now, want := range map[int64]bool{2: false, 3: true, 4: true} {
		if got := w.gains(corev1.ResourceMemory, 0, now); got != want {
			t.Errorf("to %d of what they have in common: %t", now, got)
		}
	}
}

// Of several that ask for the same, those that go on waiting are woken when the others no longer do.
func TestWhoAsksForTheSameWaitsAlone(t *testing.T) {
	eu := func(room, onOneNode int64) *Cluster {
		return &Cluster{
			Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(room), Holes: HolesOf([]Resources{cores(onOneNode), cores(1)}),
			Currency: "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: 1},
		}
	}
	for name, row := range map[string]struct {
		request Request
		event   *Cluster
	}{
		"room":                   {Request{Resources: cores(3)}, eu(4, 3)},
		"a node":                 {Request{Resources: cores(3), LargestPods: []Resources{cores(3)}}, eu(4, 3)},
		"only a node":            {Request{Resources: cores(2), LargestPods: []Resources{cores(2)}}, eu(2, 2)},
		"a price":                {Request{Resources: cores(3), MaxPrice: &Price{"EUR", 9}}, eu(4, 3)},
		"nothing of it":          {Request{Resources: Resources{corev1.ResourceMemory: 1}}, &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: Resources{corev1.ResourceMemory: 1}}},
		"a rule, as it is":       {Request{Resources: cores(3), Rules: []Rule{onlyLarge}}, eu(4, 3)},
		"several replicas":       {Request{Resources: cores(3), Replicas: 1}, eu(4, 3)},
		"a cluster that is new":  {Request{Resources: cores(3)}, &Cluster{Name: "us", Ready: true, AccessVerified: true, Allocatable: cores(4)}},
		"a resource that is new": {Request{Resources: Resources{testGPU: 1}}, &Cluster{Name: "us", Ready: true, AccessVerified: true, Allocatable: Resources{testGPU: 1}}},
	} {
		inventory, woken := watched(eu(2, 1))
		for _, id := range []string{"si-1", "si-2", "si-3"} {
			r := row.request
			r.ID = id
			if _, err := inventory.Place(r); err == nil {
				t.Fatalf("%s: it fits at once", name)
			}
		}
		inventory.Release("si-1")
		inventory.Release("si-3")
		inventory.UpsertCluster(&Cluster{Name: "full", Ready: true, AccessVerified: true, Allocatable: cores(1)}) // which helps none
		woken()
		inventory.UpsertCluster(row.event)
		if got := woken(); got["si-2"] == 0 || got["si-1"]+got["si-3"] > 0 {
			t.Errorf("%s: woken are %v", name, got)
		}
	}
}

// A cluster on which the others are wakes who has to be near them or away from them when its labels change, and by no
// other change.
func TestWhoIsApartSleepsOnIfNoLabelChanges(t *testing.T) {
	a1 := func(change func(*Cluster)) *Cluster {
		c := inRegion("a1", "a", 4)
		if c.Cordoned = true; change != nil {
			change(c)
		}
		return c
	}
	consumer := Consumer{Platform: "cf", Space: "s"}
	inventory, woken := watched(a1(nil), inRegion("a2", "a", 4))
	inventory.Reserve(Holding{Instance: "si-other", Consumer: consumer, Held: map[string]Resources{"a1": {corev1.ResourceCPU: 1}}})
	r := Request{ID: "si", Consumer: consumer, Resources: Resources{corev1.ResourceCPU: 1}, Affinity: []v1alpha1.Affinity{{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: true}}}
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed beside the other one")
	}
	if inventory.UpsertCluster(a1(func(c *Cluster) { c.AccessVerified = false })); woken()["si"] != 0 {
		t.Error("it is woken by a change of another kind")
	}
	if inventory.UpsertCluster(a1(func(c *Cluster) { c.Labels[v1alpha1.LabelRegion] = "b" })); woken()["si"] == 0 {
		t.Error("the other one is elsewhere now, and it slept on")
	}
}

// A decision that depends on other clusters than those chosen is made again if any cluster has changed in more than
// numbers; others are not.
func TestADecisionStandsWhileOtherClustersChange(t *testing.T) {
	byRegion := &Spread{By: []string{v1alpha1.LabelRegion}, Each: true}
	for name, row := range map[string]struct {
		spread *Spread
		change func(*Inventory)
		stands bool
	}{
		"nothing changes":                      {byRegion, func(*Inventory) {}, true},
		"another cluster grows":                {byRegion, func(inv *Inventory) { inv.UpsertCluster(inRegion("b2", "b", 2)) }, true},
		"another cluster changes":              {byRegion, func(inv *Inventory) { inv.UpsertCluster(inRegion("b2", "c", 1)) }, false},
		"another cluster comes":                {byRegion, func(inv *Inventory) { inv.UpsertCluster(inRegion("c1", "c", 1)) }, false},
		"all others go":                        {byRegion, func(inv *Inventory) { inv.DeleteCluster("b2") }, false},
		"another page comes":                   {byRegion, manyMore, false},
		"without a group, another one changes": {nil, func(inv *Inventory) { inv.UpsertCluster(inRegion("b2", "c", 1)) }, true},
		"without a group, another page comes":  {nil, manyMore, true},
		"its own cluster changes":              {nil, func(inv *Inventory) { inv.UpsertCluster(inRegion("a1", "b", 8)) }, false},
		"its own cluster goes":                 {nil, func(inv *Inventory) { inv.DeleteCluster("a1") }, false},
		"its room is taken": {nil, func(inv *Inventory) {
			inv.Reserve(Holding{Instance: "si-other", Held: map[string]Resources{"a1": {corev1.ResourceCPU: 8}}})
		}, false},
		"its quota is used up": {nil, func(inv *Inventory) {
			inv.Reserve(Holding{Instance: "si-other", Consumer: Consumer{Platform: "cf"}, Held: map[string]Resources{"b1": {corev1.ResourceCPU: 2}}})
		}, false},
		"its budget is used up": {nil, func(inv *Inventory) {
			inv.Reserve(Holding{Instance: "si-other", Consumer: Consumer{Platform: "cf"}, Held: map[string]Resources{"b1": {}}, Prices: map[string]Resources{"b1": {priceIn("EUR"): 99}}})
		}, false},
		"room is made there for another one": {nil, func(inv *Inventory) {
			inv.Preempt("si-other", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "a1"}})
		}, false},
	} {
		inventory := stock([]*Cluster{inRegion("a1", "a", 8), inRegion("b1", "b", 4), inRegion("b2", "b", 1)})
		inventory.SetPolicies(Policies{{Name: "quota", Quota: &v1alpha1.Quota{
			Per: v1alpha1.ScopePlatform, Limits: Resources{corev1.ResourceCPU: 2}.List(), Budget: &v1alpha1.Price{Currency: "EUR", PerHour: resource.NewScaledQuantity(100, resource.Nano)},
		}}})
		r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Spread: row.spread, Weights: v1alpha1.ScoreWeights{Balance: 1}}
		if row.spread == nil {
			own := *inventory.Snapshot().Cluster("a1")
			own.Currency, own.Prices = "EUR", map[corev1.ResourceName]int64{corev1.ResourceCPU: 5000}
			inventory.UpsertCluster(&own)
		}
		r = inventory.Snapshot().Govern(r, Consumer{Platform: "cf"})
		before := inventory.Snapshot()
		d, err := Place(r, before)
		if err != nil || !d.Uses("a1") {
			t.Fatalf("%s: it is on %+v: %v", name, d.Placements, err)
		}
		row.change(inventory)
		if got := inventory.Snapshot().allows(r, d, before); got != row.stands {
			t.Errorf("%s: it stands: %t", name, got)
		}
	}
}

// manyMore adds a page of clusters.
func manyMore(inventory *Inventory) {
	for i := range pageRows {
		inventory.UpsertCluster(inRegion(fmt.Sprintf("more-%03d", i), "b", 1))
	}
}

// A cluster that took a request before a change, and takes it after, is no reason to wake it: it needs two.
func TestWhoNeedsMoreClustersSleepsOn(t *testing.T) {
	a1 := func(room int64, region string) *Cluster { return inRegion("a1", region, room) }
	inventory, woken := watched(a1(4, "a"))
	r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 2}, Clusters: 2}
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed on one")
	}
	for what, change := range map[string]*Cluster{"another region": a1(4, "b"), "more room": a1(8, "b"), "no region": a1(8, "")} {
		if inventory.UpsertCluster(change); woken()["si"] != 0 {
			t.Errorf("%s: it is woken", what)
		}
	}
	if inventory.UpsertCluster(inRegion("a2", "a", 2)); woken()["si"] != 1 {
		t.Error("a second one comes, and it slept on")
	}
}

// A request waits on while the reservations are read again, also one that no cluster takes because a rule of it does not
// compile.
func TestWhoWaitsDuringARecovery(t *testing.T) {
	inventory, woken := watched(inRegion("eu", "eu", 1))
	broken := Rule{By: "policy", Name: "rule", broken: "does not compile"}
	for id, r := range map[string]Request{"si-1": {}, "si-2": {Rules: []Rule{broken}}} {
		r.ID, r.Resources = id, Resources{corev1.ResourceCPU: 2}
		if _, err := inventory.Place(r); err == nil {
			t.Fatalf("%s is placed", id)
		}
	}
	inventory.ReserveAll([]Holding{{Instance: "si-3", Held: map[string]Resources{"eu": {corev1.ResourceCPU: 1}}}})
	if inventory.UpsertCluster(inRegion("eu", "eu", 4)); !maps.Equal(woken(), map[string]int{"si-1": 1}) {
		t.Error("there is room for one that waits, and it slept on, or another one is woken")
	}
}

// Requests that differ in a rule alone are woken each by the cluster that meets its own.
func TestWhoAsksForSomethingElseIsNotJudgedAlike(t *testing.T) {
	in := func(country, region string) *Cluster {
		c := inRegion("c-"+country+region, region, 4)
		c.Claims = []v1alpha1.Claim{{Name: v1alpha1.ClaimDatacenterCountry, Value: country, Assurance: v1alpha1.AssuranceSelf}}
		return c
	}
	of := func(rule Rule, plan string) Request {
		return Request{Rules: []Rule{rule}, Consumer: Consumer{Plan: plan}}
	}
	for name, row := range map[string]struct {
		one, other Request
		meets      *Cluster // the other's
	}{
		"claims":                      {of(inFrance, ""), of(inGermany, ""), in("DE", "a")},
		"claims, the other way round": {of(inGermany, ""), of(inFrance, ""), in("FR", "a")},
		"plans":                       {of(inRegionOfPlan, "a"), of(inRegionOfPlan, "b"), in("DE", "b")},
		"rules":                       {of(inFrance, "b"), of(inRegionOfPlan, "b"), in("DE", "b")},
	} {
		inventory, woken := watched()
		for id, r := range map[string]Request{"si-one": row.one, "si-other": row.other} {
			r.ID, r.Resources = id, Resources{corev1.ResourceCPU: 1}
			if _, err := inventory.Place(r); err == nil {
				t.Fatal("it is placed where there is no cluster")
			}
		}
		inventory.UpsertCluster(row.meets)
		if got := woken(); !maps.Equal(got, map[string]int{"si-other": 1}) {
			t.Errorf("%s: woken are %v", name, got)
		}
	}
}

// Clusters that are removed count no longer for what is an outage.
func TestRemovedClustersAreNoOutage(t *testing.T) {
	inventory := stock([]*Cluster{{Name: "eu", Ready: true}, {Name: "us"}, {Name: "ap"}})
	if !inventory.Snapshot().Outage() {
		t.Error("most clusters do not answer, and it is no outage")
	}
	inventory.DeleteCluster("us")
	inventory.DeleteCluster("ap")
	if inventory.Snapshot().Outage() {
		t.Error("all clusters answer that there are, and it is an outage")
	}
}
