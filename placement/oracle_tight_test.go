package placement_test

import (
	"fmt"
	"slices"
	"testing"
)

// tight makes a fleet of clusters that are much alike, and asks for nearly as many replicas as they take.
func (w *world) tight() *order {
	w.plain, w.clusters, w.held, w.quota = true, nil, nil, nil
	for i := range 4 + w.IntN(5) {
		w.clusters = append(w.clusters, w.cluster(fmt.Sprintf("c%d", i)))
	}
	o := w.order()
	for o.Replicas == 0 {
		o = w.order()
	}
	w.crowd(o)
	return o
}

// crowd asks for three fifths to all of the replicas that the roomiest clusters take.
func (w *world) crowd(o *order) {
	a := newOracle(w, o)
	clusters, _ := a.count()
	var rooms []int
	for _, c := range w.clusters {
		if a.fits(c, nil) {
			rooms = append(rooms, int(a.capacity(c)))
		}
	}
	slices.Sort(rooms)
	all := 0
	for _, room := range rooms[max(len(rooms)-clusters, 0):] {
		all += room
	}
	o.Replicas = max(all*(60+w.IntN(41))/100, 1)
}

// Where room is scarce, replicas are on the best clusters that take all of them: at first, after an update, and if the
// instance may leave its clusters.
func TestReplicasWhereRoomIsScarce(t *testing.T) {
	n := &judged{cases: map[string]int{}, placed: map[string]int{}}
	for seed := range uint64(*oracleCases / 2) {
		w := newWorld(seed)
		o := w.tight()
		d, placed := n.judge(t, seed, w, o, o.kind)
		if placed {
			w.settle(o, d)
			w.renew(w.IntN(3))
			o.Clusters = 1 + w.IntN(5)
			w.crowd(o)
			if d, placed = n.judge(t, seed, w, o, o.kind+", update"); placed {
				w.settle(o, d)
				n.judgeFree(t, seed, w, *o)
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Log(n.placed)
}
