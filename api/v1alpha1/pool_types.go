package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ClusterPool is several member clusters, mostly of small providers, that are sold as one under a name of their own. What
// consumers read of an instance names the pool only.
//
// An instance is placed twice. Ordered from the pool, it is on the pool by the decision that the consumer sees. The pool
// then orders an instance of the same plan for itself (ServiceInstance spec.pool), which is placed on members of the pool,
// and delivered by way of its front as with the role HubAndSpoke.
type ClusterPool struct {
	// Front is the member cluster that is the hub of all peerings of the pool, and holds the namespaces of its instances. It
	// has the driver liqo and liqo.hub.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Front string `json:"front"`
	// Members selects the member clusters by their labels. Of these, the pool has those with the driver liqo that are
	// neither hubs nor consumers' own.
	Members metav1.LabelSelector `json:"members"`
}

// PoolOrder is the order of a pool for itself, to carry out one of a consumer.
type PoolOrder struct {
	// Pool is the name of the MemberCluster.
	Pool string `json:"pool"`
	// Instance is the name of the ServiceInstance that the consumer ordered.
	Instance string `json:"instance"`
	// InstanceUID is its UID.
	InstanceUID types.UID `json:"instanceUID"`
	// Platform, OrganizationGUID and SpaceGUID of the consumer. The policies for that one hold for the members, too.
	Platform         string `json:"platform"`
	OrganizationGUID string `json:"organizationGUID,omitempty"`
	SpaceGUID        string `json:"spaceGUID,omitempty"`
}

// PlacementPool is the order by which a pool carries out a placement.
type PlacementPool struct {
	// Instance is the name of the ServiceInstance that the pool has ordered.
	Instance string `json:"instance"`
}

// PoolInstanceID returns the id, on PlatformSelf, of the instance by which a pool carries out an instance. With its spaces
// it is no id of a cluster that a policy has made.
func PoolInstanceID(pool, instance string) string { return "pool " + pool + " for " + instance }

// PoolInstanceName returns the name of that instance.
func PoolInstanceName(pool, instance string) string {
	return InstanceName(PlatformSelf, PoolInstanceID(pool, instance))
}

// IsOfPool reports whether the binding is one of an instance that a pool has ordered: the inner one of a consumer's, which
// LabelBinding names.
func (b *ServiceBinding) IsOfPool() bool {
	return b.Spec.Platform == PlatformSelf && b.Labels[LabelBinding] != ""
}

// ShownAs returns the name by which the consumer of an instance knows a member cluster: that of the pool, if the instance
// is one that a pool has ordered, or the cluster's own.
func (i *ServiceInstance) ShownAs(cluster string) string {
	if i.Spec.Pool != nil {
		return i.Spec.Pool.Pool
	}
	return cluster
}
