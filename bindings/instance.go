package bindings

import (
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// placementsOf returns the placements of a delivered instance; nil if it is not delivered.
func placementsOf(instance *v1alpha1.ServiceInstance) []v1alpha1.Placement {
	if instance == nil || instance.Status.Delivered == nil {
		return nil
	}
	return instance.Status.Delivered.Decision.Placements
}

// placementWhere returns the first placement of a delivered instance for which is returns true; nil if there is none.
func placementWhere(instance *v1alpha1.ServiceInstance, is func(*v1alpha1.Placement) bool) *v1alpha1.Placement {
	placements := placementsOf(instance)
	for i := range placements {
		if is(&placements[i]) {
			return &placements[i]
		}
	}
	return nil
}

// isOrderedOn reports whether the instance is ordered from another broker or a pool, which has the accounts of its bindings.
func isOrderedOn(instance *v1alpha1.ServiceInstance) bool {
	return upstreamOf(instance) != nil || poolOf(instance) != nil
}

// shownAs returns the name by which the consumer of an instance knows a member cluster. It knows its own one by name.
func shownAs(instance *v1alpha1.ServiceInstance, cluster string) string {
	if placementWhere(instance, func(p *v1alpha1.Placement) bool { return p.Peering != nil && p.Peering.Consumer == cluster }) != nil {
		return cluster
	}
	return instance.ShownAs(cluster)
}

// clustersOf returns the clusters that hold an instance's namespace, and so the accounts of
// its bindings, in the decision's order.
func clustersOf(instance *v1alpha1.ServiceInstance) []string {
	if instance == nil {
		return nil
	}
	return instance.Status.DeliveredDecision().NamespaceClusters()
}

// addressedOf returns those of them whose Services the consumer's cluster reaches by
// addresses from Liqo.
func addressedOf(instance *v1alpha1.ServiceInstance) []string {
	peered := v1alpha1.Decision{Placements: slices.DeleteFunc(slices.Clone(placementsOf(instance)), func(p v1alpha1.Placement) bool { return p.Peering == nil })}
	return peered.NamespaceClusters()
}

// leftOf returns the clusters that held the instance's namespace, that the instance has
// left, and that still have something of it.
func leftOf(instance *v1alpha1.ServiceInstance) []string {
	var names []string
	for i := range instance.Status.Left {
		if name := instance.Status.Left[i].NamespaceCluster(); name != "" {
			names = append(names, name)
		}
	}
	return lists.Without(names, clustersOf(instance)) // a hub may still hold the namespace
}

// onNodes returns the placements that are only a virtual node of the consumer's own
// cluster.
func onNodes(instance *v1alpha1.ServiceInstance) []v1alpha1.Placement {
	return slices.DeleteFunc(slices.Clone(placementsOf(instance)), func(p v1alpha1.Placement) bool { return p.NamespaceCluster() != "" })
}

func nodesOf(instance *v1alpha1.ServiceInstance) []string {
	var names []string
	for _, p := range onNodes(instance) {
		names = append(names, p.Peering.Node)
	}
	return names
}

// way is the path by which a placement is reached.
type way struct {
	Cluster string
	Peering *v1alpha1.PlacementPeering
}

func waysOf(instance *v1alpha1.ServiceInstance) []way {
	var out []way
	for _, p := range placementsOf(instance) {
		out = append(out, way{p.Cluster, p.Peering})
	}
	return out
}

// isPeered reports whether the consumer's own cluster is peered with the instance's
// clusters.
func isPeered(instance *v1alpha1.ServiceInstance) bool {
	return slices.ContainsFunc(placementsOf(instance), func(p v1alpha1.Placement) bool { return p.Peering != nil })
}

// isMade reports whether the instance is a cluster that Sluice created.
func isMade(instance *v1alpha1.ServiceInstance) bool {
	return slices.ContainsFunc(placementsOf(instance), func(p v1alpha1.Placement) bool { return p.Shape != nil })
}
