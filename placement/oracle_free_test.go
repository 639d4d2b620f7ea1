package placement_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/placement"
)

// Instances that may leave their clusters for better ones, see Request.Free.

// keeps reports whether the instance stays on its clusters if it can.
func (o *oracle) keeps() bool { return !o.Free }

// judgeFree judges the placement of a settled instance that may leave its clusters, and the move that is proposed to it.
func (n *judged) judgeFree(t *testing.T, seed uint64, w *world, o order) {
	t.Helper()
	w.renew(w.IntN(4))
	o.Free = true
	d, placed := n.judge(t, seed, w, &o, o.kind+", free")
	if len(o.Components) > 0 {
		return
	}
	s := w.inventory().Snapshot()
	r := s.Govern(o.Request, o.Consumer)
	p, holds := placement.Propose(r, s, -100)
	a := newOracle(w, &o)
	var to, now []string
	for _, one := range d.Placements {
		if now = append(now, one.Cluster); !slices.Contains(o.Current, one.Cluster) {
			to = append(to, one.Cluster)
		}
	}
	from := slices.DeleteFunc(slices.Clone(o.Current), func(name string) bool { return slices.Contains(now, name) })
	lost := slices.ContainsFunc(o.Current, func(name string) bool { return !a.fits(w.byName(name), nil) })
	if moves := placed && !lost && len(from) > 0 && len(to) > 0; moves != (p != nil) {
		t.Errorf("seed %d, %s: a move is %t, and proposed is %+v", seed, o.kind, moves, p)
	}
	if p == nil || t.Failed() {
		return
	}
	n.proposed++
	before, after := a.meanScore(o.Current), a.meanScore(now)
	if !slices.Equal(p.From, from) || !slices.Equal(p.To, to) || int64(p.Score) != before || int64(p.Gain) != after-before {
		t.Errorf("seed %d, %s: %+v is proposed, want from %v to %v, %d more than %d", seed, o.kind, p, from, to, after-before, before)
	}
	for _, one := range d.Placements {
		if !maps.Equal(holds.Held[one.Cluster], one.Reserved) || len(holds.Held) != len(d.Placements) {
			t.Errorf("seed %d, %s: it would hold %v, and is placed on %+v", seed, o.kind, holds.Held, d.Placements)
		}
	}
}

// meanScore is the mean score of clusters. A preferred spread counts as one more score of each.
func (o *oracle) meanScore(names []string) int64 {
	scores, numbers := int64(0), map[string]int64{}
	for _, name := range names {
		scores += o.score(o.byName(name), nil)
		if o.Spread != nil {
			numbers[o.group(o.byName(name))]++
		}
	}
	n := int64(len(names))
	if o.Spread == nil || o.Spread.Weight == 0 || n == 1 {
		return scores / n
	}
	elsewhere := int64(0)
	for _, in := range numbers {
		elsewhere += in * (n - in)
	}
	weight := int64(o.Spread.Weight)
	return (scores*o.totalWeight() + 100*weight*elsewhere/(n-1)) / (o.totalWeight() + weight) / n
}
