package liqo

import (
	"context"
	"fmt"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/crashpoint"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// end removes what the peering has made, in the order in which it depends on each other, and
// then lets it go. Clusters that have left the inventory are not waited for.
func (r *Peerings) end(ctx context.Context, peering *v1alpha1.Peering) error {
	if !controllerutil.ContainsFinalizer(peering, v1alpha1.Finalizer) {
		return nil
	}
	if peering.Status.Consumer != nil && peering.Status.Provider != nil {
		if err := r.dismantle(ctx, peering); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(peering, v1alpha1.Finalizer)
	crashpoint.Hit(crashBeforePeeringGone)
	err := r.Client.Update(ctx, peering)
	crashpoint.Hit(crashAfterPeeringGone)
	return client.IgnoreNotFound(err)
}

func (r *Peerings) dismantle(ctx context.Context, peering *v1alpha1.Peering) error {
	reverse, err := r.reverse(ctx, peering)
	if err != nil {
		return err
	}
	consumer, err := r.reopen(ctx, peering.Spec.Consumer, peering.Status.Consumer, peering.Status.Provider)
	if err != nil {
		return err
	}
	provider, err := r.reopen(ctx, peering.Spec.Provider, peering.Status.Provider, peering.Status.Consumer)
	if err != nil {
		return err
	}
	if consumer != nil {
		if err := consumer.surrender(ctx); err != nil {
			return err
		}
	}
	if provider != nil {
		if err := provider.dismiss(ctx); err != nil {
			return err
		}
	}
	if reverse != nil {
		return nil
	}
	for _, step := range []func(*side, context.Context) error{(*side).disconnect, (*side).removeNamespace, (*side).forget} {
		var failures []error // both sides at once: neither waits for the other
		for _, s := range []*side{consumer, provider} {
			if s != nil {
				failures = append(failures, step(s, ctx))
			}
		}
		if err := first(failures...); err != nil {
			return err
		}
	}
	return nil
}

// reopen connects to a side of a peering that ends; nil where there is nothing for Sluice to do.
func (r *Peerings) reopen(ctx context.Context, name string, own, remote *v1alpha1.LiqoNetwork) (*side, error) {
	s, err := open(ctx, r.Connections, r.Hub, name)
	if member.IsUnknown(err) || err == nil && s.joined() != nil {
		return nil, nil //nolint:nilnil // there is nothing to do
	}
	if err != nil {
		return nil, err
	}
	s.own, s.remote = *own, *remote
	standing, err := s.standing(ctx)
	if err != nil {
		return nil, err
	}
	if standing == tenant.Gone {
		// All there may be left is what Liqo knows of the other one, unless somebody else peers the two.
		err := s.Get(ctx, client.ObjectKey{Name: s.namespace()}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			err = s.forget(ctx)
		}
		return nil, err
	}
	s.ending = standing == tenant.Ending
	return s, nil
}

// surrender gives back the resources that the consumer has from the provider, then its identity
// there. Slices are gone by now unless somebody else has made some. Those that the provider has
// from the consumer, where the two are peered both ways, are not this peering's.
func (s *side) surrender(ctx context.Context) error {
	if s.ending {
		return nil
	}
	var slices authv1beta1.ResourceSliceList
	if err := s.List(ctx, &slices, inNamespace(s.namespace())); err != nil {
		return s.failed(fmt.Errorf("list ResourceSlices in %s: %w", s.namespace(), err))
	}
	for i := range slices.Items {
		if slices.Items[i].Labels[consts.ReplicationStatusLabel] == "true" {
			continue // the other cluster's, where the two are peered the other way round as well
		}
		if err := s.gone(ctx, slices.Items[i].Name, &authv1beta1.ResourceSlice{}); err != nil {
			return err
		}
	}
	return s.gone(ctx, s.identityName(), &corev1.Secret{})
}

// removeNamespace deletes the tenant namespace and waits until it is gone.
func (s *side) removeNamespace(ctx context.Context) error {
	standing, err := s.standing(ctx)
	if err != nil || standing == tenant.Gone {
		return err
	}
	if standing == tenant.Held {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace()}}
		if err := client.IgnoreNotFound(s.Delete(ctx, namespace)); err != nil {
			return s.failed(fmt.Errorf("delete namespace %s: %w", namespace.Name, err))
		}
	}
	return s.pending("delete namespace "+s.namespace(), "")
}

// forget removes the ForeignCluster, which Liqo makes and never removes. It goes last, as Liqo
// makes it anew for anything that names the other cluster.
func (s *side) forget(ctx context.Context) error {
	foreign := &liqov1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: s.remote.ClusterID}}
	err := s.Delete(ctx, foreign)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return s.failed(fmt.Errorf("delete ForeignCluster %s: %w", foreign.Name, err))
	}
	return s.pending("delete ForeignCluster "+foreign.Name, "")
}
