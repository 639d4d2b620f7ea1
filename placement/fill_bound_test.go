package placement

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// mostRank returns, by trying all choices of each group, the greatest rank of a choice of a pattern that has the room.
func mostRank(groups []*group, rooms []int64, pair, need int64, of pattern) (most int64, found bool) {
	type sum struct {
		groups, clusters int
		room             int64
	}
	best := map[sum]int64{{}: 0}
	for _, g := range groups {
		next := maps.Clone(best)
		for some := 1; some < 1<<len(g.candidates); some++ {
			n := bits.OnesCount(uint(some))
			if n < of.least || n > of.most {
				continue
			}
			rank, room := -pair*int64(n*(n-1)), int64(0)
			for i, c := range g.candidates {
				if some&(1<<i) != 0 {
					rank, room = rank+c.rank, room+rooms[c.row]
				}
			}
			for before, ranked := range best {
				now := sum{before.groups + 1, before.clusters + n, min(before.room+room, need)}
				if known, ok := next[now]; now.clusters <= of.clusters && (!ok || ranked+rank > known) {
					next[now] = ranked + rank
				}
			}
		}
		best = next
	}
	for now, rank := range best {
		counted := of.groups == 0 || now.groups >= of.fewest && now.groups <= of.groups
		if counted && now.clusters == of.clusters && now.room >= need && (!found || rank > most) {
			most, found = rank, true
		}
	}
	return most, found
}

// The search with a bound finds the choice that the search without one finds, the same of several with equal ranks,
// and makes no more choices. There is no better one.
func TestTheBoundExcludesNoBestChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.IntRange(1, 6).Draw(t, "clusters")
		p, rooms := &page{}, []int64{}
		var groups []*group
		for g := range rapid.IntRange(1, 4).Draw(t, "groups") {
			one := &group{name: fmt.Sprint(g)}
			for range rapid.IntRange(1, 5).Draw(t, "of the group") {
				rank := int64(rapid.IntRange(0, 12).Draw(t, "rank"))
				one.candidates = append(one.candidates, candidate{position: position{page: p, row: len(rooms)}, rank: rank, group: one.name})
				rooms = append(rooms, int64(rapid.IntRange(0, 9).Draw(t, "room")))
			}
			groups = append(groups, one)
		}
		room := func(at position) int64 { return rooms[at.row] }
		need := int64(rapid.IntRange(1, 30).Draw(t, "replicas"))
		of := rapid.SampledFrom([]pattern{{0, 0, number, 1, number}, {1, 1, number, number, number}, {1, 3, number, 1, 3}, {2, 2, number, 1, 4}, {1, 3, number, 2, 4}}).Draw(t, "pattern")
		pair := int64(rapid.IntRange(0, 3).Draw(t, "pair"))
		bounded := &filling{groups: groups, pair: pair, room: room}
		var good []*candidate
		bounded.bound, good = newBound(groups, number, need, 13, room)
		bounded.known = math.MinInt64
		if of.groups == 0 {
			bounded.known = bounded.factor * bounded.rank(good)
		}
		free := &filling{groups: groups, pair: pair, room: room, bound: &bound{need: need, best: bounded.best, known: math.MinInt64}}
		with, without := bounded.search(of), free.search(of)
		if (with == nil) != (without == nil) || without != nil && bounded.made > free.made {
			t.Fatalf("found %v of %d, and %v of %d without the bound", with, bounded.made, without, free.made)
		}
		if most, found := mostRank(groups, rooms, pair, need, of); found != (without != nil) || found && without.rank != most {
			t.Fatalf("found %v, and the greatest rank is %d (%t)", without, most, found)
		}
		for with != nil {
			if with.rank != without.rank || with.room != without.room || with.last != without.last {
				t.Fatalf("found %+v, and %+v without the bound", with, without)
			}
			with, without = with.before, without.before
		}
	})
}

// A search for room that ends before all choices are tried says so.
func TestASearchForRoomThatEndsSaysSo(t *testing.T) {
	for clusters, ends := range map[int]bool{8: false, 20: true} {
		random := rand.New(rand.NewPCG(1, 2))
		inventory := NewInventory()
		for i := range 150 {
			c := inRegion(fmt.Sprint("c", i), "", 1000+random.Int64N(9000))
			c.ForeignUse = Resources{corev1.ResourceCPU: random.Int64N(c.Allocatable[corev1.ResourceCPU])}
			inventory.UpsertCluster(c)
		}
		r := Request{ID: "si", Replicas: 5000 * clusters, Clusters: clusters, Resources: Resources{corev1.ResourceCPU: 1}, Weights: v1alpha1.ScoreWeights{Pack: 1}}
		cramped := 0
		for _, v := range Explain(r, inventory.Snapshot()) {
			if strings.Contains(v.Message, "too little room for its share") {
				if cramped++; strings.HasSuffix(v.Message, " in the best of the first 200000 choices") != ends {
					t.Errorf("%d clusters: of %s it says %q", clusters, v.Cluster, v.Message)
				}
			}
		}
		if cramped == 0 {
			t.Errorf("%d clusters: none has too little room", clusters)
		}
	}
}
