package placement

import (
	"reflect"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/podrules"
)

// workloadsRule returns the rule by which clusters are refused to orders whose pods they would refuse.
func workloadsRule(by, provider string, rules *v1alpha1.WorkloadRules) Rule {
	return Rule{By: by, Name: "workloads", Provider: provider, appliesTo: v1alpha1.RuleClusters, workloads: rules}
}

// refusedPod says why a rule for workloads refuses a pod: in general, and with the values.
type refusedPod struct{ refused, because string }

func (r refusedPod) is() bool { return r.because != "" }

// refusedBy returns how a rule refuses the first pod that it refuses. It is evaluated once for all clusters, as it
// depends on none.
func (f *facts) refusedBy(r *Rule) (found refusedPod) {
	if known, ok := f.refused[r]; ok {
		return known
	}
	annotations := podrules.Annotations(*r.workloads)
	for i := range f.pods {
		refused, because, err := podrules.CheckAgreed(f.pods[i].Template(), annotations)
		if err != nil {
			because = "cannot be evaluated: " + err.Error()
		}
		if because != "" {
			found = refusedPod{refused, because}
			break
		}
	}
	f.refused[r] = found
	return found
}

// forPods returns the request's rules for pods. Whole clusters and instances of other brokers have none, as nothing would
// enforce them.
func (r *Request) forPods() (rules []*Rule) {
	if r.Shape != nil || r.Upstream != nil {
		return nil
	}
	for i := range r.Rules {
		if r.Rules[i].workloads != nil {
			rules = append(rules, &r.Rules[i])
		}
	}
	return rules
}

// unguarded rejects the clusters to which one of the rules for pods applies, and which would not enforce it.
func unguarded(rules []*Rule) filter {
	return filter{reason: ReasonRulesNotEnforced, entry: true, passing: true,
		rejects: func(p *page, among set) (refused set) {
			among = among.and(p.unguarded)
			for _, rule := range rules {
				refused = refused.or(rule.concerns(p, among))
			}
			return refused
		},
		message: func(p *page, row int) string { return p.clusters[row].Unguarded },
	}
}

// rulesOn returns the rules for pods of the request on a cluster, in the order of their policies, each once.
func (r *Request) rulesOn(c *Cluster) (rules []v1alpha1.WorkloadRules) {
	if sold, stays := r.Sold[c.Name]; stays {
		return sold
	}
	for _, rule := range r.forPods() {
		if rule.Provider != "" && rule.Provider != c.Provider {
			continue
		}
		if !slices.ContainsFunc(rules, func(has v1alpha1.WorkloadRules) bool { return reflect.DeepEqual(has, *rule.workloads) }) {
			rules = append(rules, *rule.workloads)
		}
	}
	return rules
}

// SoldRules returns the rules for workloads by which an instance is on its clusters, as Request.Sold.
func SoldRules(status *v1alpha1.ServiceInstanceStatus) map[string][]v1alpha1.WorkloadRules {
	sold := map[string][]v1alpha1.WorkloadRules{}
	for _, p := range status.InForce() {
		if _, later := sold[p.Cluster]; !later {
			sold[p.Cluster] = p.Workloads
		}
	}
	return sold
}
