package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Division is the way in which replicas are divided over the chosen clusters.
type Division struct {
	By v1alpha1.Division
	// Weights of clusters, if By is weight: the one of the first selector that matches, or 1.
	Weights []ClusterWeight
}

// ClusterWeight is the weight of the clusters that a selector matches.
type ClusterWeight struct {
	Selector labels.Selector
	Weight   int64
}

func divisionOf(from *v1alpha1.Replicas) (Division, error) {
	if from == nil {
		return Division{}, nil
	}
	d := Division{By: from.Divide}
	for i := range from.Weights {
		selector, err := metav1.LabelSelectorAsSelector(&from.Weights[i].Selector)
		if err != nil {
			return Division{}, fmt.Errorf("replicas.weights[%d]: %w", i, err)
		}
		d.Weights = append(d.Weights, ClusterWeight{selector, int64(from.Weights[i].Weight)})
	}
	return d, nil
}

// room returns how many replicas fit on a cluster, at most all of them.
func (e *evaluation) room(at position) int64 {
	room := int64(e.request.Replicas)
	if e.request.atBest && !at.page.known(at.row) {
		return room // its capacity is not known
	}
	for _, n := range e.scorer.needs {
		room = min(room, max(at.page.column(n.column).left(e.request.atBest)[at.row]+at.held[n.name], 0)/n.amount)
	}
	return room
}

// replicasHeld returns how many replicas an instance already has on a cluster.
func (e *evaluation) replicasHeld(at position) int64 {
	held := int64(math.MaxInt64)
	for name, amount := range e.request.Resources {
		if amount > 0 {
			held = min(held, at.held[name]/amount)
		}
	}
	if held == math.MaxInt64 {
		return 0
	}
	return held
}

// divide gives each chosen cluster its replicas: at least one, at most its room, and in sum the
// requested number. The clusters must have room for them.
//
// A cluster that the instance is on keeps its replicas as far as possible, so that a change of
// the number moves only the difference. The rest follows the weights by largest remainder
// (Hamilton's method); full clusters drop out.
func (e *evaluation) divide(chosen []candidate) {
	left := int64(e.request.Replicas)
	for i := range chosen {
		chosen[i].replicas = 1
		left--
	}
	for i := range chosen { // existing replicas stay
		if keep := min(e.replicasHeld(chosen[i].position), e.room(chosen[i].position)) - 1; keep > 0 {
			keep = min(keep, left)
			chosen[i].replicas += keep
			left -= keep
		}
	}
	if e.request.Division.By == v1alpha1.DivideByPrice {
		e.fillCheapest(chosen, left)
		return
	}
	for left > 0 {
		left -= e.apportion(chosen, left)
	}
}

// apportion gives out up to left replicas by weight and returns how many.
func (e *evaluation) apportion(chosen []candidate, left int64) (given int64) {
	type share struct {
		of        *candidate
		open      int64
		weight    int64
		remainder int64
	}
	var shares []share
	var sum int64
	for i := range chosen {
		if open := e.room(chosen[i].position) - chosen[i].replicas; open > 0 {
			weight := e.weight(chosen[i].position)
			shares = append(shares, share{of: &chosen[i], open: open, weight: weight})
			sum += weight
		}
	}
	for i := range shares {
		s := &shares[i]
		n := min(left*s.weight/sum, s.open)
		s.remainder = left * s.weight % sum
		s.of.replicas += n
		s.open -= n
		given += n
	}
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(b.remainder, a.remainder) })
	rest := left - given
	for i := range shares {
		if rest > 0 && shares[i].open > 0 {
			shares[i].of.replicas++
			rest--
			given++
		}
	}
	return given
}

// weight returns the weight of a cluster in the division, at least 1.
func (e *evaluation) weight(at position) int64 {
	switch e.request.Division.By {
	case v1alpha1.DivideByCapacity:
		return max(e.room(at), 1)
	case v1alpha1.DivideByWeight:
		for _, w := range e.request.Division.Weights {
			if w.Selector.Matches(at.cluster().Labels) {
				return max(w.Weight, 1)
			}
		}
	}
	return 1
}

// fillCheapest gives replicas to the cheapest cluster with room, then to the next. Prices in
// another currency than the common one come last.
func (e *evaluation) fillCheapest(chosen []candidate, left int64) {
	order := make([]*candidate, len(chosen))
	for i := range chosen {
		order[i] = &chosen[i]
	}
	slices.SortStableFunc(order, func(a, b *candidate) int { return cmp.Compare(a.price, b.price) })
	for _, c := range order {
		more := min(left, e.room(c.position)-c.replicas)
		c.replicas += more
		left -= more
	}
}

// cramped is the message that clusters have too little room for all replicas.
func (e *evaluation) cramped(chosen []candidate) string {
	var room int64
	for _, c := range chosen {
		room += e.room(c.position)
	}
	return fmt.Sprintf("the %d clusters with the most room take %d of %d replicas", len(chosen), room, e.request.Replicas)
}
