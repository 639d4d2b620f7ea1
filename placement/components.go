package placement

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// Components of an application are placed together: all of them or none. Each must be on a
// cluster that fits it, and linked components must be near enough to each other. Of the
// possible combinations the one with the highest sum of scores is chosen, by branch and bound:
// one component after the other, the best clusters first, and no further if the sum cannot
// exceed the best found so far.

// Component is a part of an application.
type Component struct {
	Name      string
	Resources Resources
	// Selector and Tier in addition to the request's own; nil and empty add nothing.
	Selector labels.Selector
	Tier     v1alpha1.Tier
	// Public means that it has a public port.
	Public bool
	// Moves means that it may leave a cluster that does not fit any more: nothing of it is only there.
	Moves bool
}

// Link limits the latency between the clusters of two components, given by their indices.
type Link struct {
	Between [2]int
	Most    time.Duration
	// Connects means that the two talk to each other, so that Liqo must be able to peer their clusters.
	Connects bool
}

// AnyLatency as Most of a link sets no limit; the latency may be unknown too.
const AnyLatency = time.Duration(math.MaxInt64)

// spans reports whether the ends of a link may be on two clusters.
func (l Link) spans(a, b *Cluster) bool {
	if a == b {
		return true
	}
	if l.Connects && !(a.hasNetwork() && b.hasNetwork()) {
		return false
	}
	between, measured := latency(a, b)
	return l.Most == AnyLatency || measured && between <= l.Most
}

// hasNetwork reports whether Sluice can make Liqo connect the cluster with others.
func (c *Cluster) hasNetwork() bool {
	return c.Liqo != nil && c.Liqo.Joined == nil && v1alpha1.HasModule(c.Liqo.Modules, v1alpha1.ModuleNetworking)
}

// mostCombinations limits the search; at the limit the best combination found so far is taken.
const mostCombinations = 1_000_000

// componentsOf reads the components of a plan. A component takes its own limits, or else the usual
// resources; a component of a workload takes those of the footprint.
func componentsOf(plan *catalog.Plan, usual Resources, footprint *catalog.Footprint) (components []Component, links []Link, err error) {
	for i := range plan.Resources.Components {
		from := &plan.Resources.Components[i]
		c := Component{Name: from.Name, Resources: usual, Tier: from.Tier}
		if len(from.Limits) > 0 {
			c.Resources = ResourcesOf(from.Limits)
		}
		if plan.Workload != nil {
			c.Resources, c.Public, c.Moves = ResourcesOf(footprint.Components[c.Name]), plan.Workload.HasPublic(c.Name), true
			for name := range c.Resources {
				c.Moves = c.Moves && !v1alpha1.IsStorage(name)
			}
		}
		if from.Selector != nil {
			if c.Selector, err = metav1.LabelSelectorAsSelector(from.Selector); err != nil {
				return nil, nil, fmt.Errorf("component %s: selector: %w", from.Name, err)
			}
		}
		components = append(components, c)
	}
	at := func(name string) int {
		return slices.IndexFunc(components, func(c Component) bool { return c.Name == name })
	}
	for _, from := range plan.Resources.Links {
		link := Link{Most: AnyLatency, Connects: plan.Workload != nil}
		if from.MaxMilliseconds != nil {
			link.Most = time.Duration(*from.MaxMilliseconds) * time.Millisecond
		}
		for i, name := range from.Between[:2] {
			if link.Between[i] = at(name); link.Between[i] < 0 {
				return nil, nil, fmt.Errorf("links: there is no component %s", name)
			}
		}
		links = append(links, link)
	}
	return components, links, nil
}

// of returns the request of one component.
func (r Request) of(c *Component) Request {
	one := r
	one.Components, one.Links, one.Quotas = nil, nil, nil
	one.Resources, one.Clusters, one.Current, one.Public = c.Resources, 1, nil, c.Public
	if c.Selector != nil {
		requirements, _ := c.Selector.Requirements()
		one.Selector = labels.NewSelector()
		if r.Selector != nil {
			own, _ := r.Selector.Requirements()
			one.Selector = one.Selector.Add(own...)
		}
		one.Selector = one.Selector.Add(requirements...)
	}
	one.Tier = cmp.Or(c.Tier, r.Tier)
	if current := r.ComponentClusters[c.Name]; current != "" {
		one.Current = []string{current}
	}
	return one
}

// assembly is a request with several components during the search.
type assembly struct {
	request  Request
	snapshot *Snapshot
	// evaluations and candidates of each component: the clusters that fit it, best first. Only
	// the best few at first, then all.
	evaluations []*evaluation
	fitting     [][]candidate
	few         bool
	// order in which components are placed: the one with the most links to those before it
	// comes next, and of several the one with the fewest clusters.
	order []int
	// most is the highest score that the components from each position in the order on can
	// still add.
	most []int64

	tried  int
	chosen []candidate // by component, as far as the search has come
	sum    int64
	best   []candidate
	bestAt int64
}

func assemble(r Request, s *Snapshot) *assembly {
	a := &assembly{request: r, snapshot: s, bestAt: -1}
	for i := range r.Components {
		e := evaluate(r.of(&r.Components[i]), s)
		e.joint = true
		a.evaluations = append(a.evaluations, e)
	}
	a.chosen = make([]candidate, len(r.Components))
	a.consider(firstFew)
	return a
}

// firstFew is how many clusters of each component are tried first. They are usually enough to
// prove that the others contain nothing better.
var firstFew = 64

// consider selects the given number of best clusters for each component, or all with 0.
func (a *assembly) consider(most int) {
	a.fitting, a.order, a.few = nil, nil, false
	for i, e := range a.evaluations {
		fitting := slices.Clone(e.current)
		leaves := a.request.Components[i].Moves && len(e.current) == 0
		if len(e.request.Current) == 0 || a.request.Free || leaves {
			if others := e.fittingBest(most); most > 0 && len(others) == most {
				a.few, fitting = true, append(fitting, others...)
			} else {
				fitting = append(fitting, others...)
			}
		}
		for k := range fitting {
			fitting[k].rank = int64(fitting[k].score)
		}
		slices.SortFunc(fitting, better)
		a.fitting = append(a.fitting, fitting)
	}
	a.arrange()
}

// fittingBest returns the given number of best clusters that fit, or all with 0.
func (e *evaluation) fittingBest(most int) []candidate {
	if most > 0 {
		return e.best(most, nil)
	}
	return e.fitting()
}

// proven reports whether no combination with an untried cluster can score more than the best
// found. For each component it adds the rank of its last tried cluster, which no untried one
// exceeds, to the best ranks of all others.
func (a *assembly) proven() bool {
	if !a.few {
		return true
	}
	for _, fitting := range a.fitting {
		if last := fitting[len(fitting)-1].rank; last+a.most[0]-fitting[0].rank > a.bestAt {
			return false
		}
	}
	return a.best != nil
}

// fitting returns the clusters that fit, in no order.
func (e *evaluation) fitting() (all []candidate) {
	for i, p := range e.pages {
		e.scorer.enter(p, e.fits[i])
		for row := range e.fits[i].rows() {
			at := position{page: p, row: row}
			c := candidate{position: at, score: e.scorer.scores[row]}
			e.breakTies(&c)
			all = append(all, c)
		}
	}
	return all
}

// arrange computes the order, and the score that can still be added from each position on.
func (a *assembly) arrange() {
	left := make([]int, len(a.fitting))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		next := slices.MinFunc(left, func(i, k int) int {
			return cmp.Or(cmp.Compare(a.linked(k), a.linked(i)), cmp.Compare(len(a.fitting[i]), len(a.fitting[k])), cmp.Compare(i, k))
		})
		a.order = append(a.order, next)
		left = slices.DeleteFunc(left, func(i int) bool { return i == next })
	}
	a.most = make([]int64, len(a.order)+1)
	for place, i := range slices.Backward(a.order) {
		a.most[place] = a.most[place+1]
		if len(a.fitting[i]) > 0 {
			a.most[place] += a.fitting[i][0].rank
		}
	}
}

// linked counts the links of a component to those in the order.
func (a *assembly) linked(component int) (n int) {
	for _, link := range a.request.Links {
		for side, i := range link.Between {
			if i == component && slices.Contains(a.order, link.Between[1-side]) {
				n++
			}
		}
	}
	return n
}

// choose returns the best combination by component, or why there is none.
func (a *assembly) choose() (chosen []candidate, why string) {
	for i, fitting := range a.fitting {
		if len(fitting) == 0 {
			return nil, fmt.Sprintf("component %s fits nowhere", a.request.Components[i].Name)
		}
	}
	if a.search(0); !a.proven() {
		a.consider(0)
		a.search(0)
	}
	if a.best == nil {
		return nil, "no combination of clusters takes all components: " + a.obstacles()
	}
	return a.best, ""
}

// obstacles lists the limits of a combination, in words.
func (a *assembly) obstacles() string {
	var names []string
	for _, c := range a.request.Components {
		names = append(names, c.Name)
	}
	text := fmt.Sprintf("each of %s fits somewhere", strings.Join(names, ", "))
	for _, link := range a.request.Links {
		between := names[link.Between[0]] + " and " + names[link.Between[1]]
		if link.Connects {
			text += "; " + between + " need one cluster, or two with the driver liqo"
		}
		if link.Most != AnyLatency {
			text += fmt.Sprintf("; %s may be %s apart", between, link.Most)
		}
	}
	return text
}

// search places the components from one position in the order on.
func (a *assembly) search(place int) {
	if place == len(a.order) {
		if a.sum > a.bestAt {
			a.best, a.bestAt = slices.Clone(a.chosen), a.sum
		}
		return
	}
	i := a.order[place]
	for _, c := range a.fitting[i] {
		if a.sum+c.rank+a.most[place+1] <= a.bestAt {
			return // none of the following clusters can be better
		}
		if a.tried++; a.tried > mostCombinations {
			return
		}
		if !a.near(place, i, c) || !a.holds(place, i, c) {
			continue
		}
		a.chosen[i] = c
		a.sum += c.rank
		a.search(place + 1)
		a.sum -= c.rank
	}
}

// near reports whether a cluster for a component satisfies its links to the components placed
// so far. A latency that was not measured does not satisfy a limit.
func (a *assembly) near(place, component int, at candidate) bool {
	if a.request.atBest {
		return true // latencies are measured again
	}
	for _, link := range a.request.Links {
		for side, i := range link.Between {
			other := link.Between[1-side]
			if i != component || !slices.Contains(a.order[:place], other) {
				continue
			}
			if !link.spans(at.cluster(), a.chosen[other].cluster()) {
				return false
			}
		}
	}
	return true
}

// holds reports whether a cluster has room for a component beside those already placed there.
func (a *assembly) holds(place, component int, at candidate) bool {
	var together Resources
	for _, other := range a.order[:place] {
		if a.chosen[other].position.same(at.position) {
			if together == nil {
				together = Resources{}
				together.Add(a.request.Components[component].Resources, 1)
			}
			together.Add(a.request.Components[other].Resources, 1)
		}
	}
	if a.request.atBest && !at.page.known(at.row) {
		return true // its capacity is not known
	}
	held := a.snapshot.Reserved(a.request.ID, at.cluster().Name)
	for name, need := range together {
		if _, class := v1alpha1.StorageClassOf(name); !class && at.page.column(a.snapshot.columnOf(name)).left(a.request.atBest)[at.row]+held[name] < need {
			return false
		}
	}
	return true
}

// narrowest returns the evaluation of the component that fits on the fewest clusters: its
// rejections are the most useful.
func (a *assembly) narrowest() *evaluation {
	at := 0
	for i := range a.fitting {
		if len(a.fitting[i]) < len(a.fitting[at]) {
			at = i
		}
	}
	return a.evaluations[at]
}

// placeTogether is Place for a request with components. There is one placement for each
// cluster, with the reservations of all components on it. The rejections are those of the
// component that fits on the fewest clusters.
func placeTogether(r Request, s *Snapshot) (Decision, error) {
	a := assemble(r, s)
	narrow := a.narrowest()
	failed := func(why string, denied bool) (Decision, error) {
		d := narrow.decision(nil)
		return d, &UnplaceableError{Decision: d, Asked: len(r.Components), Why: why, Denied: denied}
	}
	if why := r.denied(s); why != "" {
		return failed(why, true)
	}
	chosen, why := a.choose()
	if chosen == nil {
		return failed(why, false)
	}
	d := narrow.decision([]candidate{chosen[slices.Index(a.evaluations, narrow)]})
	d.Placements, d.RunnerUp = nil, nil
	for i, c := range chosen {
		name := c.cluster().Name
		at := slices.IndexFunc(d.Placements, func(p Placement) bool { return p.Cluster == name })
		price := a.evaluations[i].scorer.tariff.priceOf(c.position)
		if at < 0 {
			d.Placements = append(d.Placements, Placement{
				Cluster: name, Score: c.score, Reserved: maps.Clone(r.Components[i].Resources), Price: price, Components: []string{r.Components[i].Name},
			})
			continue
		}
		p := &d.Placements[at]
		p.Reserved.Add(r.Components[i].Resources, 1)
		p.Score, p.Components = min(p.Score, c.score), append(p.Components, r.Components[i].Name)
		if p.Price != nil && price != nil {
			p.Price = &Price{p.Price.Currency, p.Price.NanoPerHour + price.NanoPerHour}
		}
	}
	for _, link := range r.Links {
		if a, b := link.Between[0], link.Between[1]; link.Connects && chosen[a].cluster() != chosen[b].cluster() {
			d.link(r.Components[a].Name, r.Components[b].Name)
			d.link(r.Components[b].Name, r.Components[a].Name)
		}
	}
	return d, nil
}

// link notes at the placement of a component that it is linked to another one, on another cluster.
func (d *Decision) link(here, there string) {
	on := func(component string) *Placement {
		return &d.Placements[slices.IndexFunc(d.Placements, func(p Placement) bool { return slices.Contains(p.Components, component) })]
	}
	p := on(here)
	noted := v1alpha1.Placement{Linked: p.Linked}
	noted.Link(here, on(there).Cluster, there)
	p.Linked = noted.Linked
}

// explainTogether is Explain for a request with components: one verdict for each component and
// each cluster.
func explainTogether(r Request, s *Snapshot) (verdicts []Verdict) {
	a := assemble(r, s)
	chosen, _ := a.choose()
	for i, e := range a.evaluations {
		var current []candidate
		if chosen != nil {
			current = chosen[i : i+1]
		}
		for _, v := range e.verdicts(current) {
			v.Component = r.Components[i].Name
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}
