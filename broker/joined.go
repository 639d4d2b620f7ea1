package broker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/pages"
)

// mayLeave refuses to take the cluster of an instance out of the inventory while something is delivered
// to it, or an operator keeps it peered. It asks nothing of the hub about an instance whose cluster is no
// member cluster. What is delivered later than it looks only delays the cluster's removal.
func (s *server) mayLeave(c *call, i *v1alpha1.ServiceInstance) error {
	if joined := i.Status.DeliveredDecision().Shape(); joined == nil || joined.Member == nil {
		return nil
	}
	cluster := v1alpha1.InstanceClusterName(i.Name)
	var own []string
	others := 0
	err := pages.Each(c.Context(), s.Client, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		other := o.(*v1alpha1.ServiceInstance)
		switch {
		case other.Name == i.Name || !slices.ContainsFunc(other.Status.Everywhere(), func(p *v1alpha1.Placement) bool { return p.Needs(cluster) }):
		case sameOwner(i, other):
			own = append(own, other.Spec.InstanceID)
		default:
			others++
		}
		return nil
	}, client.InNamespace(s.Namespace))
	if err != nil {
		return fmt.Errorf("find what is delivered to cluster %s: %w", cluster, err)
	}
	var peerings v1alpha1.PeeringList
	if err := s.Client.List(c.Context(), &peerings, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("find the peerings of cluster %s: %w", cluster, err)
	}
	var reasons []string
	if len(own) > 0 {
		slices.Sort(own)
		reasons = append(reasons, "by the service instances "+lists.Some(own, 5)+": delete them first")
	}
	if others > 0 {
		reasons = append(reasons, fmt.Sprintf("by %d service instances of others: the broker's operator has to move them first (sluice cluster drain %s)", others, cluster))
	}
	if slices.ContainsFunc(peerings.Items, func(p v1alpha1.Peering) bool {
		return p.Spec.Kept && (p.Spec.Consumer == cluster || p.Spec.Provider == cluster)
	}) {
		reasons = append(reasons, fmt.Sprintf("by a peering that the broker's operator keeps: it has to be removed first (sluice peering list names those of %s)", cluster))
	}
	if len(reasons) == 0 {
		return nil
	}
	return &Error{Status: http.StatusUnprocessableEntity, Code: codeInUse, Description: "The cluster is in use " + strings.Join(reasons, "; ") + "."}
}

// sameOwner reports whether two instances belong to one space of one platform.
func sameOwner(a, b *v1alpha1.ServiceInstance) bool {
	return a.Spec.Platform == b.Spec.Platform && a.Spec.OrganizationGUID == b.Spec.OrganizationGUID && a.Spec.SpaceGUID == b.Spec.SpaceGUID
}
