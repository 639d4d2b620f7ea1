package placement

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
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
	// LargestPods as in Request.
	LargestPods []Resources
	// Selector and Tier in addition to the request's own; nil and empty add nothing.
	Selector labels.Selector
	Tier     v1alpha1.Tier
	// Public lists the protocols of its public ports, and Hosts has the host that is asked for it, as in a Request.
	Public []v1alpha1.AppProtocol
	Hosts  map[string]string
	// Moves means that it may leave a cluster that does not fit any more: nothing of it is only there.
	Moves bool
	// External scores as in a Request.
	External map[string]int32
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

// mostCombinations limits the search; at the limit the best combination found so far is taken,
// and the explanation says so.
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
			c.Resources, c.Public, c.Moves = ResourcesOf(footprint.Components[c.Name]), plan.Workload.Speaks(c.Name), true
			c.LargestPods = podsOf(footprint.LargestPods[c.Name])
			for name := range c.Resources {
				c.Moves = c.Moves && !v1alpha1.IsStorage(name)
			}
			if slices.Contains(footprint.TCP, c.Name) {
				c.Resources = takeTCP(c.Resources, 1)
			}
			if host := footprint.HostOf[c.Name]; host != "" {
				c.Hosts = map[string]string{host: footprint.Hosts[host]}
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
	one.Components, one.Links, one.component, one.External = nil, nil, c.Name, c.External
	one.Resources, one.Clusters, one.Current, one.Public, one.Hosts = c.Resources, 1, nil, c.Public, c.Hosts
	one.LargestPods = c.LargestPods
	one.Pods = slices.DeleteFunc(slices.Clone(r.Pods), func(p catalog.Pod) bool { return p.Component != c.Name })
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

// placeTogether is Place for a request with components. There is one placement for each
// cluster, with the reservations of all components on it. The rejections are those of the
// component that fits on the fewest clusters.
func placeTogether(r Request, s *Snapshot) (Decision, error) {
	a := assemble(r, s)
	defer a.release()
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
		over := narrow.unaffordable()
		return failed(cmp.Or(over, why), over != "")
	}
	d := narrow.decision([]candidate{chosen[slices.Index(a.evaluations, narrow)]})
	d.Placements, d.RunnerUp = nil, nil
	for i, c := range chosen {
		one := a.evaluations[i].placement(c)
		one.Components = []string{r.Components[i].Name}
		at := slices.IndexFunc(d.Placements, func(p Placement) bool { return p.Cluster == one.Cluster })
		if at < 0 {
			one.Reserved = maps.Clone(one.Reserved) // it may grow
			d.Placements = append(d.Placements, one)
			continue
		}
		p := &d.Placements[at]
		p.Reserved.Add(one.Reserved, 1)
		p.LargestPods = slices.Concat(p.LargestPods, one.LargestPods)
		p.Score, p.Components = min(p.Score, one.Score), append(p.Components, one.Components...)
		p.Price = sumOf(p.Price, one.Price)
	}
	if why := r.overspends(d.Placements, s); why != "" {
		return failed(why, true)
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
	defer a.release()
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
	if chosen == nil {
		return displacing(verdicts, r, s)
	}
	return verdicts
}
