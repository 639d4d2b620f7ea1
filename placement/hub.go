package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A hub holds the namespaces of the consumers that it connects, and all their traffic passes
// through it. So a hub is chosen like a cluster: it must answer and take new placements, its
// provider must have proven what is required, and the rules of policies, plan and consumer
// (v1alpha1.RuleScope) must be met. Among the remaining hubs the score decides. Resources,
// labels, tier and price of the order apply to the chosen clusters, not to hubs.

// hubLoad is how many instances are reached through a hub.
type hubLoad struct {
	Hub       string
	Instances int
}

// through returns the number of instances that are reached through a hub.
func (s *Snapshot) through(hub string) int {
	if load := row[hubLoad](s.store, tableHub, hub); load != nil {
		return load.Instances
	}
	return 0
}

// ofHub returns the part of the request that applies to hubs.
func (r Request) ofHub() Request {
	r.Affinity = nil
	var rules []Rule
	for _, rule := range r.Rules {
		if rule.appliesTo != v1alpha1.RuleClusters {
			if rule.appliesTo == v1alpha1.RuleHubs {
				rule.appliesTo = v1alpha1.RulePath
			}
			rules = append(rules, rule)
		}
	}
	var preferences []Preference
	for _, preference := range r.Preferences {
		if preference.appliesTo != v1alpha1.RuleClusters {
			preference.appliesTo = v1alpha1.RulePath
			preferences = append(preferences, preference)
		}
	}
	r.Rules, r.Preferences = rules, preferences
	return r
}

// hubFilters returns a request's filters for hubs, in their order.
func (r Request) hubFilters() []filter {
	asked := []filter{notReady(), accessNotVerified(), notAdmitted(), cordoned()}
	if len(r.ExcludeProviders) > 0 {
		asked = append(asked, excluded(r.ExcludeProviders))
	}
	return append(append(asked, tainted(r.Tolerations)), r.rulings()...)
}

// chooseHub chooses one of the given hubs, or records why none fits. A hub that the instance is
// delivered through is kept, unless the plan or the consumer now excludes it.
func (p *Peering) chooseHub(s *Snapshot, r Request, hubs []position) {
	r = r.ofHub()
	filters := r.hubFilters()
	if i := slices.IndexFunc(hubs, func(at position) bool { return at.cluster().Name == p.Hub }); i >= 0 {
		p.hubs = []Verdict{{Cluster: p.Hub, Role: roleHub, Chosen: true, Message: "the instance is delivered through it"}}
		if f, refused := refusal(hubs[i], filters, true); refused {
			why := f.message(hubs[i].page, hubs[i].row)
			p.hubs[0] = Verdict{Cluster: p.Hub, Role: roleHub, Reason: f.reason, Message: why}
			p.Problem = fmt.Sprintf("the instance stays with its hub %s, which cannot take the change: %s (%s)", p.Hub, f.reason, why)
		}
		return
	}
	p.Hub = ""
	lasting := slices.DeleteFunc(slices.Clone(filters), func(f filter) bool { return f.passing })
	var fit []position
	for _, at := range hubs {
		f, refused := refusal(at, filters, false)
		if !refused {
			fit = append(fit, at)
			continue
		}
		p.hubs = append(p.hubs, Verdict{Cluster: at.cluster().Name, Role: roleHub, Reason: f.reason, Message: f.message(at.page, at.row)})
		if _, forGood := refusal(at, lasting, false); !forGood {
			p.passing = true
		}
	}
	if len(fit) == 0 {
		p.Problem = "no hub accepts it: " + listVerdicts(p.hubs)
		return
	}
	ranked := rankHubs(s, r, fit)
	p.Hub = ranked[0].cluster().Name
	fitting := make([]Verdict, len(ranked))
	for i, c := range ranked {
		fitting[i] = Verdict{
			Cluster: c.cluster().Name, Role: roleHub, Chosen: i == 0, Score: c.score,
			Message: fmt.Sprintf("%d instances are reached through it", s.through(c.cluster().Name)),
		}
		if i > 0 {
			fitting[i].Reason = ReasonOutranked
		}
	}
	p.hubs = append(fitting, p.hubs...)
}

// rankHubs returns the hubs that fit, the best first.
func rankHubs(s *Snapshot, r Request, fit []position) []candidate {
	fewest := math.MaxInt
	for _, at := range fit {
		fewest = min(fewest, s.through(at.cluster().Name))
	}
	sc, hash := newScorer(r, s, &rowScores{}), hash64(r.ID)
	ranked := make([]candidate, len(fit))
	for i, at := range fit {
		c := candidate{position: at, latency: math.MaxInt64, tie: mix(hash ^ at.page.hash[at.row])}
		if measured, known := latencyOf(at.cluster(), r.MaxLatency, r.At); known {
			c.latency = int64(measured)
		}
		c.score = sc.hub(at, int32(percent(int64(1+fewest), int64(1+s.through(at.cluster().Name))))) // at most 100
		c.rank = int64(c.score)
		ranked[i] = c
	}
	slices.SortFunc(ranked, better)
	return ranked
}

// hub returns the score of a hub: the weighted mean of the scores of any cluster, with its load
// instead of its balance. If none of these has a weight, it is the load alone.
func (sc *scorer) hub(at position, load int32) int32 {
	w := &sc.weights
	var sum, total int64
	for _, part := range []struct{ weight, score int32 }{
		{w.Fit, load},
		{w.Balance, load},
		{w.Pack, 100 - load},
		{w.Latency, sc.nearness(at)},
		{w.Locality, sc.locality(at)},
		{w.Freshness, sc.freshness(at)},
	} {
		sum, total = sum+int64(part.weight)*int64(part.score), total+int64(part.weight)
	}
	sum, total = sum+sc.preferred*int64(sc.preference(at)), total+sc.preferred
	if total == 0 {
		sum, total = int64(load), 1
	}
	return int32(sum/total) / (1 + sc.disliked(at)) // at most 100
}

// listVerdicts formats the first rejections.
func listVerdicts(verdicts []Verdict) string {
	var parts []string
	for i, v := range verdicts {
		if i == maxExamples {
			parts = append(parts, fmt.Sprintf("and %d more", len(verdicts)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s: %s (%s)", v.Cluster, v.Reason, v.Message))
	}
	return strings.Join(parts, ", ")
}
