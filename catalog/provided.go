package catalog

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// checkProvided checks an offering that a provider sells itself. It sells the provider's own clusters, and takes nothing that
// the operator decides for all: priority over other instances, hubs, taints, clients of platforms, the place for backups. It
// has no charts, whose templates are programs without bounds on time and memory, run in this process.
func checkProvided(spec *v1alpha1.ServiceOfferingSpec) error {
	switch {
	case spec.Provider == "":
		return nil
	case spec.DashboardClient != nil:
		return errors.New("dashboardClient: is for offerings of the operator")
	case len(spec.Requires) > 0:
		return errors.New("requires: is for offerings of the operator")
	}
	for i := range spec.Plans {
		plan := &spec.Plans[i]
		if plan.Kind != v1alpha1.PlanKindResources && plan.Kind != v1alpha1.PlanKindWorkload {
			return fmt.Errorf("plan %s: kind: providers sell resources and workloads; plans of kind %s are the operator's", plan.Name, plan.Kind)
		}
		if w := plan.Workload; w != nil {
			for k := range w.Components {
				if c := w.Components[k].Container; c != nil && (c.Backup != nil || c.Restore != nil) {
					return fmt.Errorf("plans[%d].workload.components[%d].container.backup: hooks for backups get the credentials of the operator's place for backups, which has those of all consumers, so only the operator sells them; until the plan has none, the offering takes no orders", i, k)
				}
				if w.Components[k].Chart != nil {
					return fmt.Errorf("plans[%d].workload.components[%d].chart: charts are executed by the broker, so only its operator sells them; use a container or manifests in this plan, with the same id; until then the offering takes no orders", i, k)
				}
			}
		}
		r := plan.Resources
		switch {
		case r == nil:
		case r.PriorityClass != "":
			return fmt.Errorf("plan %s: resources.priorityClass: is for offerings of the operator", plan.Name)
		case len(r.Tolerations) > 0:
			return fmt.Errorf("plan %s: resources.tolerations: are for offerings of the operator", plan.Name)
		case r.Peering.ByHub():
			return fmt.Errorf("plan %s: resources.peering.role: hubs and pools are for offerings of the operator", plan.Name)
		}
	}
	return nil
}

// confine makes the plan of a provider select that provider's clusters only, whatever else it selects.
func (p *Plan) confine(provider string) {
	if provider == "" || p.Resources == nil {
		return // checkProvided lets nothing else through
	}
	if p.Resources.Selector == nil {
		p.Resources.Selector = &metav1.LabelSelector{}
	}
	p.Resources.Selector.MatchExpressions = append(p.Resources.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: v1alpha1.LabelProvider, Operator: metav1.LabelSelectorOpIn, Values: []string{provider},
	})
}
