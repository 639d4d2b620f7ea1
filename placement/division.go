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
	return min(e.capacity(at), int64(e.request.Replicas))
}

// mostCapacity bounds the capacity of a cluster, so that sums and products of it are exact.
const mostCapacity = 1 << 40

// capacity returns how many replicas fit on a cluster, however many are asked for.
func (e *evaluation) capacity(at position) int64 {
	capacity := int64(mostCapacity)
	if e.request.atBest && !at.page.known(at.row) {
		return capacity // it is not known
	}
	for _, n := range e.scorer.needs {
		free := at.page.column(n.column).left(e.request.atBest)[at.row] + at.held[n.name] - e.request.Common[n.name]
		if each := e.request.Resources[n.name]; each > 0 {
			capacity = min(capacity, max(free, 0)/each)
		} else if free < 0 {
			return 0
		}
	}
	if len(e.spoken) > 0 && e.spoken[at.cluster().Name] != "" {
		capacity = min(capacity, e.replicasHeld(at))
	}
	return capacity
}

// replicasHeld returns how many replicas an instance already has on a cluster.
func (e *evaluation) replicasHeld(at position) int64 {
	held := int64(math.MaxInt64)
	for name, amount := range e.request.Resources {
		if amount > 0 {
			held = min(held, max(at.held[name]-e.request.Common[name], 0)/amount)
		}
	}
	if held == math.MaxInt64 {
		return 0
	}
	return held
}

// share of one cluster of the replicas: between two bounds, by its weight.
type share struct {
	of          *candidate
	least, most int64
	weight      int64
	given       int64
	remainder   int64
}

// divide gives each chosen cluster its replicas: at least one, at most its room, and in sum the
// requested number. The clusters must have room for them.
//
// Replicas stay on their clusters: if more are requested, no cluster loses any; if fewer, no cluster
// gets more.
func (e *evaluation) divide(chosen []candidate) {
	asked := int64(e.request.Replicas)
	shares, there := make([]share, len(chosen)), int64(0)
	for i := range chosen {
		s := &shares[i]
		*s = share{of: &chosen[i], least: 1, most: e.room(chosen[i].position), weight: e.weight(chosen[i].position)}
		s.given = max(min(e.replicasHeld(chosen[i].position), s.most), 1)
		there += s.given
	}
	for i := range shares {
		if s := &shares[i]; there <= asked {
			s.least = s.given
		} else {
			s.most = s.given
		}
	}
	if e.request.Division.By == v1alpha1.DivideByPrice {
		fillCheapest(shares, asked)
	} else {
		apportion(shares, asked)
	}
	for i := range shares {
		shares[i].of.replicas = shares[i].given
	}
}

// apportion divides a number by weights and largest remainders (Hamilton's method). A cluster
// whose share by weight is outside its bounds gets the nearest bound, and the others divide the
// rest by their weights. The number must be between the sums of the bounds.
func apportion(shares []share, number int64) {
	free := make([]*share, len(shares))
	for i := range shares {
		free[i] = &shares[i]
	}
	free, rest := withinBounds(free, number)
	var weights, given int64
	for _, s := range free {
		weights += s.weight
	}
	for _, s := range free {
		s.given, s.remainder = rest*s.weight/weights, rest*s.weight%weights
		given += s.given
	}
	slices.SortStableFunc(free, func(a, b *share) int { return cmp.Compare(b.remainder, a.remainder) })
	for _, s := range free[:rest-given] {
		s.given++
	}
}

// withinBounds gives the clusters whose share is not between their bounds the nearest bound. It
// returns the others, and what is left for them.
//
// In each round either the shares below their bound are too small by more in sum than those
// above are too large, or the other way round. The shares of the larger side stay outside their bound
// whatever becomes of the smaller side, so they are settled first.
func withinBounds(free []*share, rest int64) ([]*share, int64) {
	for {
		var weights, below, above int64
		for _, s := range free {
			weights += s.weight
		}
		for _, s := range free { // both sums in units of 1/weights
			below += max(s.least*weights-rest*s.weight, 0)
			above += max(rest*s.weight-s.most*weights, 0)
		}
		if below == 0 && above == 0 {
			return free, rest
		}
		var others []*share
		settled := int64(0)
		for _, s := range free {
			switch {
			case below >= above && rest*s.weight < s.least*weights:
				s.given = s.least
			case below <= above && rest*s.weight > s.most*weights:
				s.given = s.most
			default:
				others = append(others, s)
				continue
			}
			settled += s.given
		}
		free, rest = others, rest-settled
	}
}

// weight returns the weight of a cluster in the division, at least 1.
func (e *evaluation) weight(at position) int64 {
	switch e.request.Division.By {
	case v1alpha1.DivideByCapacity:
		return max(e.capacity(at), 1)
	case v1alpha1.DivideByWeight:
		for _, w := range e.request.Division.Weights {
			if w.Selector.Matches(at.cluster().Labels) {
				return max(w.Weight, 1)
			}
		}
	}
	return 1
}

// fillCheapest gives the cheapest cluster as many as its bounds allow, then the next. Prices in
// another currency than the common one come last.
func fillCheapest(shares []share, number int64) {
	order := make([]*share, len(shares))
	for i := range shares {
		order[i] = &shares[i]
		order[i].given = order[i].least
		number -= order[i].least
	}
	slices.SortStableFunc(order, func(a, b *share) int { return cmp.Compare(a.of.price, b.of.price) })
	for _, s := range order {
		more := min(number, s.most-s.given)
		s.given += more
		number -= more
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
