package addons

import (
	"cmp"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Order holds the values of an order for expressions, beside its cluster.
type Order struct {
	// PlanID and PlanName of the plan.
	PlanID, PlanName string
	// Parameters of the instance.
	Parameters map[string]any
	// Tier of the management cluster that the plan asks for; empty means any.
	Tier v1alpha1.Tier
}

// FactsOf returns the facts of the cluster of an instance, by its shape.
func FactsOf(instance *v1alpha1.ServiceInstance, shape *v1alpha1.ClusterShape, order Order) Facts {
	nodes := int64(0)
	for _, pool := range shape.Workers {
		nodes += int64(pool.Replicas)
	}
	tier := order.Tier
	if shape.Member != nil {
		tier = cmp.Or(shape.Member.Tier, tier)
	}
	name := ""
	if instance.Name != "" {
		name = v1alpha1.InstanceClusterName(instance.Name)
	}
	return Facts{
		"cluster": map[string]any{
			"name": name, "version": shape.Version, "podCIDRs": anyOf(shape.PodCIDRs), "serviceCIDRs": anyOf(shape.ServiceCIDRs),
			"nodes": nodes, "tier": string(cmp.Or(tier, v1alpha1.TierCloud)),
		},
		"instance": map[string]any{
			"id": instance.Spec.InstanceID, "name": instance.Name, "platform": instance.Spec.Platform,
			"organization": instance.Spec.OrganizationGUID, "space": instance.Spec.SpaceGUID,
		},
		"plan":       map[string]any{"id": order.PlanID, "name": order.PlanName},
		"parameters": order.Parameters,
	}
}

func anyOf(from []string) []any {
	all := make([]any, 0, len(from))
	for _, one := range from {
		all = append(all, one)
	}
	return all
}
