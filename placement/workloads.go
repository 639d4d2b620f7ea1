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

// rulesOn returns the rules for pods of the request on a cluster, in the order of their policies, each once. Whole
// clusters and instances of other brokers have none, as nothing would enforce them.
func (r *Request) rulesOn(c *Cluster) (rules []v1alpha1.WorkloadRules) {
	if r.Shape != nil || r.Upstream != nil {
		return nil
	}
	if sold, stays := r.Sold[c.Name]; stays {
		return sold
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		if rule.workloads == nil || rule.Provider != "" && rule.Provider != c.Provider {
			continue
		}
		if !slices.ContainsFunc(rules, func(has v1alpha1.WorkloadRules) bool { return reflect.DeepEqual(has, *rule.workloads) }) {
			rules = append(rules, *rule.workloads)
		}
	}
	return rules
}
