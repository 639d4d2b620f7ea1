package placement

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Requests that differ in a selector alone are woken each by the cluster that it selects.
func TestWhoSelectsOtherClustersIsNotJudgedAlike(t *testing.T) {
	for _, region := range []string{"a", "b"} {
		inventory, woken := watched()
		for _, of := range []string{"a", "b"} {
			r := Request{ID: "si-" + of, Resources: Resources{corev1.ResourceCPU: 1}, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: of})}
			if _, err := inventory.Place(r); err == nil {
				t.Fatal("it is placed where there is no cluster")
			}
		}
		inventory.UpsertCluster(inRegion("c", region, 4))
		if got := woken(); !maps.Equal(got, map[string]int{"si-" + region: 1}) {
			t.Errorf("a cluster of region %s comes, and woken are %v", region, got)
		}
	}
}

// A rise of one resource wakes who waits for it, whatever becomes of the others.
func TestWhoWaitsForOneOfSeveralResourcesIsWoken(t *testing.T) {
	eu := func(memory, cpu int64) *Cluster {
		has := Resources{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
		for i := range 6 { // which stay as they are
			has[corev1.ResourceName(fmt.Sprint("example.com/", i))] = 1
		}
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: has}
	}
	for range 5 { // maps have no order
		inventory, woken := watched(eu(1, 4))
		if _, err := inventory.Place(Request{ID: "si", Resources: Resources{corev1.ResourceMemory: 2}}); err == nil {
			t.Fatal("it fits at once")
		}
		if inventory.UpsertCluster(eu(2, 3)); woken()["si"] != 1 {
			t.Fatal("there is enough memory, and it slept on")
		}
	}
}

// Who waits for a cluster in each group is woken when a cluster's labels change, and by no other change of one that
// does not take it.
func TestWhoNeedsEachGroupSleepsOnIfTheyAreTheSame(t *testing.T) {
	b1 := func(region string, ready bool) *Cluster {
		c := inRegion("b1", region, 0)
		c.Ready = ready
		return c
	}
	inventory, woken := watched(inRegion("a1", "a", 4), b1("b", true))
	r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Each: true}}
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed in one group")
	}
	if inventory.UpsertCluster(b1("b", false)); woken()["si"] != 0 {
		t.Error("it is woken though the groups are the same")
	}
	if inventory.UpsertCluster(b1("a", false)); woken()["si"] == 0 {
		t.Error("there is one group less, and it slept on")
	}
}

// Room that is no longer made for one wakes another one that waits for it.
func TestWhoWaitsForRoomThatIsNoLongerMadeIsWoken(t *testing.T) {
	inventory, woken := watched(inRegion("eu", "eu", 4))
	inventory.Preempt("si-1", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu"}})
	if _, err := inventory.Place(Request{ID: "si-2", Resources: Resources{corev1.ResourceCPU: 1}}); err == nil {
		t.Fatal("it takes the room that is made for another one")
	}
	if inventory.Preempt("si-1", nil); woken()["si-2"] != 1 {
		t.Error("it slept on")
	}
}

// Room that is made on several clusters concerns who waits for any of them, and whom it is made for if any of them goes.
func TestWhoWaitsForTheOtherRoomIsWoken(t *testing.T) {
	inventory, woken := watched(inRegion("eu", "eu", 4), inRegion("us", "us", 4))
	both := &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu"}, Elsewhere: []v1alpha1.Room{{Cluster: "us"}}}
	wait := func(r Request) {
		t.Helper()
		if _, err := inventory.Place(r); err == nil {
			t.Fatalf("%s takes the room that is made for another one", r.ID)
		}
	}
	inventory.Preempt("si-1", both)
	wait(Request{ID: "si-2", Resources: Resources{corev1.ResourceCPU: 1}, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: "us"})})
	if inventory.Preempt("si-1", nil); woken()["si-2"] != 1 {
		t.Error("who waits for us slept on")
	}
	inventory.Preempt("si-1", both)
	wait(Request{ID: "si-1", Resources: Resources{corev1.ResourceCPU: 8}, Clusters: 2})
	woken()
	if inventory.DeleteCluster("us"); woken()["si-1"] == 0 {
		t.Error("there will be no room on us, and si-1 slept on")
	}
}

// A consumer with two clusters has to name one; once one of them has gone, there is no need to.
func TestWhoseConsumerHasOneClusterLeftIsWoken(t *testing.T) {
	own := func(name string) *Cluster {
		return &Cluster{
			Name: name, Driver: v1alpha1.DriverLiqo, Ready: true, AccessVerified: true, Allocatable: cores(8), Liqo: &v1alpha1.LiqoCluster{Modules: v1alpha1.ModulesFor(true)},
			Consumers: []v1alpha1.ConsumerReference{{Platform: "cf"}},
		}
	}
	eu := own("eu")
	eu.Consumers = nil
	inventory, woken := watched(own("one"), own("other"), eu)
	r := inventory.Snapshot().Govern(Request{ID: "si", Resources: cores(1), Peering: &Peering{PeeringPlan: v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork}}}, Consumer{Platform: "cf"})
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed, though it names none of two")
	}
	if inventory.DeleteCluster("other"); woken()["si"] != 1 {
		t.Error("one is left, and it slept on")
	}
}

// Who asks for the same of a cluster, apart from amounts, is judged once for all: whose order it is, how much of it, and
// what decides only among clusters that fit makes no difference.
func TestWhoAsksForTheSameIsJudgedOnce(t *testing.T) {
	selects := func(region string) labels.Selector {
		return labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: region})
	}
	for name, row := range map[string]struct {
		change func(*Request)
		same   bool
	}{
		"another amount":         {func(r *Request) { r.Resources = cores(9) }, true},
		"another consumer":       {func(r *Request) { r.Consumer.Space = "other" }, true},
		"another weight":         {func(r *Request) { r.Weights.Pack = 1 }, true},
		"another selector":       {func(r *Request) { r.Selector = selects("b") }, false},
		"another tier":           {func(r *Request) { r.Tier = v1alpha1.TierEdge }, false},
		"another resource":       {func(r *Request) { r.Resources = Resources{corev1.ResourceMemory: 9} }, false},
		"a host":                 {func(r *Request) { r.Hosts = map[string]string{"shop.example": "web"} }, false},
		"a greatest latency":     {func(r *Request) { r.MaxLatency = &v1alpha1.LatencyBound{Milliseconds: 5} }, false},
		"a greatest price":       {func(r *Request) { r.MaxPrice = &Price{"EUR", 5} }, false},
		"a cluster where it is":  {func(r *Request) { r.Current = []string{"eu"} }, false},
		"a class, and so others": {func(r *Request) { r.Class = "gold" }, false},
	} {
		ws := newWaiters()
		for _, id := range []string{"si-1", "si-2", "si-3"} {
			r := Request{ID: id, Resources: cores(4), Selector: selects("a"), Consumer: Consumer{Platform: "cf", Space: "one"}}
			if id == "si-3" {
				row.change(&r)
			}
			ws.add(r, true)
		}
		if same := len(ws.cohorts) == 1 && len(ws.settled) == 0; same != row.same {
			t.Errorf("%s: %d cohorts, and %d alone", name, len(ws.cohorts), len(ws.settled))
		}
	}
}

// Of many that wait for other amounts, only those are looked at to whom a cluster that comes gives enough.
func TestAClusterConcernsThoseWhomItGivesEnough(t *testing.T) {
	inventory, woken := watched(inRegion("none", "a", 0))
	for i := range int64(50) {
		for kind, r := range map[string]Request{
			"cores":  {Resources: Resources{corev1.ResourceCPU: i + 1}},
			"memory": {Resources: Resources{corev1.ResourceCPU: 1, corev1.ResourceMemory: i + 1}},
		} {
			r.ID = fmt.Sprint(kind, i)
			if _, err := inventory.Place(r); err == nil {
				t.Fatal("it fits at once")
			}
		}
	}
	c := inRegion("eu", "a", 5)
	c.Allocatable[corev1.ResourceMemory] = 3
	inventory.UpsertCluster(c)
	if got := woken(); len(got) != 5+3 {
		t.Errorf("woken are %v", got)
	}
	s := inventory.Snapshot()
	if looked := inventory.concerned(event{clusters: []string{"eu"}, is: c}, s); len(looked) != 5+3 {
		t.Errorf("looked at are %d", len(looked))
	}
}

// Who has to be apart from others sleeps on while a cluster that takes it changes in what has nothing to do with that.
func TestWhoHasToBeApartSleepsOn(t *testing.T) {
	eu := func(change func(*Cluster)) *Cluster {
		c := inRegion("eu", "a", 4)
		change(c)
		return c
	}
	inventory, woken := watched(eu(func(*Cluster) {}))
	app := Consumer{Platform: "cf", Space: "s", Application: "shop"}
	inventory.Reserve(Holding{Instance: "si-other", Consumer: app, Held: map[string]Resources{"eu": {corev1.ResourceCPU: 1}}})
	r := Request{ID: "si", Consumer: app, Resources: Resources{corev1.ResourceCPU: 1}, Affinity: []v1alpha1.Affinity{{With: v1alpha1.ScopeApplication, By: v1alpha1.LabelRegion, Apart: true}}}
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed beside the other one")
	}
	for _, row := range []struct {
		name   string
		change func(*Cluster)
		wakes  bool
	}{
		{"a price", func(c *Cluster) { c.Currency, c.Prices = "EUR", map[corev1.ResourceName]int64{corev1.ResourceCPU: 1} }, false},
		{"another region", func(c *Cluster) { c.Labels[v1alpha1.LabelRegion] = "b" }, true},
	} {
		if inventory.UpsertCluster(eu(row.change)); (woken()["si"] > 0) != row.wakes {
			t.Errorf("%s: it is woken: %t", row.name, !row.wakes)
		}
	}
}

// An expression that reads the whole consumer is about each consumer for itself.
func TestWhoseRuleReadsTheConsumerIsNotJudgedAlike(t *testing.T) {
	inventory, woken := watched()
	rule := mustCompile(v1alpha1.PolicyRule{Name: "own", Expression: `cluster.region in consumer.map(key, key == "platform" ? consumer[key] : "")`})
	for _, platform := range []string{"a", "b"} {
		r := Request{ID: "si-" + platform, Consumer: Consumer{Platform: platform}, Resources: Resources{corev1.ResourceCPU: 1}, Rules: []Rule{rule}}
		if _, err := inventory.Place(r); err == nil {
			t.Fatal("it is placed where there is no cluster")
		}
	}
	inventory.UpsertCluster(inRegion("c", "b", 4))
	if got := woken(); !maps.Equal(got, map[string]int{"si-b": 1}) {
		t.Errorf("a cluster of region b comes, and woken are %v", got)
	}
}
