package placement

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// crowdedFleet is a request with components, and the fleet that has to have room for it, with those that may leave.
type crowdedFleet struct {
	Request
	fleet     []*Cluster
	mayLeave  []Holding // each is on one cluster
	inventory *Inventory
	s         *Snapshot
}

// drawCrowded draws a small application, and a fleet on which others are.
func drawCrowded(random *rand.Rand) *crowdedFleet {
	amounts := func(most int64) Resources {
		return Resources{corev1.ResourceCPU: 1 + random.Int64N(most), corev1.ResourceMemory: random.Int64N(most)}
	}
	a := &crowdedFleet{Request: Request{ID: "si-new", Class: "gold", Consumer: Consumer{Platform: "cf", Space: "s1"}}}
	anyConsumer := random.IntN(2) == 0
	inventory := NewInventory()
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("",
		map[bool]v1alpha1.Preempts{true: v1alpha1.PreemptsAnyConsumer, false: v1alpha1.PreemptsSameConsumer}[anyConsumer])}))
	for c := range 2 + random.IntN(2) {
		cluster := &Cluster{Name: fmt.Sprint("cluster-", c), Ready: random.IntN(8) > 0, AccessVerified: true, Allocatable: amounts(4), Latencies: map[string]Measured{}}
		cluster.Labels = labels.Set{"half": fmt.Sprint(c % 2), v1alpha1.LabelCluster: cluster.Name}
		for i := range random.IntN(4) {
			h := Holding{
				Instance: fmt.Sprintf("si-%d-%d", c, i), Class: []string{"silver", "bronze", "bronze", "gold", ""}[random.IntN(5)],
				Consumer: Consumer{Platform: "cf", Space: []string{"s1", "s1", "s2"}[random.IntN(3)]}, Held: map[string]Resources{cluster.Name: amounts(5)},
			}
			cluster.Allocatable.Add(h.Held[cluster.Name], 1)
			inventory.Reserve(h)
			if (h.Class == "silver" || h.Class == "bronze") && (anyConsumer || h.Consumer.Space == "s1") {
				a.mayLeave = append(a.mayLeave, h)
			}
		}
		for _, other := range a.fleet {
			if random.IntN(3) > 0 {
				cluster.Latencies[other.Name] = Measured{Median: time.Duration(1+random.IntN(20)) * time.Millisecond}
			}
		}
		a.fleet = append(a.fleet, cluster)
		inventory.UpsertCluster(cluster)
	}
	for i := range 2 + random.IntN(2) {
		one := Component{Name: fmt.Sprint("part-", i), Resources: amounts(5)}
		if random.IntN(4) == 0 {
			one.Selector = labels.SelectorFromSet(labels.Set{"half": fmt.Sprint(random.IntN(2))})
		}
		a.Components = append(a.Components, one)
	}
	if random.IntN(2) == 0 {
		a.Links = []Link{{Between: [2]int{0, 1}, Most: 10 * time.Millisecond}}
	}
	a.inventory, a.s = inventory, inventory.Snapshot()
	return a
}

// fits reports, by trying all combinations of clusters, whether the components have room once some have left.
func (a *crowdedFleet) fits(given map[string]Resources) bool {
	clusters := make([]*Cluster, len(a.Components))
	var place func(int) bool
	place = func(i int) bool {
		if i == len(a.Components) {
			return true
		}
		next := &a.Components[i]
		for _, c := range a.fleet {
			ok := c.Ready && (next.Selector == nil || next.Selector.Matches(c.Labels))
			for name, needed := range next.Resources {
				for k := range i {
					if clusters[k] == c {
						needed += a.Components[k].Resources[name]
					}
				}
				ok = ok && a.s.Free(c.Name, name)+given[c.Name][name] >= needed
			}
			for _, link := range a.Links {
				if link.Between[1] == i && clusters[link.Between[0]] != c {
					apart, measured := latency(clusters[link.Between[0]], c)
					ok = ok && measured && apart <= link.Most
				}
			}
			if clusters[i] = c; ok && place(i+1) {
				return true
			}
		}
		return false
	}
	return place(0)
}

// given returns what the holdings of a set of those that may leave hold, by cluster, and what it costs.
func (a *crowdedFleet) given(subset uint) (map[string]Resources, cost) {
	given, now := map[string]Resources{}, cost{count: bits.OnesCount(subset)}
	for _, c := range a.fleet {
		given[c.Name] = Resources{}
	}
	for i, h := range a.mayLeave {
		if subset&(1<<i) != 0 {
			for cluster, amounts := range h.Held {
				given[cluster].Add(amounts, 1)
			}
			now.highest, now.sum = max(now.highest, classValues[h.Class]), now.sum+int64(classValues[h.Class])
		}
	}
	return given, now
}

// subset returns the set of those that leave.
func (a *crowdedFleet) subset(t *testing.T, p *v1alpha1.Preemption) (subset uint) {
	t.Helper()
	for _, v := range p.AllVictims() {
		i := slices.IndexFunc(a.mayLeave, func(h Holding) bool { return h.Instance == v.Instance })
		if i < 0 {
			t.Fatalf("%s is displaced, and may not be", v.Instance)
		}
		subset |= 1 << i
	}
	return subset
}

// least returns the cost of the cheapest set of those that may leave without which the application fits, by trying all sets.
func (a *crowdedFleet) least() (best cost, found bool) {
	for subset := range uint(1) << len(a.mayLeave) {
		if given, now := a.given(subset); (!found || now.compare(best) < 0) && a.fits(given) {
			best, found = now, true
		}
	}
	return best, found
}

// Room is made for an application exactly if some set of those that may leave makes it, by victims of the lowest maximum
// priority, none of which could stay. Beyond that it is not always the cheapest set.
func TestPreemptMakesRoomForComponents(t *testing.T) {
	random := rand.New(rand.NewPCG(125, 1))
	made, cheapest := 0, 0
	for n := range 4_000 {
		a := drawCrowded(random)
		if _, err := Place(a.Request, a.s); err == nil {
			continue
		}
		best, found := a.least()
		got := Preempt(a.Request, a.s)
		if found != (got != nil) {
			t.Fatalf("%d: room can be made is %t, and Preempt says %+v", n, found, got)
		}
		if got == nil {
			continue
		}
		made++
		subset := a.subset(t, got)
		given, now := a.given(subset)
		if !a.fits(given) || !a.s.Stands(a.Request, got) {
			t.Fatalf("%d: without %+v it does not fit", n, got.AllVictims())
		}
		for i := range a.mayLeave {
			if subset&(1<<i) != 0 {
				if given, _ := a.given(subset &^ (1 << i)); a.fits(given) {
					t.Fatalf("%d: %s of %+v need not leave", n, a.mayLeave[i].Instance, got.AllVictims())
				}
			}
		}
		if now.highest != best.highest {
			t.Fatalf("%d: %+v costs %+v, and the least is %+v", n, got.AllVictims(), now, best)
		}
		if now == best {
			cheapest++
		}
	}
	t.Logf("room was made for %d applications, for %d of them by the cheapest victims", made, cheapest)
	if made < 800 || cheapest*100 < made*90 {
		t.Errorf("room was made for %d applications, for only %d of them by the cheapest victims", made, cheapest)
	}
}

// Room is made for an order spread over groups exactly if it is placed once all that may leave have left, and by none that
// could stay.
func TestPreemptMakesRoomInGroups(t *testing.T) {
	random := rand.New(rand.NewPCG(125, 2))
	made, several := 0, 0
	for n := range 4_000 {
		a := drawCrowded(random)
		r := a.Request
		r.Resources, r.Components, r.Links = a.Components[0].Resources, nil, nil
		r.Spread, r.Clusters = &Spread{By: []string{"half"}, Each: random.IntN(3) > 0, Groups: 2}, 2+random.IntN(2)
		if r.Spread.Each {
			r.Replicas = random.IntN(6)
		}
		if _, err := Place(r, a.s); err == nil {
			continue
		}
		all := uint(1)<<len(a.mayLeave) - 1
		given, _ := a.given(all)
		_, err := Place(r, a.s.with(given))
		got := Preempt(r, a.s)
		if (err == nil) != (got != nil) {
			t.Fatalf("%d: without all others %+v is placed is %t, and Preempt says %+v", n, r, err == nil, got)
		}
		if got == nil {
			continue
		}
		if made++; len(got.Clusters()) > 1 {
			several++
		}
		if !a.s.Stands(r, got) {
			t.Fatalf("%d: %+v does not stand", n, got)
		}
		subset := a.subset(t, got)
		for i, h := range a.mayLeave {
			if subset&(1<<i) == 0 {
				continue
			}
			given, _ := a.given(subset &^ (1 << i))
			if _, err := Place(r, a.s.with(given)); err == nil {
				t.Fatalf("%d: %s of %+v need not leave", n, h.Instance, got.AllVictims())
			}
		}
	}
	t.Logf("room was made for %d orders, for %d of them on several clusters", made, several)
	if made < 300 || several < 50 {
		t.Errorf("room was made for %d orders, for only %d of them on several clusters", made, several)
	}
}
