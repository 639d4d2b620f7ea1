package placement_test

import (
	"iter"
	"math/big"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// The choice among the clusters that fit, by trying all.

// worth orders choices: those that stay, then the even ones, then those that score most.
type worth struct{ kept, uneven, score int64 }

func (a worth) better(b worth) bool {
	switch {
	case a.kept != b.kept:
		return a.kept > b.kept
	case a.uneven != b.uneven:
		return a.uneven < b.uneven
	}
	return a.score > b.score
}

// count is how many clusters and groups are asked for; groups is 0 if their number is not given.
func (o *oracle) count() (clusters, groups int) {
	clusters = max(o.Clusters, 1)
	if o.Replicas > 0 {
		clusters = min(clusters, o.Replicas)
	}
	switch {
	case o.Spread == nil, o.Spread.Weight > 0, o.Spread.MinGroups > 0:
		return clusters, 0
	case o.Spread.Each:
		all := map[string]bool{}
		for _, c := range o.clusters {
			if o.shaped(c, nil) {
				all[o.group(c)] = true
			}
		}
		return len(all), len(all)
	case o.Spread.Groups == 0:
		return clusters, clusters
	}
	return clusters, min(o.Spread.Groups, clusters)
}

// capacity is how many replicas fit on a cluster.
func (o *oracle) capacity(c *placement.Cluster) int64 {
	capacity := int64(1 << 40)
	for _, name := range countable {
		if o.Resources[name] > 0 {
			capacity = min(capacity, o.free(c, name)/o.Resources[name])
		}
	}
	return capacity
}

// valid reports whether a choice keeps the rules, and what it is worth. All of it fits.
func (o *oracle) valid(choice []*placement.Cluster) (w worth, ok bool) {
	clusters, groups := o.count()
	if len(choice) != clusters || clusters == 0 || o.Replicas > 0 && o.Replicas < clusters {
		return w, false
	}
	numbers, room := map[string]int64{}, int64(0)
	for _, c := range choice {
		if o.keeps() && slices.Contains(o.Current, c.Name) {
			w.kept++
		}
		w.score += o.score(c, nil)
		room += o.capacity(c)
		if o.Spread != nil {
			numbers[o.group(c)]++
		}
	}
	switch {
	case o.Spread == nil:
	case o.Spread.Weight > 0:
		w.score = o.withSpread(w.score, clusters, numbers)
	default:
		if w.uneven, ok = o.keepsSpread(numbers, clusters, groups); !ok {
			return w, false
		}
	}
	return w, (!o.keeps() || w.kept == int64(min(clusters, len(o.Current)))) && (o.Replicas == 0 || room >= int64(o.Replicas))
}

// keepsSpread reports whether the numbers of clusters in groups are as the spread requires, and the sum of their squares.
func (o *oracle) keepsSpread(numbers map[string]int64, clusters, groups int) (squares int64, ok bool) {
	least, most := int64(clusters), int64(0)
	for _, n := range numbers {
		least, most, squares = min(least, n), max(most, n), squares+n*n
	}
	s := o.Spread
	switch {
	case groups > 0 && len(numbers) != groups, groups == 0 && len(numbers) < min(s.MinGroups, clusters):
		return 0, false
	case s.MinPerGroup > 0 && least < int64(s.MinPerGroup), s.MaxPerGroup > 0 && most > int64(s.MaxPerGroup):
		return 0, false
	}
	return squares, most-least <= int64(max(s.MaxSkew, 1))
}

// withSpread is the sum of the scores of a choice, in which the spread counts as a score; times all weights and the
// number of the other clusters of each.
func (o *oracle) withSpread(scores int64, clusters int, numbers map[string]int64) int64 {
	if clusters == 1 {
		return scores
	}
	elsewhere := int64(0) // for each cluster, those of the others that are in other groups
	for _, n := range numbers {
		elsewhere += n * (int64(clusters) - n)
	}
	return scores*o.totalWeight()*int64(clusters-1) + 100*int64(o.Spread.Weight)*elsewhere
}

// totalWeight is the sum of the weights of all scores.
func (o *oracle) totalWeight() int64 {
	w := o.weights()
	_, all := o.preferred(o.clusters[0])
	return all + int64(w.Fit+w.Balance+w.Pack+w.Price+w.Latency+w.Locality+w.Freshness+w.Diversity+w.External)
}

// choices yields all sets of clusters that fit.
func (o *oracle) choices() iter.Seq[[]*placement.Cluster] {
	var fitting []*placement.Cluster
	for _, c := range o.clusters {
		if o.fits(c, nil) {
			fitting = append(fitting, c)
		}
	}
	return func(yield func([]*placement.Cluster) bool) {
		for some := range 1 << len(fitting) {
			var choice []*placement.Cluster
			for i, c := range fitting {
				if some&(1<<i) != 0 {
					choice = append(choice, c)
				}
			}
			if !yield(choice) {
				return
			}
		}
	}
}

// best is the greatest worth of all valid choices; false if there is none.
func (o *oracle) best() (best worth, found bool) {
	for choice := range o.choices() {
		if w, ok := o.valid(choice); ok && (!found || w.better(best)) {
			best, found = w, true
		}
	}
	return best, found
}

// bounds are the least and the most replicas that a cluster may get, and its weight.
type bounds struct{ least, most, weight, given int64 }

// divided reports whether replicas are divided as the documentation says.
func (o *oracle) divided(placed []placement.Placement, before map[string]int64) bool {
	var all []bounds
	there := int64(0)
	for _, p := range placed {
		c := o.byName(p.Cluster)
		b := bounds{least: 1, most: min(o.capacity(c), int64(o.Replicas)), weight: 1, given: int64(p.Replicas)}
		switch o.Division.By {
		case v1alpha1.DivideByWeight:
			if c.Labels["class"] == "gold" {
				b.weight = o.Division.Weights[0].Weight
			}
		case v1alpha1.DivideByCapacity:
			b.weight = o.capacity(c)
		}
		there += max(1, min(before[p.Cluster], b.most))
		all = append(all, b)
	}
	for i, p := range placed {
		if has := max(1, min(before[p.Cluster], all[i].most)); there <= int64(o.Replicas) {
			all[i].least = has
		} else {
			all[i].most = has
		}
		if all[i].given < all[i].least || all[i].given > all[i].most {
			return false
		}
	}
	if o.Division.By == v1alpha1.DivideByPrice {
		return o.cheapestFirst(placed, all)
	}
	return hamilton(all, int64(o.Replicas))
}

// cheapestFirst reports whether no replica could be on a cheaper cluster.
func (o *oracle) cheapestFirst(placed []placement.Placement, all []bounds) bool {
	currency, _ := o.market(nil)
	cost := func(i int) int64 {
		c := o.byName(placed[i].Cluster)
		if price, priced := o.price(c, o.Resources); priced && c.Currency == currency {
			return price
		}
		if currency == "" {
			return 0
		}
		return 1 << 60
	}
	for i := range all {
		for k := range all {
			if cost(i) < cost(k) && all[i].given < all[i].most && all[k].given > all[k].least {
				return false
			}
		}
	}
	return true
}

// hamilton reports whether the numbers are shares by weight between the bounds, rounded by largest remainder: there is
// a factor f such that the numbers min(max(f·weight, least), most) sum up to what is asked for. It is between two of the
// factors at which a share meets a bound, and the sum is linear in between.
func hamilton(all []bounds, asked int64) bool {
	rat := func(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
	exact := func(f *big.Rat, b bounds) *big.Rat {
		s := new(big.Rat).Mul(f, rat(b.weight))
		if s.Cmp(rat(b.least)) < 0 {
			return rat(b.least)
		}
		if s.Cmp(rat(b.most)) > 0 {
			return rat(b.most)
		}
		return s
	}
	sum := func(f *big.Rat) *big.Rat {
		total := new(big.Rat)
		for _, b := range all {
			total.Add(total, exact(f, b))
		}
		return total
	}
	var meets []*big.Rat
	for _, b := range all {
		meets = append(meets, big.NewRat(b.least, b.weight), big.NewRat(b.most, b.weight))
	}
	slices.SortFunc(meets, func(a, b *big.Rat) int { return a.Cmp(b) })
	f := meets[0]
	for i := 1; i < len(meets) && sum(f).Cmp(rat(asked)) < 0; i++ {
		low, high := sum(meets[i-1]), sum(meets[i])
		if f = meets[i]; high.Cmp(rat(asked)) >= 0 && high.Cmp(low) > 0 {
			part := new(big.Rat).Quo(new(big.Rat).Sub(rat(asked), low), new(big.Rat).Sub(high, low))
			f = new(big.Rat).Add(meets[i-1], part.Mul(part, new(big.Rat).Sub(meets[i], meets[i-1])))
		}
	}
	given := int64(0)
	upLeast, downMost := big.NewRat(2, 1), big.NewRat(-1, 1) // remainders of those rounded up and down
	for _, b := range all {
		given += b.given
		s := exact(f, b)
		remainder := new(big.Rat).Sub(s, rat(new(big.Int).Quo(s.Num(), s.Denom()).Int64()))
		switch off := new(big.Rat).Sub(rat(b.given), s); {
		case off.Cmp(rat(1)) >= 0 || off.Cmp(rat(-1)) <= 0:
			return false
		case off.Sign() > 0 && remainder.Cmp(upLeast) < 0:
			upLeast = remainder
		case off.Sign() < 0 && remainder.Cmp(downMost) > 0:
			downMost = remainder
		}
	}
	return given == asked && upLeast.Cmp(downMost) >= 0
}

// bestTogether is the greatest sum of scores of all combinations of clusters for components.
func (o *oracle) bestTogether() (best int64, found bool) {
	on := make([]*placement.Cluster, len(o.Components))
	var try func(i int)
	try = func(i int) {
		if i == len(on) {
			if score, ok := o.together(on); ok && (!found || score > best) {
				best, found = score, true
			}
			return
		}
		for _, c := range o.clusters {
			on[i] = c
			try(i + 1)
		}
	}
	try(0)
	return best, found
}

// together reports whether a combination keeps the rules, and the sum of its scores.
func (o *oracle) together(on []*placement.Cluster) (score int64, ok bool) {
	used, cost := map[string]int64{}, map[string]int64{}
	for i := range on {
		component := &o.Components[i]
		if home := o.ComponentClusters[component.Name]; home != "" && home != on[i].Name && o.keeps() {
			if !component.Moves || o.fits(o.byName(home), component) {
				return 0, false // it stays
			}
		}
		if !o.fits(on[i], component) {
			return 0, false
		}
		price, _ := o.price(on[i], component.Resources)
		used[on[i].Name] += component.Resources[cpu]
		cost[on[i].Name] += price
		score += o.score(on[i], component)
	}
	for name, sum := range used {
		if sum > o.free(o.byName(name), cpu) || o.MaxPrice != nil && cost[name] > o.MaxPrice.NanoPerHour {
			return 0, false
		}
	}
	for _, link := range o.Links {
		if a, b := on[link.Between[0]], on[link.Between[1]]; a != b && link.Most != placement.AnyLatency {
			there, known := a.Latencies[b.Name]
			back, alsoKnown := b.Latencies[a.Name]
			if !(known && there.Median <= link.Most) && !(alsoKnown && back.Median <= link.Most) {
				return 0, false
			}
		}
	}
	return score, true
}
