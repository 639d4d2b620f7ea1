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
	"github.com/sluice-dev/sluice/placement/tenant"
)

// end removes everything that the peering has created, dependent objects first, and then
// removes the finalizer. It does not wait for clusters that have left the inventory, or are taken out of it while they do
// not answer.
func (r *Peerings) end(ctx context.Context, peering *v1alpha1.Peering) error {
	if !controllerutil.ContainsFinalizer(peering, v1alpha1.Finalizer) {
		return nil
	}
	if peering.Status.Consumer != nil && peering.Status.Provider != nil {
		if err := r.dismantle(ctx, peering); err != nil {
			return err
		}
	}
	ending, last := peering.DeepCopy(), v1alpha1.LastSequence(peering.Status.Events)
	if err := r.journals().Ended(ctx, ending, r.Clock.Now(), peering.Spec.Consumer, peering.Spec.Provider); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(peering, v1alpha1.Finalizer)
	err := r.Client.Update(ctx, peering)
	if err == nil {
		r.Recorder.Wrote(ctx, ending, last)
	}
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

// reopen connects to a side of a peering that ends. It returns nil if there is nothing for
// Sluice to remove there.
func (r *Peerings) reopen(ctx context.Context, name string, own, remote *v1alpha1.LiqoNetwork) (*side, error) {
	cluster, err := r.Connections.Present(ctx, name)
	if err != nil || cluster == nil || cluster.IsJoined() {
		return nil, err // if it has joined there is nothing to do, whether it answers or not
	}
	s, err := reach(ctx, r.Connections, r.Hub, cluster)
	if err != nil {
		return nil, err
	}
	s.own, s.remote = *own, *remote
	standing, err := s.standing(ctx)
	if err != nil {
		return nil, err
	}
	if standing == tenant.Gone {
		// Only Liqo's ForeignCluster of the other cluster may remain, unless somebody else has peered
		// the two.
		err := s.Get(ctx, client.ObjectKey{Name: s.namespace()}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			err = s.forget(ctx)
		}
		return nil, err
	}
	s.ending = standing == tenant.Ending
	return s, nil
}

// surrender deletes the consumer's slices from the provider, then the Secret with its identity
// there. Normally no slices are left by now, except those that somebody else has created. If
// the two are peered both ways, slices of the other direction are not touched.
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
			continue // the other cluster's, if the two are peered in the other direction as well
		}
		if err := s.gone(ctx, slices.Items[i].Name, &authv1beta1.ResourceSlice{}); err != nil {
			return err
		}
	}
	return s.gone(ctx, s.identityName(), &corev1.Secret{})
}

// removeNamespace deletes the tenant namespace and waits until it is gone.
func (s *side) removeNamespace(ctx context.Context) error {
	pending := s.pending("delete namespace "+s.namespace(), "")
	if s.ending {
		return pending
	}
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
	return pending
}

// forget deletes the ForeignCluster, which Liqo creates and never deletes. It comes last,
// because Liqo creates it anew for any object that names the other cluster.
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
