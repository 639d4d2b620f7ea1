package placement_test

import (
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/placement"
)

var oracleCases = flag.Int("oracle", 2000, "how many worlds the oracle judges; each is some cases")

// judged counts cases by kind.
type judged struct {
	cases, placed map[string]int
	thrift        thrift
	proposed      int // moves
}

// judge compares the engine's answer to an order with the oracle's. It returns the decision, and false if there is none.
func (n *judged) judge(t *testing.T, seed uint64, w *world, o *order, kind string) (placement.Decision, bool) {
	t.Helper()
	n.cases[kind]++
	inventory := w.inventory()
	r := inventory.Snapshot().Govern(o.Request, o.Consumer)
	d, err := placement.Place(r, inventory.Snapshot())
	a := newOracle(w, o)
	fail := func(format string, arguments ...any) {
		t.Helper()
		t.Errorf("seed %d, %s: %s\nit is %+v\nbecause %v", seed, kind, fmt.Sprintf(format, arguments...), d.Placements, err)
	}
	possible := false
	var best worth
	if len(o.Components) > 0 {
		best.score, possible = a.bestTogether()
	} else {
		best, possible = a.best()
	}
	possible = possible && a.withinQuota()
	within, inTheWay := best, false
	if _, bounded := a.leftToSpend(); bounded && possible {
		if denied, ok := placement.AsUnplaceable(err); ok && denied.Denied && (o.Replicas > 0 || len(o.Components) > 0) {
			return d, false // what it costs depends on how it is divided
		}
		if o.Replicas == 0 && len(o.Components) == 0 {
			within, possible, inTheWay = a.bestWithin(best)
		}
	}
	if possible != (err == nil) {
		fail("possible is %t", possible)
		return d, false
	}
	if err != nil {
		return d, false
	}
	n.placed[kind]++
	if !a.affords(d.Placements) {
		fail("it costs more than the budget leaves")
	}
	if len(o.Components) > 0 {
		if score, ok := a.together(a.combination(d)); !ok || score != best.score {
			fail("it is worth %d (%t), the best %d", score, ok, best.score)
		}
		return d, true
	}
	var choice []*placement.Cluster
	for _, p := range d.Placements {
		c := w.byName(p.Cluster)
		if !a.fits(c, nil) || slices.Contains(choice, c) {
			fail("%s does not fit, or is there twice", p.Cluster)
			return d, false
		}
		if score := a.score(c, nil); score != int64(p.Score) {
			fail("%s scores %d", p.Cluster, score)
		}
		choice = append(choice, c)
	}
	switch got, ok := a.valid(choice); {
	case ok && inTheWay && !got.better(within):
		n.thrift.count(got, within)
	case !ok || got != best:
		fail("it is worth %+v (%t), the best %+v", got, ok, best)
	}
	if o.Replicas > 0 && !a.divided(d.Placements, w.replicas(o)) {
		fail("the replicas are not divided as they should be")
	}
	return d, true
}

// combination returns the clusters of the components.
func (o *oracle) combination(d placement.Decision) []*placement.Cluster {
	on := make([]*placement.Cluster, len(o.Components))
	for i, c := range o.Components {
		for _, p := range d.Placements {
			if slices.Contains(p.Components, c.Name) {
				on[i] = o.byName(p.Cluster)
			}
		}
	}
	return on
}

// replicas of the instance, by cluster.
func (w *world) replicas(o *order) map[string]int64 {
	has := map[string]int64{}
	for _, h := range w.held {
		for cluster, resources := range h.Held {
			if h.Instance == o.ID {
				n := int64(1 << 40)
				for name, amount := range o.Resources {
					if amount > 0 {
						n = min(n, resources[name]/amount)
					}
				}
				has[cluster] = n
			}
		}
	}
	return has
}

// settle makes the decision what the instance holds and where it is.
func (w *world) settle(o *order, d placement.Decision) {
	h := placement.Holding{Instance: o.ID, Consumer: o.Consumer, Held: map[string]placement.Resources{}, Prices: map[string]placement.Resources{}, Pods: map[string][]placement.Resources{}}
	o.Current, o.ComponentClusters = nil, map[string]string{}
	for _, p := range d.Placements {
		h.Held[p.Cluster], h.Pods[p.Cluster] = p.Reserved, p.LargestPods
		if p.Price != nil {
			h.Prices[p.Cluster] = placement.Resources{priceIn(p.Price.Currency): p.Price.NanoPerHour}
		}
		for _, component := range p.Components {
			o.ComponentClusters[component] = p.Cluster
		}
		if len(o.Components) == 0 {
			o.Current = append(o.Current, p.Cluster)
		}
	}
	w.held = append(slices.DeleteFunc(w.held, func(h placement.Holding) bool { return h.Instance == o.ID }), h)
}

// renew replaces some clusters by others of their names.
func (w *world) renew(n int) {
	for range n {
		i := w.IntN(len(w.clusters))
		w.clusters[i] = w.cluster(w.clusters[i].Name)
	}
}

// change changes the world, and what is asked for, as an update does.
func (w *world) change(o *order) {
	w.renew(w.IntN(3))
	if o.Replicas > 0 {
		o.Replicas = 1 + w.IntN(14)
	}
	if o.kind != "one" && w.one(2) {
		o.Clusters = 1 + w.IntN(5)
	}
	if w.one(3) {
		o.Resources[cpu] += int64(w.IntN(3)) * 1000
	}
}

// move makes the instance leave a cluster that it is on.
func (w *world) move(o *order) {
	if len(o.Components) > 0 {
		left := o.ComponentClusters[o.Components[0].Name]
		maps.DeleteFunc(o.ComponentClusters, func(_, cluster string) bool { return cluster == left })
		o.Leaving = []string{left}
		return
	}
	o.Leaving, o.Current = o.Current[:1:1], o.Current[1:]
}

// Thousands of small fleets and requests, each new, then as an update and as a move: the engine and the oracle agree on
// whether it can be placed, on every score, and on what the best choice is worth.
func TestTheEngineAgreesWithTheDocumentation(t *testing.T) {
	n := &judged{cases: map[string]int{}, placed: map[string]int{}}
	for seed := range uint64(*oracleCases) {
		w := newWorld(seed)
		o := w.order()
		d, placed := n.judge(t, seed, w, o, o.kind)
		if placed {
			w.settle(o, d)
			w.change(o)
			if d, placed = n.judge(t, seed, w, o, o.kind+", update"); placed {
				w.settle(o, d)
				n.judgeFree(t, seed, w, *o)
				w.move(o)
				n.judge(t, seed, w, o, o.kind+", move")
			}
		}
		if t.Failed() {
			return
		}
	}
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(n.cases)) {
		total += n.cases[kind]
		t.Logf("%-26s %7d cases, %7d placed", kind, n.cases[kind], n.placed[kind])
		if n.placed[kind] == 0 && *oracleCases >= 2000 {
			t.Errorf("nothing of kind %s is placed", kind)
		}
	}
	t.Logf("%d cases, %d moves proposed", total, n.proposed)
	if n.proposed == 0 && *oracleCases >= 2000 {
		t.Error("no move is proposed")
	}
}

// digest decides and explains many orders, and returns a hash of all that is said.
func digest(worlds int) string {
	hash := sha256.New()
	for seed := range uint64(worlds) {
		w := newWorld(seed)
		o := w.order()
		s := w.inventory().Snapshot()
		r := s.Govern(o.Request, o.Consumer)
		d, err := placement.Place(r, s)
		text, _ := json.Marshal([]any{d, fmt.Sprint(err), placement.Explain(r, s)})
		hash.Write(text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// The same orders are decided and explained the same in another process.
func TestDecisionsAreTheSameInAnotherProcess(t *testing.T) {
	const question = "SLUICE_ORACLE_DIGEST"
	if os.Getenv(question) != "" {
		fmt.Println("digest", digest(*oracleCases/2))
		return
	}
	command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-oracle", fmt.Sprint(*oracleCases))
	command.Env = append(os.Environ(), question+"=1")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if here := digest(*oracleCases / 2); !strings.Contains(string(out), "digest "+here) {
		t.Errorf("here it is %s, there %s", here, out)
	}
}
