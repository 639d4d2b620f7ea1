package placement_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// priceIn is the name of a price in a holding.
func priceIn(currency string) corev1.ResourceName { return corev1.ResourceName("price in " + currency) }

// priced returns what resources cost on a cluster.
func (w *world) priced(cluster string, held placement.Resources) placement.Resources {
	c := w.byName(cluster)
	if c.Currency == "" {
		return nil
	}
	return placement.Resources{priceIn(c.Currency): held[cpu]/1000*c.Prices[cpu] + held[memory]>>30*c.Prices[memory]}
}

// drawQuota draws a quota with one of the bounds.
func (w *world) drawQuota() *v1alpha1.Quota {
	q := &v1alpha1.Quota{Per: pick(w, v1alpha1.ScopePlatform, v1alpha1.ScopeOrganization, v1alpha1.ScopeSpace, v1alpha1.ScopeApplication)}
	switch w.IntN(5) {
	case 0:
		q.Limits = placement.Resources{cpu: int64(w.IntN(20)) * 1000}.List()
	case 1, 2, 3: // what is held, and about as much as an order costs
		q.Per = v1alpha1.ScopePlatform
		held := sum(slices.DeleteFunc(slices.Clone(w.held), func(h placement.Holding) bool { return h.Consumer.Platform != "cf" }), priceIn("EUR"))
		q.Budget = &v1alpha1.Price{Currency: "EUR", PerHour: resource.NewScaledQuantity(held+int64(w.IntN(12))*1e8, resource.Nano)}
	default:
		most := int32(w.IntN(4))
		q.Instances = &most
	}
	return q
}

// sharing returns the others' holdings that share the quota with the order; false if there is no quota for it.
func (o *oracle) sharing() (others []placement.Holding, concerned bool) {
	if o.quota == nil {
		return nil, false
	}
	mine := func(c placement.Consumer) string {
		switch o.quota.Per {
		case v1alpha1.ScopePlatform:
			return c.Platform
		case v1alpha1.ScopeOrganization:
			return c.Organization
		case v1alpha1.ScopeSpace:
			return c.Space
		}
		return c.Application
	}
	for _, h := range o.held {
		same := h.Consumer.Platform == o.Consumer.Platform && mine(h.Consumer) == mine(o.Consumer)
		if o.quota.Per == v1alpha1.ScopeApplication {
			same = same && h.Consumer.Space == o.Consumer.Space
		}
		if h.Instance != o.ID && same {
			others = append(others, h)
		}
	}
	return others, mine(o.Consumer) != ""
}

// sum adds up one amount of holdings.
func sum(holdings []placement.Holding, name corev1.ResourceName) (sum int64) {
	for _, h := range holdings {
		for cluster, resources := range h.Held {
			sum += resources[name] + h.Prices[cluster][name]
		}
	}
	return sum
}

// own are the order's own holdings.
func (o *oracle) own() []placement.Holding {
	return slices.DeleteFunc(slices.Clone(o.held), func(h placement.Holding) bool { return h.Instance != o.ID })
}

// withinQuota reports whether the consumer would hold no more than it may, apart from what that costs, or no more than
// it has.
func (o *oracle) withinQuota() bool {
	others, concerned := o.sharing()
	switch {
	case !concerned, o.quota.Budget != nil:
		return true
	case o.quota.Instances != nil:
		return len(o.own()) > 0 || len(others) < int(*o.quota.Instances)
	}
	clusters, _ := o.count()
	if o.Replicas > 0 {
		clusters = o.Replicas
	}
	asked := int64(clusters) * o.Resources[cpu]
	if len(o.Components) > 0 {
		asked = 0
		for _, c := range o.Components {
			asked += c.Resources[cpu]
		}
	}
	return asked <= sum(o.own(), cpu) || sum(others, cpu)+asked <= placement.ResourcesOf(o.quota.Limits)[cpu]
}

// left returns what the order may cost; false if there is no budget for it.
func (o *oracle) leftToSpend() (nanoPerHour int64, bounded bool) {
	others, concerned := o.sharing()
	if !concerned || o.quota.Budget == nil {
		return 0, false
	}
	return max(o.quota.Budget.PerHour.ScaledValue(resource.Nano)-sum(others, priceIn("EUR")), sum(o.own(), priceIn("EUR"))), true
}

// affordsOn reports whether a budget lets a component, or one replica, be on a cluster.
func (o *oracle) affordsOn(c *placement.Cluster, component *placement.Component) bool {
	left, bounded := o.leftToSpend()
	name := ""
	if component != nil {
		name = component.Name
	}
	switch cost, _ := o.price(c, o.need(component)); {
	case !bounded || c.Currency == "":
		return true
	case c.Currency != "EUR":
		return o.stays(c, name)
	default:
		return cost <= left
	}
}

// affords reports whether placements together are within a budget.
func (o *oracle) affords(placed []placement.Placement) bool {
	left, bounded := o.leftToSpend()
	for _, p := range placed {
		if p.Price != nil && p.Price.Currency == "EUR" {
			left -= p.Price.NanoPerHour
		}
	}
	return !bounded || left >= 0
}

// bestWithin is the greatest worth of all valid choices that cost no more than a budget leaves, and whether one of the
// best choices of all costs more.
func (o *oracle) bestWithin(best worth) (within worth, found, inTheWay bool) {
	left, _ := o.leftToSpend()
	for choice := range o.choices() {
		cost := int64(0)
		for _, c := range choice {
			if one, _ := o.price(c, o.need(nil)); c.Currency == "EUR" {
				cost += one
			}
		}
		switch w, ok := o.valid(choice); {
		case ok && cost > left:
			inTheWay = inTheWay || w == best
		case ok && (!found || w.better(within)):
			within, found = w, true
		}
	}
	return within, found, inTheWay
}

// thrift counts choices in whose way a budget was.
type thrift struct {
	choices, best int
	lost          float64 // the sum of what the others score less than the best, in per cent of it
}

func (t *thrift) count(got, best worth) {
	if t.choices++; got == best {
		t.best++
	} else if best.score > 0 {
		t.lost += 100 * float64(best.score-got.score) / float64(best.score)
	}
}

func (t *thrift) String() string {
	return fmt.Sprintf("a budget was in the way of the best choice: %d, of which %d are the best within it, the others lose %.1f %% of the score", t.choices, t.best, t.lost/float64(max(t.choices-t.best, 1)))
}

// Orders on several clusters whose best choice costs more than a budget leaves: they are refused only if every choice
// does, and what is chosen is nearly the best within it.
func TestABudgetIsInTheWay(t *testing.T) {
	n := &judged{cases: map[string]int{}, placed: map[string]int{}}
	for seed := range uint64(4 * *oracleCases) {
		w := newWorld(seed)
		o := w.order()
		w.quota, o.Consumer.Platform = nil, "cf"
		if o.Replicas > 0 || len(o.Components) > 0 || o.Clusters < 2 {
			continue
		}
		s := w.inventory().Snapshot()
		d, err := placement.Place(s.Govern(o.Request, o.Consumer), s)
		if err != nil {
			continue
		}
		price := int64(0)
		for _, p := range d.Placements {
			if p.Price != nil && p.Price.Currency == "EUR" {
				price += p.Price.NanoPerHour
			}
		}
		w.quota = &v1alpha1.Quota{Per: v1alpha1.ScopePlatform}
		others, _ := newOracle(w, o).sharing()
		left := price * int64(50+w.IntN(50)) / 100
		w.quota.Budget = &v1alpha1.Price{Currency: "EUR", PerHour: resource.NewScaledQuantity(sum(others, priceIn("EUR"))+left, resource.Nano)}
		n.judge(t, seed, w, o, o.kind)
	}
	t.Log(&n.thrift)
	if n.thrift.choices == 0 || n.thrift.best*5 < n.thrift.choices*4 {
		t.Error("fewer than four fifths are the best choice")
	}
}
