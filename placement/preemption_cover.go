package placement

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// cover finds the cheapest victims that together release what is lacking, by branch and bound.
type cover struct {
	victims []victim // by priority
	gives   [][]int64
	// most[i] and all[i] are, of the victims from i on, the most that a single one releases,
	// and what they release together.
	most, all [][]int64
	// lowest[i] is the lowest priority of the victims from i on, and next[i] the first victim after i
	// that has another priority or releases something else.
	lowest  []int64
	next    []int
	subsets *int
	first   int // subsets that were tried on other clusters

	chosen   []int
	sum      int64
	best     []int
	bestCost cost
}

// lacking returns the resources of which a cluster has too little left for what is needed, apart from what is held there,
// and how much of each.
func (x *search) lacking(at position, needs, held Resources) (names []corev1.ResourceName, lacks []int64) {
	for _, name := range needs.names() {
		if _, class := v1alpha1.StorageClassOf(name); class {
			continue
		}
		if short := needs[name] - held[name] - at.page.column(x.snapshot.columnOf(name)).free[at.row]; short > 0 && needs[name] > 0 {
			names, lacks = append(names, name), append(lacks, short)
		}
	}
	return names, lacks
}

// cover returns what a cluster lacks for what is needed there, and the possible victims; nil if nothing is lacking.
func (x *search) cover(at position, needs, held Resources) (c *cover, lacks []int64) {
	lacking, lacks := x.lacking(at, needs, held)
	if len(lacking) == 0 {
		return nil, nil
	}
	victims := x.victims(at.cluster().Name)
	c = &cover{subsets: &x.subsets, victims: make([]victim, 0, len(victims)), gives: table[int64](len(victims), len(lacking))}
	for _, v := range victims {
		gives := c.gives[len(c.victims)]
		for i, name := range lacking {
			gives[i] = v.Resources[name]
		}
		if slices.Max(gives) > 0 {
			c.victims = append(c.victims, v)
		}
	}
	return c, lacks
}

// table returns rows of zeros.
func table[T int64 | uint8](rows, columns int) [][]T {
	all, cells := make([][]T, rows), make([]T, rows*columns)
	for i := range all {
		all[i] = cells[i*columns : (i+1)*columns]
	}
	return all
}

// of returns the victims of these numbers.
func (c *cover) of(numbers []int) (victims []victim) {
	for _, i := range numbers {
		victims = append(victims, c.victims[i])
	}
	return victims
}

// enough returns the first victim that, with all before it, releases everything that is
// lacking; false if all together are not enough.
func (c *cover) enough(lacks []int64) (last int, ok bool) {
	given := make([]int64, len(lacks))
	for i := range c.victims {
		for k := range lacks {
			given[k] += c.gives[i][k]
		}
		if covers(given, lacks) {
			return i, true
		}
	}
	return 0, false
}

// least returns the cheapest victims, at most mostVictims; false if so many are not enough.
func (c *cover) least(lacks []int64) (best []int, ok bool) {
	// Victims of a higher priority than is needed at all cannot be part of the best set. A
	// higher one is needed where too many of the lower ones would have to leave.
	enough, ok := c.enough(lacks)
	if !ok {
		return nil, false
	}
	victims, gives := c.victims, c.gives
	for end := enough + 1; end <= len(victims); end++ {
		if highest := victims[end-1].class.Value; end == len(victims) || victims[end].class.Value > highest {
			c.victims, c.gives = victims[:end], gives[:end]
			if c.search(lacks, victims[enough].class.Value < highest); c.best != nil {
				c.bestCost.highest = highest
				return c.best, true
			}
		}
	}
	return nil, false
}

// within returns the cheapest victims of at most a priority, which counts as that of each of them.
func (c *cover) within(lacks []int64, highest int32) (best []int, ok bool) {
	end := 0
	for end < len(c.victims) && c.victims[end].class.Value <= highest {
		end++
	}
	c.victims, c.gives = c.victims[:end], c.gives[:end]
	enough, ok := c.enough(lacks)
	if !ok {
		return nil, false
	}
	c.search(lacks, c.victims[enough].class.Value < highest)
	c.bestCost.highest = highest
	return c.best, c.best != nil
}

// search looks for the best set of the victims. few means that the lower classes alone would be too
// many.
func (c *cover) search(lacks []int64, few bool) {
	c.largestFirst(few)
	n := len(c.victims)
	c.most, c.all = table[int64](n+1, len(lacks)), table[int64](n+1, len(lacks))
	c.lowest, c.next = make([]int64, n+1), make([]int, n)
	c.lowest[n] = math.MaxInt32
	for i := n - 1; i >= 0; i-- {
		c.lowest[i], c.next[i] = min(c.lowest[i+1], int64(c.victims[i].class.Value)), i+1
		if i+1 < n && c.victims[i].class.Value == c.victims[i+1].class.Value && slices.Equal(c.gives[i], c.gives[i+1]) {
			c.next[i] = c.next[i+1]
		}
		for k, gives := range c.gives[i] {
			c.most[i][k], c.all[i][k] = max(c.most[i+1][k], gives), c.all[i+1][k]+gives
		}
	}
	c.first = *c.subsets
	c.try(0, lacks)
}

// largestFirst orders victims so that the search finds good sets early: by priority and then by what
// they release, or the other way round if there have to be few.
func (c *cover) largestFirst(few bool) {
	order := make([]int, len(c.victims))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		class, size := cmp.Compare(c.victims[a].class.Value, c.victims[b].class.Value), slices.Compare(c.gives[b], c.gives[a])
		if few {
			return cmp.Or(size, class)
		}
		return cmp.Or(class, size)
	})
	victims, gives := make([]victim, len(order)), make([][]int64, len(order))
	for i, from := range order {
		victims[i], gives[i] = c.victims[from], c.gives[from]
	}
	c.victims, c.gives = victims, gives
}

// leastSubsets are tried on each cluster, however many were tried on others.
const leastSubsets = 1000

// try tries the victims from i on, while lacks is still lacking.
func (c *cover) try(i int, lacks []int64) {
	if done := slices.Max(lacks) <= 0; done {
		if now := (cost{sum: c.sum, count: len(c.chosen)}); c.best == nil || now.compare(c.bestCost) < 0 {
			c.best, c.bestCost = slices.Clone(c.chosen), now
		}
		return
	}
	*c.subsets++
	least := int64(0) // at least this many more are needed
	for k, lack := range lacks {
		if lack > c.all[i][k] {
			return
		}
		if lack > 0 {
			least = max(least, (lack+c.most[i][k]-1)/c.most[i][k])
		}
	}
	if len(c.chosen)+int(least) > mostVictims || *c.subsets > mostSubsets && *c.subsets > c.first+leastSubsets {
		return
	}
	if c.best != nil {
		bound := cost{sum: c.sum + least*c.lowest[i], count: len(c.chosen) + int(least)}
		if bound.compare(c.bestCost) >= 0 {
			return
		}
	}
	rest := make([]int64, len(lacks))
	for k := range lacks {
		rest[k] = lacks[k] - c.gives[i][k]
	}
	c.chosen, c.sum = append(c.chosen, i), c.sum+int64(c.victims[i].class.Value)
	c.try(i+1, rest)
	c.chosen, c.sum = c.chosen[:len(c.chosen)-1], c.sum-int64(c.victims[i].class.Value)
	c.try(c.next[i], lacks) // without another one of the same
}

func covers(given, lacks []int64) bool {
	for k := range lacks {
		if given[k] < lacks[k] {
			return false
		}
	}
	return true
}
