package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// filter rejects clusters for one reason.
type filter struct {
	reason Reason
	// entry filters apply to new placements only; they do not evict an instance.
	entry bool
	// shape filters select the clusters that the request is about, independent of their free
	// capacity and their state.
	shape bool
	// passing filters may accept a cluster again at any time although nobody has changed it.
	passing bool
	// probed filters need facts that are known only once a cluster has answered.
	probed bool
	// rejects returns those of the given rows that the filter rejects.
	rejects func(p *page, among set) set
	// message returns why one cluster is rejected, with the numbers.
	message func(p *page, row int) string
	// told returns what consumers may be told of a rejection beside the reason; nil if that is nothing.
	told func(p *page, row int) string
}

// filters returns a request's filters, in the order in which they are applied: the first that
// rejects a cluster gives the reason. held is what the request has already reserved there; it
// counts as free.
func (r Request) filters(s *Snapshot, held Resources) []filter {
	asked := r.allFilters(s, held)
	if r.atBest {
		return atTheirBest(asked)
	}
	return asked
}

func (r Request) allFilters(s *Snapshot, held Resources) []filter {
	asked := []filter{otherwiseUsed(r), consumersOwn(), notPeerable(r.Peering), notReady(), accessNotVerified(), capacityUnknown(), notAdmitted(), cordoned()}
	for _, spoken := range r.Public {
		asked = append(asked, noGateway(spoken))
	}
	for _, host := range r.wholeHosts() {
		asked = append(asked, notGranted(host, r.Consumer))
	}
	if r.Upstream != nil {
		asked = append(asked, noCandidate(r.Upstream), notOffered(r.Upstream), noRoom(r.Upstream, s))
	}
	if len(r.Refused) > 0 {
		asked = append(asked, refusedBy(r.Refused))
	}
	if len(r.Leaving) > 0 {
		asked = append(asked, left(r.Leaving))
	}
	if len(s.preemptions) > 0 {
		asked = append(asked, spokenFor(r, s, held))
	}
	if r.Selector != nil {
		requirements, _ := r.Selector.Requirements()
		for _, requirement := range requirements {
			asked = append(asked, labelMismatch(requirement))
		}
	}
	if r.Tier != "" {
		asked = append(asked, tierMismatch(r.Tier))
	}
	if len(r.ExcludeProviders) > 0 {
		asked = append(asked, excluded(r.ExcludeProviders))
	}
	if r.Spread != nil && r.Spread.Weight == 0 {
		asked = append(asked, ungrouped(r.Spread))
	}
	asked = append(asked, tainted(r.Tolerations))
	for _, a := range r.Affinity {
		if a.Weight == 0 {
			asked = append(asked, affine(a, r, s))
		}
	}
	if r.MaxDistance > 0 {
		asked = append(asked, tooFar(r.Near, r.MaxDistance))
	}
	if r.MaxLatency != nil {
		asked = append(asked, tooSlow(r.MaxLatency, r.At))
	}
	facts := r.facts()
	for i := range r.Rules {
		if r.Rules[i].appliesTo != v1alpha1.RuleHubs {
			asked = append(asked, ruled(&r.Rules[i], facts))
		}
	}
	if rules := r.forPods(); len(rules) > 0 {
		asked = append(asked, unguarded(rules))
	}
	return r.addAmounts(asked, s, held)
}

// addAmounts adds the filters that reject clusters by what the request needs, and by what that costs.
func (r Request) addAmounts(asked []filter, s *Snapshot, held Resources) []filter {
	needs := r.on(1)
	for _, name := range needs.names() {
		if needs[name] <= 0 {
			continue
		}
		if class, ok := v1alpha1.StorageClassOf(name); ok {
			// Kubernetes publishes no capacity of storage classes that could be added up. So
			// only the existence of a class is checked here, and the cluster enforces its
			// quota.
			asked = append(asked, storageClassMissing(class))
		} else {
			asked = append(asked, insufficient(name, needs[name], held[name], s.columnOf(name), r.atBest))
		}
	}
	if len(r.LargestPods) > 0 {
		asked = append(asked, tooFragmented(r.LargestPods))
	}
	if r.MaxPrice != nil {
		tariff := r.tariff(needs, s)
		asked = append(asked, noPrice(r.MaxPrice.Currency, tariff), tooExpensive(*r.MaxPrice, tariff))
	}
	return append(asked, r.withinBudgets(s, needs)...)
}

// inState rejects clusters while they are in a state, by its rows.
func inState(reason Reason, rejects func(p *page, among set) set, why func(c *Cluster) string) filter {
	return filter{reason: reason, entry: true, passing: true, rejects: rejects,
		message: func(p *page, row int) string { return why(p.clusters[row]) },
	}
}

func notReady() filter {
	return inState(ReasonNotReady, func(p *page, among set) set { return among.without(p.ready) }, func(c *Cluster) string { return c.Unready })
}

func accessNotVerified() filter {
	return inState(ReasonAccessNotVerified, func(p *page, among set) set { return among.without(p.verified) }, func(c *Cluster) string { return c.Unverified })
}

func capacityUnknown() filter {
	return inState(ReasonCapacityUnknown, func(p *page, among set) set { return among.and(p.uncounted) }, func(c *Cluster) string { return c.CapacityUnknown })
}

func notAdmitted() filter {
	return inState(ReasonNotAdmitted, func(p *page, among set) set { return among.and(p.unproven) }, func(c *Cluster) string { return c.Unproven })
}

func cordoned() filter {
	return inState(ReasonCordoned, func(p *page, among set) set { return among.and(p.cordoned) }, func(*Cluster) string { return "takes no new placements" })
}

func left(clusters []string) filter {
	return filter{reason: ReasonLeft, passing: true,
		rejects: func(p *page, among set) set {
			var there set
			for _, name := range clusters {
				there = there.or(p.label[labelValue{v1alpha1.LabelCluster, name}])
			}
			return among.and(there)
		},
		message: func(*page, int) string { return "the instance leaves it" },
	}
}

// Avoid notes which clusters have refused an order or a move.
func (r *Request) Avoid(refusals []v1alpha1.Refusal) {
	r.Refused = map[string]string{}
	for i := range refusals {
		r.Refused[refusals[i].Cluster] = refusals[i].Description
	}
}

func refusedBy(reasons map[string]string) filter {
	return filter{reason: ReasonRefused,
		rejects: func(p *page, among set) set {
			var refused set
			for row := range among.rows() {
				if _, ok := reasons[p.clusters[row].Name]; ok {
					refused.add(row)
				}
			}
			return refused
		},
		message: func(p *page, row int) string { return reasons[p.clusters[row].Name] },
	}
}

func excluded(providers []string) filter {
	return filter{reason: ReasonProviderExcluded, shape: true,
		rejects: func(p *page, among set) set {
			var theirs set
			for _, provider := range providers {
				theirs = theirs.or(p.label[labelValue{v1alpha1.LabelProvider, provider}])
			}
			return among.and(theirs)
		},
		message: func(p *page, row int) string {
			return fmt.Sprintf("the consumer excludes provider %s", p.clusters[row].Provider)
		},
	}
}

// labelMismatch follows the Kubernetes label selector semantics: NotIn and
// DoesNotExist match clusters that lack the label.
func labelMismatch(requirement labels.Requirement) filter {
	key, values := requirement.Key(), requirement.ValuesUnsorted()
	among := func(p *page) set {
		var having set
		for _, value := range values {
			having = having.or(p.label[labelValue{key, value}])
		}
		return having
	}
	var matches func(p *page) set
	switch requirement.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		matches = among
	case selection.NotIn, selection.NotEquals:
		matches = func(p *page) set { return p.all.without(among(p)) }
	case selection.Exists:
		matches = func(p *page) set { return p.labelled[key] }
	case selection.DoesNotExist:
		matches = func(p *page) set { return p.all.without(p.labelled[key]) }
	default: // Gt and Lt, which only hand-written selectors use
		matches = func(p *page) set {
			return p.all.where(func(row int) bool { return requirement.Matches(p.clusters[row].Labels) })
		}
	}
	return filter{reason: ReasonLabelMismatch, shape: true,
		rejects: func(p *page, among set) set { return among.without(matches(p)) },
		message: func(p *page, row int) string {
			if value, ok := p.clusters[row].Labels[key]; ok {
				return fmt.Sprintf("needs %s, has %s=%s", requirement.String(), key, value)
			}
			return fmt.Sprintf("needs %s, has no such label", requirement.String())
		},
	}
}

func tierMismatch(tier v1alpha1.Tier) filter {
	return filter{reason: ReasonTierMismatch, shape: true,
		rejects: func(p *page, among set) set {
			return among.without(p.label[labelValue{v1alpha1.LabelTier, string(tier)}])
		},
		message: func(p *page, row int) string {
			return fmt.Sprintf("needs tier %s, is %s", tier, p.clusters[row].Labels[v1alpha1.LabelTier])
		},
	}
}

// tainted rejects clusters with the taints NoSchedule and NoExecute, both of which prevent new
// placements (v1alpha1.MemberClusterSpec.Taints).
func tainted(tolerations []corev1.Toleration) filter {
	repels := func(taint *corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(tolerations, taint)
	}
	return filter{reason: ReasonTainted, entry: true, passing: true,
		rejects: func(p *page, among set) set {
			var repelled set
			for taint, rows := range p.taints {
				if !tolerated(tolerations, &corev1.Taint{Key: taint.key, Value: taint.value, Effect: taint.effect}) {
					repelled = repelled.or(rows)
				}
			}
			return among.and(repelled)
		},
		message: func(p *page, row int) string {
			taints := p.clusters[row].Taints
			i := slices.IndexFunc(taints, func(t corev1.Taint) bool { return repels(&t) })
			return fmt.Sprintf("has taint %s, which is not tolerated", taints[i].ToString())
		},
	}
}

// tolerated reports whether any of the tolerations tolerates the taint, by the rules of
// Kubernetes' "Taints and Tolerations". Tolerations with the numeric operators, which are
// behind a feature gate in Kubernetes, tolerate nothing here.
func tolerated(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != taint.Effect:
			return false
		case t.Key != "" && t.Key != taint.Key:
			return false
		case t.Operator == corev1.TolerationOpExists:
			return true
		default:
			return (t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Key != "" && t.Value == taint.Value
		}
	})
}

func storageClassMissing(class string) filter {
	return filter{reason: ReasonStorageClassMissing, probed: true,
		rejects: func(p *page, among set) set { return among.without(p.classes[class]) },
		message: func(p *page, row int) string {
			if has := p.clusters[row].StorageClasses; len(has) > 0 {
				return fmt.Sprintf("needs storage class %s, has %s", class, strings.Join(has, ", "))
			}
			return fmt.Sprintf("needs storage class %s, has none", class)
		},
	}
}

// insufficient rejects clusters with too little of a resource left. The resource is in the
// reason: InsufficientCPU, InsufficientMemory, InsufficientNvidiaComGpu. empty means to assume
// that nothing is on the clusters.
func insufficient(name corev1.ResourceName, need, held int64, column int, empty bool) filter {
	if column < 0 {
		held = 0 // no cluster has any, so what is held is not there any more
	}
	return filter{reason: insufficientReason(name), probed: true,
		rejects: func(p *page, among set) set {
			free := p.column(column).left(empty)
			var short set // set.where is slower, and this filter sees most rows
			for row := range among.rows() {
				if free[row]+held < need {
					short.add(row)
				}
			}
			return short
		},
		message: func(p *page, row int) string {
			c := p.clusters[row]
			free := p.column(column).free[row]
			reserved := c.Unreserved(name) - free - held
			return fmt.Sprintf("needs %s %s, %s free of %s after %s reserved and %s used by others",
				show(name, need), name, show(name, max(free+held, 0)), c.showSold(name),
				show(name, reserved), show(name, c.ForeignUse[name]))
		},
	}
}

func noPrice(currency string, tariff tariff) filter {
	return filter{reason: ReasonNoPrice,
		rejects: func(p *page, among set) set { return among.without(tariff.priced(p, currency)) },
		message: func(p *page, row int) string {
			if other := tariff.currency(position{page: p, row: row}); other != "" {
				return fmt.Sprintf("needs a price in %s, has prices in %s", currency, other)
			}
			return fmt.Sprintf("needs a price in %s, has no price list", currency)
		},
	}
}

func tooExpensive(most Price, tariff tariff) filter {
	return filter{reason: ReasonTooExpensive,
		rejects: func(p *page, among set) set {
			return among.where(func(row int) bool { return tariff.nanoPerHour(p, row) > most.NanoPerHour })
		},
		message: func(p *page, row int) string {
			price := Price{most.Currency, tariff.nanoPerHour(p, row)}
			return fmt.Sprintf("costs %s, at most %s allowed", price, most)
		},
	}
}
