package placement

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// While clusters change, and others place and release, nothing is sold twice, no quota is exceeded, instances that
// are to be apart are, and whatever fits in the end has been woken.
func TestDecisionsBesideChangesHoldWhatTheyPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fleet []*Cluster
		for i := range rapid.IntRange(1, 6).Draw(t, "clusters") {
			fleet = append(fleet, inRegion(fmt.Sprintf("c%d", i), fmt.Sprintf("r%d", i/2), rapid.Int64Range(2, 12).Draw(t, "cpu")))
		}
		quota := Quota{By: "policy", Per: v1alpha1.ScopeSpace, Limits: Resources{corev1.ResourceCPU: rapid.Int64Range(4, 20).Draw(t, "quota")}}
		inventory := NewInventory()
		inventory.SetPolicies(Policies{{Name: "policy", Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: quota.Limits.List()}}})
		for _, c := range fleet {
			inventory.UpsertCluster(c)
		}
		var mu sync.Mutex
		woken := map[string]bool{}
		inventory.OnWake(func(instance string) {
			mu.Lock()
			defer mu.Unlock()
			woken[instance] = true
		})
		waits := make([]*Request, 12)
		var racing sync.WaitGroup
		for i := range waits {
			r := Request{ID: fmt.Sprintf("si-%02d", i), Consumer: Consumer{Platform: "cf", Space: fmt.Sprint(i % 2)}, Resources: Resources{corev1.ResourceCPU: int64(1 + i%3)}, Quotas: []Quota{quota}}
			switch i % 4 {
			case 1:
				r.Affinity = []v1alpha1.Affinity{{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: true}}
			case 2:
				r.Clusters, r.Spread = 2, &Spread{By: []string{v1alpha1.LabelRegion}}
			case 3:
				r.Components = []Component{{Name: "a", Resources: r.Resources}, {Name: "b", Resources: r.Resources}}
			}
			racing.Go(func() {
				for n := range 4 {
					if _, err := inventory.Place(r); err != nil {
						waits[i] = &r
						return
					} else if n < 3 {
						inventory.Release(r.ID)
					}
				}
			})
		}
		racing.Go(func() {
			for n := range 20 {
				c := *fleet[n%len(fleet)]
				c.Latency = time.Duration(n)
				inventory.UpsertCluster(&c)
			}
		})
		racing.Wait()
		audit(t, inventory, fleet)
		s := inventory.Snapshot()
		for i, r := range waits {
			if r == nil {
				continue
			}
			if _, err := Place(*r, s); err == nil && !woken[r.ID] {
				t.Fatalf("request %d fits and is not woken", i)
			}
		}
		for _, space := range []string{"0", "1"} {
			held := int64(0)
			for _, reserved := range rows[Reservation](s.store, tableReservation, indexHolder, Consumer{Platform: "cf", Space: space}.holder(v1alpha1.ScopeSpace)) {
				held += reserved.Resources[corev1.ResourceCPU]
			}
			if held > quota.Limits[corev1.ResourceCPU] {
				t.Fatalf("%d cores are held in space %s, %d allowed", held, space, quota.Limits[corev1.ResourceCPU])
			}
		}
	})
}

// A decision by an earlier snapshot is made as long as its cluster has the room, and a refusal as long as nothing has
// changed, or the request waits already. Whoever is decided again waits meanwhile if it fits nowhere.
func TestDecisionsByAnEarlierSnapshot(t *testing.T) {
	other := func(name string, n int64) func(*Inventory) {
		return func(inv *Inventory) {
			inv.Reserve(Holding{Instance: "si-other", Held: map[string]Resources{name: cores(n)}})
		}
	}
	for name, row := range map[string]struct {
		asked  int64
		change func(*Inventory)
		waits  bool
		done   bool
	}{
		"placed, and nothing has changed":          {asked: 2, change: func(*Inventory) {}, done: true},
		"placed, and just enough room is left":     {asked: 2, change: other("a1", 6), done: true},
		"placed, and the room is another's":        {asked: 2, change: other("a1", 7)},
		"placed, and another cluster is full":      {asked: 2, change: other("b1", 1), done: true},
		"refused, and nothing has changed":         {asked: 9, change: func(*Inventory) {}, done: true},
		"refused, and something has changed":       {asked: 9, change: other("b1", 1)},
		"refused again, and something has changed": {asked: 9, change: other("b1", 1), waits: true, done: true},
	} {
		inventory := stock([]*Cluster{inRegion("a1", "a", 8000), inRegion("b1", "b", 1000)})
		r, s := Request{ID: "si", Resources: cores(row.asked)}, inventory.Snapshot()
		d, err := Place(r, s)
		row.change(inventory)
		_, done := inventory.commit(r, &d, err, s, row.waits)
		held, waits := len(inventory.ClustersHeld("si")) > 0, inventory.waiting.all["si"] != nil
		if done != row.done || held != (done && err == nil) || waits != (err != nil) {
			t.Errorf("%s: done is %t, it holds room: %t, it waits: %t", name, done, held, waits)
		}
	}
}

// BenchmarkBeside places from two goroutines while clusters report and somebody reads. Before that it places
// alone: µs-held is how long (p99) the inventory is held to commit a decision, and µs-decided how long it would
// be held for the decision too.
func BenchmarkBeside(b *testing.B) {
	application := Request{Links: []Link{{Between: [2]int{0, 1}, Most: time.Hour}, {Between: [2]int{1, 2}, Most: time.Hour}}}
	for _, name := range []string{"front", "back", "store"} {
		application.Components = append(application.Components, Component{Name: name, Resources: Resources{corev1.ResourceCPU: 10}})
	}
	for name, r := range map[string]Request{
		"one_in_half": benchmarkRequests()["one_in_half"], "by_price": benchmarkRequests()["anywhere_by_price"], "components": application,
	} {
		b.Run(name, func(b *testing.B) {
			inventory := syntheticFleet(10_000)
			clusters := inventory.Snapshot().Clusters()
			r.Resources = Resources{corev1.ResourceCPU: 10}
			decided, held := alone(inventory, r)
			var done atomic.Bool
			var id atomic.Int64
			var beside sync.WaitGroup
			beside.Go(func() {
				for i := 0; !done.Load(); i++ {
					changed := *clusters[i%len(clusters)]
					changed.ForeignUse = Resources{corev1.ResourceCPU: int64(i % 1000)}
					inventory.UpsertCluster(&changed)
					inventory.Snapshot()
					time.Sleep(time.Millisecond)
				}
			})
			b.SetParallelism(1)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					one := r
					one.ID = fmt.Sprintf("si-%d", id.Add(1))
					_, _ = inventory.Place(one) // that nothing fits is an answer, too
					inventory.Release(one.ID)
				}
			})
			b.StopTimer()
			done.Store(true)
			beside.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			b.ReportMetric(float64(decided.Microseconds()), "µs-decided")
			b.ReportMetric(float64(held.Microseconds()), "µs-held")
		})
	}
}

// alone returns how long decisions take, with and without deciding, in 99 of 100 cases.
func alone(inventory *Inventory, r Request) (decided, held time.Duration) {
	var all, commits []time.Duration
	for i := range 500 {
		one := r
		one.ID = fmt.Sprintf("si-alone-%d", i)
		began := time.Now()
		s := inventory.Snapshot()
		d, err := Place(one, s)
		chosen := time.Now()
		inventory.commit(one, &d, err, s, false)
		all, commits = append(all, time.Since(began)), append(commits, time.Since(chosen))
		inventory.Release(one.ID)
	}
	slices.Sort(all)
	slices.Sort(commits)
	return all[len(all)*99/100], commits[len(commits)*99/100]
}
