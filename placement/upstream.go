package placement

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// An instance of an upstream plan is placed like any other: on one of the member clusters that stand for
// brokers. It does not move, because its data are the broker's.

// Upstream is the part of a request that is ordered from brokers.
type Upstream struct {
	// Candidates by the name of the broker.
	Candidates map[string]v1alpha1.UpstreamCandidate
	// bindable means that the plan's instances can be bound, so that those of the chosen candidate must be, too.
	bindable bool
	// has describes the delivered instance, by the name of the broker; keeps means that it stays so where
	// the candidate is of the same plan.
	has   map[string]*v1alpha1.PlacementUpstream
	keeps bool
}

// upstreamRequest returns the request for an instance of an upstream plan.
func upstreamRequest(id string, plan *catalog.Plan) (Request, error) {
	r, err := choiceRequest(id, plan, &plan.Upstream.MemberChoice)
	if err != nil {
		return Request{}, err
	}
	r.Resources = Resources{v1alpha1.ResourceInstances: 1}
	r.Upstream = &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{}, bindable: plan.IsBindable()}
	for _, c := range plan.Upstream.Candidates {
		r.Upstream.Candidates[c.Broker] = c
	}
	return r, nil
}

// Stay notes what a delivered instance is. keeps means that its plan has not changed.
func (u *Upstream) Stay(delivered *v1alpha1.Decision, keeps bool) {
	if u == nil || delivered == nil {
		return
	}
	u.keeps, u.has = keeps, map[string]*v1alpha1.PlacementUpstream{}
	for i := range delivered.Placements {
		p := &delivered.Placements[i]
		u.has[p.Cluster] = p.Upstream
	}
}

// stays returns what the instance is at a broker if the candidate there is of the same plan; otherwise nil.
func (u *Upstream) stays(broker string) *v1alpha1.PlacementUpstream {
	has, c := u.has[broker], u.Candidates[broker]
	if has == nil || has.Service != c.Service || has.Plan != c.Plan {
		return nil
	}
	return has
}

// Placed returns what is ordered from a chosen broker; nil if there is no such broker any more.
func (u *Upstream) Placed(broker *Cluster) *v1alpha1.PlacementUpstream {
	if broker == nil {
		return nil
	}
	c := u.Candidates[broker.Name]
	placed := &v1alpha1.PlacementUpstream{OfferedPlan: broker.Offers[c.Name()], Parameters: c.Parameters}
	if has := u.stays(broker.Name); has != nil && (u.keeps || placed.PlanID == "") {
		placed.OfferedPlan = has.OfferedPlan
	}
	if has := u.has[broker.Name]; has != nil && has.Dashboard != nil {
		placed.Dashboard = &v1alpha1.UpstreamDashboard{URL: has.Dashboard.URL}
	}
	return placed
}

// price returns the price of an instance at a broker: the candidate's or, if the broker has no price list either, that
// of its market. ok is false if the price list counts.
func (u *Upstream) price(broker *Cluster) (price Price, ok bool) {
	c := u.Candidates[broker.Name]
	if c.Price != nil {
		return *PriceOf(c.Price), true
	}
	price = broker.Markets[c.Name()].Price
	return price, broker.Currency == "" && price.Currency != ""
}

func noCandidate(u *Upstream) filter {
	return filter{reason: ReasonNoCandidate, shape: true,
		rejects: func(p *page, among set) set {
			return among.without(p.brokersThat(func(c *Cluster) bool { _, named := u.Candidates[c.Name]; return named }))
		},
		message: func(*page, int) string { return "is not among the plan's candidates" },
	}
}

func notOffered(u *Upstream) filter {
	return filter{reason: ReasonNotOffered, probed: true,
		rejects: func(p *page, among set) set {
			return among.without(p.brokersThat(func(c *Cluster) bool {
				asked := u.Candidates[c.Name]
				plan, offered := c.Offers[asked.Name()]
				return offered && !u.lacksBindings(plan) || u.stays(c.Name) != nil
			}))
		},
		message: func(p *page, row int) string {
			asked := u.Candidates[p.clusters[row].Name]
			if plan := p.clusters[row].Offers[asked.Name()]; u.lacksBindings(plan) {
				return fmt.Sprintf("its plan %s of service %s is not bindable, as this plan is (bindable)", asked.Plan, asked.Service)
			}
			if why := p.clusters[row].Withheld[asked.Name()]; why != "" {
				return fmt.Sprintf("its plan %s of service %s is not ordered: %s", asked.Plan, asked.Service, why)
			}
			return fmt.Sprintf("its catalog has no plan %s of service %s that may be ordered", asked.Plan, asked.Service)
		},
	}
}

// lacksBindings reports whether instances of a broker's plan cannot be bound, though they have to be.
func (u *Upstream) lacksBindings(plan v1alpha1.OfferedPlan) bool {
	return u.bindable && plan.NotBindable
}

// brokersThat returns the rows of brokers for which something holds.
func (p *page) brokersThat(holds func(*Cluster) bool) set {
	return p.brokers.where(func(row int) bool { return holds(p.clusters[row]) })
}

// offersOf returns the plans of a broker that may be ordered.
func offersOf(mc *v1alpha1.MemberCluster) map[string]v1alpha1.OfferedPlan {
	if mc.Status.Broker == nil {
		return nil
	}
	offers := make(map[string]v1alpha1.OfferedPlan, len(mc.Status.Broker.Plans))
	for _, offered := range mc.Status.Broker.Plans {
		offers[offered.Name()] = offered
	}
	return offers
}

// withheldOf returns why plans of a broker that is a Sluice are not ordered.
func withheldOf(mc *v1alpha1.MemberCluster) map[string]string {
	if mc.Status.Broker == nil || mc.Status.Broker.Sluice == nil {
		return nil
	}
	reasons := map[string]string{}
	for _, plan := range mc.Status.Broker.Sluice.Withheld {
		reasons[plan.Plan] = plan.Reason
	}
	return reasons
}

// Failures counts orders of one plan that a broker lately refused or did not carry out, at most one for each
// organization.
type Failures struct {
	Orders int
	// Weight in hundredths of an order that has just failed. It halves every ten minutes, and ends after an
	// hour.
	Weight int32
	// Last is the reason of the latest.
	Last string
}

// halvesAfter is the time after which a failed order counts half as much.
const halvesAfter = 10 * time.Minute

// failuresOf returns what has failed at a broker lately, by the name of the plan.
func failuresOf(mc *v1alpha1.MemberCluster, now time.Time) map[string]Failures {
	if mc.Status.Broker == nil || len(mc.Status.Broker.Failures) == 0 {
		return nil
	}
	all := map[string]Failures{}
	for _, failed := range mc.Status.Broker.Failures {
		age := max(now.Sub(failed.At.Time), 0)
		if age >= v1alpha1.RememberFailures {
			continue
		}
		f := all[failed.Plan]
		all[failed.Plan] = Failures{Orders: f.Orders + 1, Weight: f.Weight + 100>>(age/halvesAfter), Last: failed.Reason}
	}
	return all
}

// failures returns what has failed lately of the plan that would be ordered from a broker.
func (u *Upstream) failures(broker *Cluster) Failures {
	if u == nil {
		return Failures{}
	}
	c := u.Candidates[broker.Name]
	return broker.Failures[c.Name()]
}

// addTo adds the failures, if there are any, to the reason for which a broker was chosen or not.
func (f Failures) addTo(why string) string {
	if f.Orders == 0 {
		return why
	}
	return fmt.Sprintf("%s; orders that failed there within an hour: %d, the latest: %s", why, f.Orders, f.Last)
}
