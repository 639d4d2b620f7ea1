package catalog

import (
	"regexp"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// passedOn holds what brokers say of an upstream plan's candidates and consumers of the plan learn. Candidates
// that their brokers do not offer say nothing.
type passedOn struct {
	// Schemas of the consumer's parameters, by the schemas' names in a plan, as far as they are known.
	Schemas map[string]map[string]any
	// Unread reports that the schemas of a candidate have not been read yet, or that no broker offers one.
	Unread bool
	// Hidden and HiddenOfBindings are the consumer's parameters of instances and of bindings that a candidate's broker calls
	// writeOnly.
	Hidden           hiding `json:",omitzero"`
	HiddenOfBindings hiding `json:",omitzero"`
	// NotBindable and NotUpdateable report that no candidate is bindable, or lets instances change their plan.
	NotBindable, NotUpdateable bool
	// Maintenance is the version of new instances if all candidates have the same, otherwise empty.
	Maintenance string
	// Withdrawn reports that no broker offers its candidate any more.
	Withdrawn bool
	// Behind are the Sluices that orders of the plan may come to.
	Behind Behind
}

// Behind are other Sluices that orders of a plan may come to.
type Behind struct {
	// Hubs are the ids of theirs, sorted.
	Hubs []string `json:",omitempty"`
	// Depth is the greatest number of them in a row.
	Depth int32 `json:",omitempty"`
}

// offer is a candidate that its broker offers.
type offer struct {
	*v1alpha1.UpstreamCandidate
	plan    *v1alpha1.OfferedPlan
	schemas v1alpha1.PlanSchemas
	// sluice has the Sluices behind the plan, if the broker is one; otherwise nil.
	sluice *v1alpha1.SluicePlan
}

// passedOnOf returns what is passed on of an offering's upstream plans, by plan id.
func passedOnOf(spec *v1alpha1.ServiceOfferingSpec, clusters []v1alpha1.MemberCluster) map[string]*passedOn {
	passed := map[string]*passedOn{}
	for i := range spec.Plans {
		p := &spec.Plans[i]
		if p.Upstream == nil {
			continue
		}
		offers, unread, withdrawn := offersOf(p, clusters)
		if len(offers) == 0 {
			passed[p.ID] = &passedOn{Unread: true, Withdrawn: withdrawn}
			continue
		}
		none := func(says func(offer) bool) bool {
			return !slices.ContainsFunc(offers, func(o offer) bool { return !says(o) })
		}
		schemas, hidden, hiddenOfBindings := candidateSchemas(offers)
		passed[p.ID] = &passedOn{
			Schemas:          schemas,
			Unread:           unread,
			Hidden:           hidden,
			HiddenOfBindings: hiddenOfBindings,
			NotBindable:      none(func(o offer) bool { return o.plan.NotBindable }),
			NotUpdateable:    none(func(o offer) bool { return o.plan.NotUpdateable && !isOrderedElsewhere(spec, p, o) }),
			Maintenance:      sharedMaintenance(offers),
			Behind:           behind(offers),
		}
	}
	return passed
}

// offersOf returns those candidates of a plan that their brokers offer. unread reports that the catalog of a broker in the
// inventory, or a candidate's schemas, have not been read yet. withdrawn reports that new orders are refused because there
// are none, by the catalogs of the brokers: at least one of them is in the inventory, and all of those have been read.
func offersOf(plan *v1alpha1.Plan, clusters []v1alpha1.MemberCluster) (offers []offer, unread, withdrawn bool) {
	gone := false
	for i := range plan.Upstream.Candidates {
		c := &plan.Upstream.Candidates[i]
		at := slices.IndexFunc(clusters, func(m v1alpha1.MemberCluster) bool { return m.Name == c.Broker && m.DriverName() == v1alpha1.DriverOSB })
		if at < 0 {
			continue
		}
		status := clusters[at].Status.Broker
		if status == nil {
			unread = true
			continue
		}
		offered := slices.IndexFunc(status.Plans, func(p v1alpha1.OfferedPlan) bool { return p.Service == c.Service && p.Plan == c.Plan })
		if offered < 0 {
			gone = true
			continue
		}
		one := offer{UpstreamCandidate: c, plan: &status.Plans[offered], sluice: status.Sluice.Plan(c.Name())}
		if k := slices.IndexFunc(status.Schemas, func(s v1alpha1.OfferedSchemas) bool { return s.Plan == c.Name() }); k >= 0 {
			one.schemas = status.Schemas[k].PlanSchemas
		} else {
			unread = true
		}
		offers = append(offers, one)
	}
	return offers, unread, gone && !unread && len(offers) == 0 && plan.WaitFor != v1alpha1.WaitForAnything
}

// IsWithdrawn reports whether new orders of a plan are refused because no broker offers its candidate any more.
// clusters has the brokers.
func IsWithdrawn(plan *v1alpha1.Plan, clusters []v1alpha1.MemberCluster) bool {
	if plan.Upstream == nil {
		return false
	}
	_, _, withdrawn := offersOf(plan, clusters)
	return withdrawn
}

// behind returns the Sluices that orders may come to, over all candidates.
func behind(offers []offer) (all Behind) {
	for _, o := range offers {
		if o.sluice != nil {
			all.Hubs, all.Depth = append(all.Hubs, o.sluice.Hubs...), max(all.Depth, o.sluice.Depth)
		}
	}
	all.Hubs = lists.Sorted(all.Hubs)
	return all
}

// isOrderedElsewhere reports whether another plan of the offering orders the same plan of the same broker, so
// that instances can change between the two without a change of plan there.
func isOrderedElsewhere(spec *v1alpha1.ServiceOfferingSpec, plan *v1alpha1.Plan, o offer) bool {
	return slices.ContainsFunc(spec.Plans, func(other v1alpha1.Plan) bool {
		return other.ID != plan.ID && other.Upstream != nil && slices.ContainsFunc(other.Upstream.Candidates, func(c v1alpha1.UpstreamCandidate) bool {
			return c.Broker == o.Broker && c.Name() == o.Name()
		})
	})
}

// semantic matches the versions that OSB allows, as the definition of MaintenanceInfo does.
var semantic = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

func sharedMaintenance(offers []offer) string {
	version := offers[0].plan.MaintenanceVersion
	if !semantic.MatchString(version) || slices.ContainsFunc(offers, func(o offer) bool { return o.plan.MaintenanceVersion != version }) {
		return ""
	}
	return version
}

// addTo adds to a plan what is passed on, as far as the operator has not said something else.
func (p *passedOn) addTo(plan *Plan) {
	if p == nil {
		return
	}
	plan.passed, plan.hidden, plan.hiddenOfBindings = p.Schemas, p.Hidden, p.HiddenOfBindings
	plan.Unread, plan.Withdrawn, plan.Behind = p.Unread, p.Withdrawn, p.Behind
	no := false
	if p.NotBindable {
		plan.Bindable = &no
	}
	if p.NotUpdateable {
		plan.PlanUpdateable = &no
	}
	if plan.MaintenanceInfo == nil && p.Maintenance != "" {
		plan.MaintenanceInfo = &v1alpha1.MaintenanceInfo{Version: p.Maintenance}
	}
}
