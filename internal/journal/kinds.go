package journal

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Kind is a kind of resource with events.
type Kind struct {
	// Name as in EventSubject.Kind.
	Name string
	// New and List return empty ones.
	New  func() Subject
	List func() client.ObjectList
}

// Kinds are all kinds of resources with events.
var Kinds = []Kind{
	{v1alpha1.KindServiceInstance, func() Subject { return &v1alpha1.ServiceInstance{} }, func() client.ObjectList { return &v1alpha1.ServiceInstanceList{} }},
	{v1alpha1.KindServiceBinding, func() Subject { return &v1alpha1.ServiceBinding{} }, func() client.ObjectList { return &v1alpha1.ServiceBindingList{} }},
	{v1alpha1.KindMemberCluster, func() Subject { return &v1alpha1.MemberCluster{} }, func() client.ObjectList { return &v1alpha1.MemberClusterList{} }},
	{v1alpha1.KindPeering, func() Subject { return &v1alpha1.Peering{} }, func() client.ObjectList { return &v1alpha1.PeeringList{} }},
}
