package liqo

import (
	"context"
	"fmt"
	"slices"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// behindHub is the offloading of the hub's namespaces.
var behindHub = v1alpha1.Offloading{Mapping: "DefaultName", Pods: "Remote"}

// extends reports whether a namespace extends to the node of a placement.
func extends(p *v1alpha1.PlacementPeering) bool {
	return p.Node != "" && (p.Hub != "" || p.Offloading != nil)
}

// sharing returns the placements whose nodes are on the same cluster as this one's, and to
// which the instance's namespace there extends.
func (r *route) sharing(placements []*v1alpha1.Placement) []*v1alpha1.Placement {
	return slices.DeleteFunc(placements, func(p *v1alpha1.Placement) bool {
		return p.Peering == nil || !extends(p.Peering) || nodeHolder(p.Peering) != nodeHolder(r.PlacementPeering)
	})
}

// others returns the placements of sharing, without those on this placement's cluster.
func (r *route) others(placements []*v1alpha1.Placement) []*v1alpha1.Placement {
	return slices.DeleteFunc(r.sharing(placements), func(p *v1alpha1.Placement) bool { return p.Cluster == r.Placement.Cluster })
}

// extend extends the instance's namespace on the cluster that has its nodes, and waits until it
// is done.
func (r *route) extend(ctx context.Context, on *side, t *tenant.Tenant) error {
	if err := r.extendTo(ctx, on, t, r.sharing(r.Instance.Status.Everywhere())); err != nil {
		return err
	}
	return on.extended(ctx, t)
}

// extendTo extends the namespace to the clusters of some placements, and to no others.
func (r *route) extendTo(ctx context.Context, on *side, t *tenant.Tenant, placements []*v1alpha1.Placement) error {
	extension, err := r.extension(ctx, on, t, placements)
	if err != nil {
		return err
	}
	return on.apply(ctx, extension)
}

// extension returns the offloading of the instance's namespace to the clusters of some of its
// placements, as far as they are peered. The first placement determines the mapping and the
// pods.
func (r *route) extension(ctx context.Context, on *side, t *tenant.Tenant, placements []*v1alpha1.Placement) (*offloadingv1beta1.NamespaceOffloading, error) {
	how := behindHub
	if p := placements[0].Peering; p.Hub == "" {
		how = *p.Offloading
	}
	key := consts.RemoteClusterID
	if r.Instance.Spec.Pool != nil {
		key = v1alpha1.LabelPeer // Liqo copies the selector to each pod, where the consumer reads it
	}
	var clusters, to []string // the current and the delivered decision have most clusters in common
	for _, p := range placements {
		clusters = append(clusters, p.Cluster)
	}
	slices.Sort(clusters)
	for _, cluster := range slices.Compact(clusters) {
		peering, err := r.read(ctx, r.Live, leg{consumer: nodeHolder(r.PlacementPeering), provider: cluster})
		if apierrors.IsNotFound(err) || err == nil && peering.Status.Provider == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		value := peering.Status.Provider.ClusterID
		if key == v1alpha1.LabelPeer {
			var member v1alpha1.MemberCluster
			if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Instance.Namespace, Name: cluster}, &member); err != nil {
				return nil, fmt.Errorf("read member cluster %s: %w", cluster, err)
			}
			value = v1alpha1.PeerMark(&member)
		}
		to = append(to, value)
	}
	slices.Sort(to)
	return on.extension(t, how, key, slices.Compact(to)), nil
}

// observeExtension returns nil while the namespace extends to the right clusters. While the
// instance leaves a cluster, that cluster may be among them or not.
func (r *route) observeExtension(ctx context.Context, on *side, t *tenant.Tenant) error {
	if len(r.Instance.Status.Left) == 0 {
		extension, err := r.extension(ctx, on, t, r.sharing(r.Instance.Status.Everywhere()))
		if err != nil {
			return err
		}
		if err := on.compare(ctx, t, extension); err != nil {
			return err
		}
	}
	return on.extended(ctx, t)
}
