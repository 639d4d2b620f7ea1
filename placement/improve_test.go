package placement

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// settledFleet is an inventory with instances that were placed one after the other, of which half have gone again.
func settledFleet(seed uint64, clusters, instances int) (*Inventory, []Request) {
	random := rand.New(rand.NewPCG(seed, 7))
	inventory := NewInventory()
	for i := range clusters {
		name := fmt.Sprintf("cluster-%05d", i)
		c := &Cluster{
			Name: name, Region: fmt.Sprint("region-", i%3), Ready: true, AccessVerified: true, Labels: labels.Set{v1alpha1.LabelCluster: name, v1alpha1.LabelRegion: fmt.Sprint("region-", i%3)},
			Allocatable: Resources{corev1.ResourceCPU: 8000 + 4000*random.Int64N(5), corev1.ResourceMemory: (16 + 8*random.Int64N(5)) << 30},
			Currency:    "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: 1e6 * (10 + random.Int64N(90)), corev1.ResourceMemory: 1e6},
		}
		inventory.UpsertCluster(c)
	}
	weights := []v1alpha1.ScoreWeights{{Balance: 1}, {Balance: 2, Price: 1}, {}, {Pack: 1}, {Price: 1, Diversity: 1}}[seed%5]
	var requests []Request
	for i := range 2 * instances {
		r := Request{
			ID: fmt.Sprintf("si-%05d", i), Consumer: Consumer{Platform: "cf", Space: fmt.Sprint("s", random.IntN(3))}, Weights: weights,
			Resources: Resources{corev1.ResourceCPU: 500 * (1 + random.Int64N(8)), corev1.ResourceMemory: (1 + random.Int64N(8)) << 30},
		}
		if random.IntN(4) == 0 {
			r.Clusters = 2
		}
		if random.IntN(4) == 0 {
			r.Selector = labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: fmt.Sprint("region-", random.IntN(3))})
		}
		d, err := inventory.Place(r)
		if err != nil {
			continue
		}
		for _, p := range d.Placements {
			r.Current = append(r.Current, p.Cluster)
		}
		r.Free = true
		requests = append(requests, r)
	}
	random.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	for _, r := range requests[len(requests)/2:] {
		inventory.Release(r.ID)
	}
	return inventory, requests[:len(requests)/2]
}

// contentment is the sum of the scores of all instances where they are now.
func contentment(requests []Request, s *Snapshot) (sum int64) {
	for _, r := range requests {
		e := evaluate(r, s)
		sum += int64(e.meanScore(e.current))
	}
	return sum
}

// carryOut makes the moves one by one, and returns the requests as they are then. At each step, an instance holds what
// it comes to before it gives back what it leaves; no cluster ever has less than nothing.
func carryOut(t *testing.T, in *Inventory, requests []Request, moves []Proposal) []Request {
	t.Helper()
	requests = slices.Clone(requests)
	for _, p := range moves {
		i := slices.IndexFunc(requests, func(r Request) bool { return r.ID == p.Instance })
		r := &requests[i]
		held := map[string]Resources{}
		for _, cluster := range slices.Concat(r.Current, p.To) {
			held[cluster] = r.Resources
		}
		for _, leaves := range append([]string{""}, p.From...) {
			delete(held, leaves)
			in.Reserve(Holding{Instance: r.ID, Consumer: r.Consumer, Held: held})
			for _, c := range in.Snapshot().Clusters() {
				for name := range c.Allocatable {
					if free := in.Snapshot().Free(c.Name, name); free < 0 {
						t.Fatalf("after %+v, %s has %d %s", p, c.Name, free, name)
					}
				}
			}
		}
		r.Current = append(slices.DeleteFunc(slices.Clone(r.Current), func(name string) bool { return slices.Contains(p.From, name) }), p.To...)
		if _, err := Place(Request{ID: r.ID, Resources: r.Resources, Selector: r.Selector, Clusters: r.Clusters, Current: r.Current}, in.Snapshot()); err != nil {
			t.Fatalf("%s cannot be where it moved: %v", r.ID, err)
		}
	}
	return requests
}

// greedily takes the moves by the gain that each has alone.
func greedily(requests []Request, in *Inventory, leastGain int32, most int) (moves []Proposal) {
	type one struct {
		Request
		gain int32
	}
	var all []one
	for _, r := range requests {
		if p, _ := Propose(r, in.Snapshot(), leastGain); p != nil {
			all = append(all, one{r, p.Gain})
		}
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Or(cmp.Compare(b.gain, a.gain), cmp.Compare(a.ID, b.ID)) })
	fork := in.Fork()
	for _, o := range all {
		if p, holds := Propose(o.Request, fork.Snapshot(), leastGain); len(moves) < most && p != nil {
			holds.Consumer = o.Consumer
			fork.Reserve(holds)
			moves = append(moves, *p)
		}
	}
	return moves
}

// Over random fleets: a plan keeps its budget, oversells nothing at any step, does not depend on the order of the
// instances, and is never worse than the greedy one.
func TestImproveIsNeverWorseThanGreedy(t *testing.T) {
	var better, same int
	var gained, greedyGained int64
	for seed := range uint64(16) {
		seed += 15
		random := rand.New(rand.NewPCG(seed, 1))
		in, requests := settledFleet(seed, 4+random.IntN(12), 10+random.IntN(40))
		most, leastGain := 1+random.IntN(8), int32(1+random.IntN(15))
		moves := Improve(requests, in, leastGain, most)
		seen := map[string]bool{}
		for _, p := range moves {
			if seen[p.Instance] || p.Gain < leastGain {
				t.Fatalf("seed %d: %+v", seed, moves)
			}
			seen[p.Instance] = true
		}
		if len(moves) > most {
			t.Fatalf("seed %d: %d moves of at most %d", seed, len(moves), most)
		}
		shuffled := slices.Clone(requests)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := Improve(shuffled, in, leastGain, most); !reflect.DeepEqual(again, moves) {
			t.Fatalf("seed %d: %+v, and then %+v", seed, moves, again)
		}
		worth := func(moves []Proposal) int64 {
			before := contentment(requests, in.Snapshot())
			fork := in.Fork()
			return contentment(carryOut(t, fork, requests, moves), fork.Snapshot()) - before
		}
		got, greedy := worth(moves), worth(greedily(requests, in, leastGain, most))
		gained, greedyGained = gained+got, greedyGained+greedy
		switch {
		case got > greedy:
			better++
		case got == greedy:
			same++
		default:
			t.Errorf("seed %d: gains %d, and greedily %d", seed, got, greedy)
		}
	}
	t.Logf("better in %d fleets, the same in %d; all instances gain %d points, greedily %d", better, same, gained, greedyGained)
	if better < same {
		t.Errorf("better in %d fleets, and the same in %d", better, same)
	}
}

// What a plan is worth is what all instances gain by it, where no score depends on what is on other clusters. A plan
// beside another one has most of its moves, and some others; all plans keep the limits.
func TestPlansBesideThePlan(t *testing.T) {
	without, further, kept, all := 0, 0, 0, 0
	for _, seed := range []uint64{0, 3, 5} { // by balance, and by what is packed
		in, requests := settledFleet(seed, 10, 30)
		x := newImprovement(requests, in, 3, 6)
		plan := x.greedy()
		before := x.contentment(nil)
		for round := range uint64(8) {
			other := x.neighbour(plan, round)
			seen := map[int]bool{}
			for _, m := range other {
				if seen[m.request] || m.proposal.Gain < 3 {
					t.Fatalf("seed %d: %+v", seed, other)
				}
				seen[m.request] = true
			}
			for _, m := range plan {
				if all++; seen[m.request] {
					kept++
					delete(seen, m.request)
				} else {
					without++
				}
			}
			if further += len(seen); len(other) > 6 {
				t.Fatalf("seed %d: %d moves of at most 6", seed, len(other))
			}
			if got, want := x.worth(other), x.contentment(other)-before; got != want {
				t.Fatalf("seed %d: %d moves are worth %d, and all instances gain %d", seed, len(other), got, want)
			}
			if len(other) == 0 || !slices.ContainsFunc(plan, func(m planned) bool { return m.request == other[0].request }) {
				t.Errorf("seed %d: the plan does not begin with a move that was not taken out: %+v", seed, other)
			}
			plan = other
		}
		if got := x.contentment(nil); got != before {
			t.Errorf("seed %d: the scores sum up to %d, and once all is undone to %d", seed, before, got)
		}
	}
	t.Logf("of %d moves, %d are kept; %d others", all, kept, further)
	if without == 0 || further == 0 || kept < all/2 {
		t.Errorf("of %d moves, %d are kept, %d are not, and there are %d others", all, kept, without, further)
	}
}

func TestImproveMovesNothingWithoutABudget(t *testing.T) {
	in, requests := settledFleet(0, 8, 30)
	if len(Improve(requests, in, 1, 10)) == 0 {
		t.Fatal("nothing is worth a move; the fleet proves nothing")
	}
	if moves := Improve(requests, in, 1, 0); len(moves) > 0 {
		t.Errorf("%+v", moves)
	}
}

// BenchmarkImprove plans ten moves in fleets with two instances a cluster.
func BenchmarkImprove(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in, requests := settledFleet(0, n, 2*n)
			for b.Loop() {
				if len(Improve(requests, in, 10, 10)) == 0 {
					b.Fatal("no move")
				}
			}
		})
	}
}

// A move that gains exactly the least that counts is made, and one that gains less is not.
func TestTheLeastGainThatCounts(t *testing.T) {
	cluster := func(name string, price int64) *Cluster {
		return &Cluster{Name: name, Ready: true, AccessVerified: true, Allocatable: cores(8), Currency: "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: price}}
	}
	inventory := stock([]*Cluster{cluster("dear", 200), cluster("cheap", 100)})
	r := Request{ID: "si", Resources: cores(2), Current: []string{"dear"}, Free: true, Weights: v1alpha1.ScoreWeights{Price: 1}}
	inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"dear": cores(2)}})
	for least, moves := range map[int32]int{49: 1, 50: 1, 51: 0} { // the price scores 50, and then 100
		if got := Improve([]Request{r}, inventory, least, 1); len(got) != moves {
			t.Errorf("by at least %d: %+v", least, got)
		}
	}
	if got := Improve([]Request{r}, inventory, 1, 0); len(got) != 0 {
		t.Errorf("no move is allowed, and proposed are %+v", got)
	}
}

// There may be a budget of moves and nothing that may move, or nothing that gains by it.
func TestNothingToImprove(t *testing.T) {
	inventory := stock([]*Cluster{withCores("eu", 8)})
	if moves := Improve(nil, inventory, 1, 5); len(moves) > 0 {
		t.Errorf("nobody is there, and proposed are %+v", moves)
	}
	inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"eu": cores(2)}})
	alone := Request{ID: "si", Resources: cores(2), Current: []string{"eu"}, Free: true}
	if moves := Improve([]Request{alone}, inventory, 1, 5); len(moves) > 0 {
		t.Errorf("there is one cluster, and proposed are %+v", moves)
	}
}
