package bindings

import (
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// placementsOf are where an instance is delivered; none for one that is not.
func placementsOf(instance *v1alpha1.ServiceInstance) []v1alpha1.Placement {
	if instance == nil || instance.Status.Delivered == nil {
		return nil
	}
	return instance.Status.Delivered.Decision.Placements
}

// clustersOf names the clusters that hold an instance's namespace, and so the accounts of
// its bindings, in the decision's order.
func clustersOf(instance *v1alpha1.ServiceInstance) []string {
	return clustersWhere(instance, func(*v1alpha1.Placement) bool { return true })
}

// addressedOf names those of them whose Services the consumer's cluster reaches, by
// addresses that Liqo gives them.
func addressedOf(instance *v1alpha1.ServiceInstance) []string {
	return clustersWhere(instance, func(p *v1alpha1.Placement) bool { return p.Peering != nil })
}

func clustersWhere(instance *v1alpha1.ServiceInstance, passes func(*v1alpha1.Placement) bool) []string {
	var names []string
	placements := placementsOf(instance)
	for i := range placements {
		if name := placements[i].NamespaceCluster(); name != "" && passes(&placements[i]) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// leftOf names the clusters that held the namespace of an instance that has left them, and
// that still have something of it.
func leftOf(instance *v1alpha1.ServiceInstance) []string {
	var names []string
	for i := range instance.Status.Left {
		if name := instance.Status.Left[i].NamespaceCluster(); name != "" {
			names = append(names, name)
		}
	}
	return without(names, clustersOf(instance)) // a hub may hold the namespace still
}

// onNodes are the placements that are virtual nodes of the consumer's own cluster, and
// nothing else.
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

// way is how a placement is reached.
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

// isPeered tells whether the consumer's own cluster is peered with where the instance is.
func isPeered(instance *v1alpha1.ServiceInstance) bool {
	return slices.ContainsFunc(placementsOf(instance), func(p v1alpha1.Placement) bool { return p.Peering != nil })
}

// isMade tells whether the instance is a cluster.
func isMade(instance *v1alpha1.ServiceInstance) bool {
	return slices.ContainsFunc(placementsOf(instance), func(p v1alpha1.Placement) bool { return p.Made != nil })
}
