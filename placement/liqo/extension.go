package liqo

import (
	"context"
	"slices"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// behindHub is how the hub's namespaces are extended.
var behindHub = v1alpha1.Offloading{Mapping: "DefaultName", Pods: "Remote"}

// extends tells whether a namespace extends to the node of a placement.
func extends(p *v1alpha1.PlacementPeering) bool {
	return p.Node != "" && (p.Hub != "" || p.Offloading != nil)
}

// sharing are those placements of the instance whose nodes are where this one's is, and that
// its namespace there extends to.
func (r *route) sharing(placements []*v1alpha1.Placement) []*v1alpha1.Placement {
	return slices.DeleteFunc(placements, func(p *v1alpha1.Placement) bool {
		return p.Peering == nil || !extends(p.Peering) || nodeHolder(p.Peering) != nodeHolder(r.PlacementPeering)
	})
}

// others are those that share the namespace, but for this one's cluster.
func (r *route) others(placements []*v1alpha1.Placement) []*v1alpha1.Placement {
	return slices.DeleteFunc(r.sharing(placements), func(p *v1alpha1.Placement) bool { return p.Cluster == r.Placement.Cluster })
}

// extend extends the instance's namespace on the cluster that has its nodes, and waits.
func (r *route) extend(ctx context.Context, on *side, t *tenant.Tenant) error {
	if err := r.extendTo(ctx, on, t, r.sharing(placementsOf(r.Instance))); err != nil {
		return err
	}
	return on.extended(ctx, t)
}

// extendTo extends it to the clusters of some placements, and to no others.
func (r *route) extendTo(ctx context.Context, on *side, t *tenant.Tenant, placements []*v1alpha1.Placement) error {
	extension, err := r.extension(ctx, on, t, placements)
	if err != nil {
		return err
	}
	return on.extend(ctx, extension)
}

// extension is that of the instance's namespace to the clusters of some of its placements, as
// far as they are peered; the first says how.
func (r *route) extension(ctx context.Context, on *side, t *tenant.Tenant, placements []*v1alpha1.Placement) (*offloadingv1beta1.NamespaceOffloading, error) {
	how := behindHub
	if p := placements[0].Peering; p.Hub == "" {
		how = *p.Offloading
	}
	var clusters, to []string // the decision in hand and the one in force have most in common
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
		to = append(to, peering.Status.Provider.ClusterID)
	}
	slices.Sort(to)
	return on.extension(t, how, slices.Compact(to)), nil
}

// observeExtension returns nil while the namespace extends to where it should. While the
// instance leaves a cluster, that may be among them or not.
func (r *route) observeExtension(ctx context.Context, on *side, t *tenant.Tenant) error {
	if len(r.Instance.Status.Left) == 0 {
		extension, err := r.extension(ctx, on, t, r.sharing(placementsOf(r.Instance)))
		if err != nil {
			return err
		}
		if err := on.compare(ctx, t, extension); err != nil {
			return err
		}
	}
	return on.extended(ctx, t)
}
