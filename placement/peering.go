package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Peering is the part of a request that asks for delivery to the consumer's own cluster.
type Peering struct {
	v1alpha1.PeeringPlan
	// Cluster that the consumer names as its own; empty if it names none.
	Cluster string
	// Consumer and Hub are member clusters: those that deliver the instance already or, after
	// Snapshot.Govern, those that are going to. Problem is why there is none.
	Consumer, Hub, Problem string
	// passing problems may end although nobody changes a cluster.
	passing bool
	// hubs are the verdicts on all hubs, if a hub is needed.
	hubs []Verdict
	// order of the pool that places the request on its members; nil if the consumer orders it itself.
	order *v1alpha1.PoolOrder
	// with is the only cluster that the consumer's can be peered with, if it has joined by
	// invitation.
	with string
}

func peeringOf(plan *v1alpha1.PeeringPlan, cluster string) *Peering {
	if plan == nil {
		return nil
	}
	return &Peering{PeeringPlan: *plan, Cluster: cluster}
}

// Stay keeps the clusters of the given decisions.
func (p *Peering) Stay(decisions ...*v1alpha1.Decision) {
	if p == nil {
		return
	}
	for _, d := range decisions {
		if d != nil && len(d.Placements) > 0 && d.Placements[0].Peering != nil {
			p.Consumer, p.Hub = d.Placements[0].Peering.Consumer, d.Placements[0].Peering.Hub
		}
	}
}

// Placed returns the peering of a placement of an instance.
func (p *Peering) Placed(instance, cluster string) *v1alpha1.PlacementPeering {
	if p == nil {
		return nil
	}
	if p.ofPool() {
		return nil // the pool's own order has it
	}
	placed := &v1alpha1.PlacementPeering{Consumer: p.Consumer, Hub: p.Hub, Offloading: p.Offloading}
	switch {
	case p.order != nil:
		placed.Node = v1alpha1.PoolNodeName(p.order, cluster)
	case p.needsNode():
		placed.Node = v1alpha1.VirtualNodeName(instance, cluster)
	}
	return placed
}

// hub returns the hub that the instance is delivered through; empty if there is none.
func (p *Peering) hub() string {
	if p == nil {
		return ""
	}
	return p.Hub
}

// needsNode reports whether virtual nodes are needed: always through a hub, where pods run on a
// node of the hub.
func (p *Peering) needsNode() bool { return p.Gives == v1alpha1.GivesNode || p.hubAndSpoke() }

func (p *Peering) hubAndSpoke() bool { return p.Role == v1alpha1.RoleHubAndSpoke || p.order != nil }

// modules returns the Liqo modules that chosen clusters need.
func (p *Peering) modules() []v1alpha1.LiqoModule { return v1alpha1.ModulesFor(p.needsNode()) }

// Govern completes a request by the operator's settings: the policies for its consumer, what that one has
// proven, and its own cluster if the plan delivers to it.
func (s *Snapshot) Govern(r Request, consumer Consumer) Request {
	r.Proven = s.proofs.Of(consumer)
	return s.peer(s.policies.Govern(r, consumer))
}

// peer finds the consumer's own cluster and a hub, if the request needs them.
func (s *Snapshot) peer(r Request) Request {
	if r.Peering != nil {
		found := *r.Peering
		found.Problem, found.passing, found.hubs = "", false, nil
		if r.Rules = found.ruledBy(r.Rules); found.order != nil {
			r.Selector = s.membersOf(found.order.Pool)
		}
		found.find(s, r)
		r.Peering = &found
	}
	return r
}

// find finds the consumer's own cluster, and a hub if one is needed. An instance keeps the
// clusters that it was delivered by, because nodes and namespaces cannot move from one cluster
// of a consumer to another.
func (p *Peering) find(s *Snapshot, r Request) {
	var own []string
	var hubs []position
	is := map[string]*v1alpha1.LiqoCluster{}
	for _, page := range s.pages {
		for row := range page.peering.rows() {
			c := page.clusters[row]
			switch {
			case c.isOf(r.Consumer):
				own = append(own, c.Name)
				is[c.Name] = c.Liqo
			case p.isHub(c, s) && len(c.Consumers) == 0 && lacking(c.Liqo.Modules, v1alpha1.ModulesFor(true)) == "":
				hubs = append(hubs, position{page: page, row: row})
			}
		}
	}
	slices.Sort(own)
	before := p.Consumer
	switch {
	case before != "" && p.Cluster != "" && p.Cluster != before:
		p.Problem = fmt.Sprintf("parameter cluster: the instance is delivered to %s, and stays with it", before)
	case before != "" && slices.Contains(own, before):
	case p.Cluster != "" && slices.Contains(own, p.Cluster):
		p.Consumer = p.Cluster
	case p.Cluster != "":
		p.Problem = fmt.Sprintf("parameter cluster: %s is not a cluster of the consumer's own", p.Cluster)
	case len(own) == 0:
		p.Problem = "the consumer has no cluster of its own to deliver to: the operator has to add it with `sluice cluster add --driver liqo --consumer`"
	case len(own) > 1:
		p.Problem = "parameter cluster: the consumer has several, and has to name one of " + strings.Join(own, ", ")
	default:
		p.Consumer = own[0]
	}
	if p.Problem != "" {
		return
	}
	// Through a hub, the nodes are on the hub.
	if module := lacking(is[p.Consumer].Modules, v1alpha1.ModulesFor(p.needsNode() && !p.hubAndSpoke())); module != "" {
		p.Problem = fmt.Sprintf("the consumer's cluster %s lacks Liqo's module %s", p.Consumer, module)
		return
	}
	if joined := is[p.Consumer].Joined; joined != nil {
		p.with = joined.With
		if p.Offloading != nil && !p.hubAndSpoke() {
			p.Problem = fmt.Sprintf("the consumer's cluster %s has joined by invitation, and takes nodes without a namespace", p.Consumer)
			return
		}
		hubs = slices.DeleteFunc(hubs, func(at position) bool { return at.cluster().Name != joined.With })
	}
	if !p.hubAndSpoke() {
		return
	}
	if len(hubs) == 0 && p.order != nil {
		p.Problem = fmt.Sprintf("pool %s has no front: the member cluster that it names has to be a hub, and the consumer's cluster must be able to join it", p.order.Pool)
		return
	}
	if len(hubs) == 0 && p.with != "" {
		p.Problem = fmt.Sprintf("the consumer's cluster %s has joined %s by invitation, and that is no hub", p.Consumer, p.with)
		return
	}
	if len(hubs) == 0 {
		p.Problem = "no member cluster is a hub, through which the plan delivers: its operator adds one with `sluice cluster add --driver liqo --hub`"
		return
	}
	p.chooseHub(s, r, hubs)
}

// isOf reports whether the cluster is the consumer's own.
func (c *Cluster) isOf(consumer Consumer) bool {
	return slices.ContainsFunc(c.Consumers, func(ref v1alpha1.ConsumerReference) bool {
		return ref.Selects(consumer.Platform, consumer.Organization, consumer.Space)
	})
}

// consumersOwn rejects the clusters of consumers.
func consumersOwn() filter {
	return filter{reason: ReasonConsumersOwn, shape: true,
		rejects: func(p *page, among set) set { return among.and(p.owned) },
		message: func(*page, int) string { return "belongs to a consumer, and nothing is placed on it" },
	}
}

// notPeerable rejects clusters that cannot be peered with the one that the peering needs: the
// consumer's own or the hub. For a request without peering it rejects clusters that can be
// reached only by one.
func notPeerable(peering *Peering) filter {
	if peering == nil {
		return filter{reason: ReasonNotPeerable, shape: true,
			rejects: func(p *page, among set) set { return among.and(p.joined) },
			message: func(p *page, row int) string {
				return fmt.Sprintf("has joined %s by invitation, and is reached by peering only", p.clusters[row].Liqo.Joined.With)
			},
		}
	}
	why := func(c *Cluster) string { return peering.refuses(c) }
	return filter{reason: ReasonNotPeerable, shape: true, passing: peering.passing,
		rejects: func(p *page, among set) set {
			if peering.Problem != "" {
				return among
			}
			able := p.peering
			if peering.ofPool() {
				able = p.pools
			}
			refused := among.and(able).where(func(row int) bool { return why(p.clusters[row]) != "" })
			return among.without(able).or(refused)
		},
		message: func(p *page, row int) string { return why(p.clusters[row]) },
	}
}

// refuses returns why a cluster cannot be peered as needed; empty if it can.
func (p *Peering) refuses(c *Cluster) string {
	with := p.Consumer
	if p.Hub != "" {
		with = p.Hub
	}
	switch {
	case p.Problem != "":
		return p.Problem
	case p.ofPool() && c.Pool != nil:
		if p.with != "" && p.with != c.Pool.Front {
			return fmt.Sprintf("the consumer's cluster %s has joined %s by invitation, which is not the front of the pool", p.Consumer, p.with)
		}
		return ""
	case c.Liqo == nil:
		return "has the driver " + c.Driver + ", and Liqo peers those with the driver liqo"
	case c.Name == with:
		return "is the hub itself"
	case p.with != "" && p.Hub == "" && c.Name != p.with:
		return fmt.Sprintf("the consumer's cluster %s has joined %s by invitation, and no other", p.Consumer, p.with)
	case c.Liqo.Joined != nil && c.Liqo.Joined.With != with:
		return fmt.Sprintf("has joined %s by invitation, and not %s", c.Liqo.Joined.With, with)
	case c.Liqo.Joined != nil && !p.needsNode():
		return fmt.Sprintf("has joined %s by invitation, and serves virtual nodes only", with)
	}
	if module := lacking(c.Liqo.Modules, p.modules()); module != "" {
		return fmt.Sprintf("lacks Liqo's module %s", module)
	}
	return ""
}

// lacking returns the first needed module that is missing; empty if none is.
func lacking(modules, needed []v1alpha1.LiqoModule) v1alpha1.LiqoModule {
	for _, module := range needed {
		if !v1alpha1.HasModule(modules, module) {
			return module
		}
	}
	return ""
}

// Refuses returns why policies deny a cluster to a consumer of another cluster; empty if they
// deny it to none of them.
func (inv *Inventory) Refuses(cluster string, consumers []v1alpha1.ConsumerReference) string {
	s := inv.Snapshot()
	at, found := s.find(cluster)
	if !found {
		return ""
	}
	for _, ref := range consumers {
		r := s.Govern(Request{}, Consumer{Platform: ref.Platform, Organization: ref.Organization, Space: ref.Space})
		if liqo := at.cluster().Liqo; liqo == nil || !liqo.Hub {
			r.Rules = rulesOfClusters(r.Rules)
		}
		if f, refused := refusal(at, r.rulings(), false); refused {
			return f.message(at.page, at.row)
		}
	}
	return ""
}
