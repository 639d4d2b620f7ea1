package controller

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// remove deletes the instance's bindings, then its objects on its clusters, then removes the
// finalizer.
func (r *instanceReconciler) remove(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s, v1alpha1.Finalizer) {
		return ctrl.Result{}, nil
	}
	r.removing.Store(s.Name, true)
	left, err := r.unbind(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if left > 0 {
		waits := &delivery.PendingError{Step: "delete bindings", Detail: fmt.Sprintf("%d left", left)}
		return r.retry(ctx, s, waits)
	}
	if result, err := r.leave(ctx, s); err != nil || !result.IsZero() {
		return result, err
	}
	touched := lists.Union(s.Status.Decision.Clusters(), s.Status.DeliveredDecision().Clusters(), s.Status.LeftClusters())
	touched = slices.DeleteFunc(touched, func(cluster string) bool { return r.isGone(s, cluster) })
	if len(touched) > 0 {
		if err := r.leadership.Confirm(ctx); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.each(ctx, s, on(touched), nil, nil, delivery.Driver.Remove); err != nil {
			return r.retry(ctx, s, err)
		}
	}
	now := r.clock.Now()
	s.happened(now, v1alpha1.Event{Type: v1alpha1.EventRemoved, After: r.sinceThen(s.since())})
	r.recordUsage(s, now)
	if err := r.journals().End(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	controllerutil.RemoveFinalizer(s, v1alpha1.Finalizer)
	last := s.ServiceInstance.DeepCopy() // the hub's answer lacks the event
	err = r.hub.Update(ctx, s.ServiceInstance)
	r.recorder.Removed(ctx, last, err)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("remove the finalizer: %w", err)
	}
	r.forget(s.Name)
	return ctrl.Result{}, nil
}

// unbind deletes the instance's bindings and returns how many are left. The cache shows whether there are some. It may lack
// one that the broker accepted an instant before the instance was deleted. With an embedded hub that does not matter: the
// controller of bindings, which reads the same cache, has not issued credentials for it, and finds the instance deleted.
// With other replicas an earlier leader may have issued them, so the hub has to show that there are none; a kube-apiserver
// has them in memory, while the embedded one would read all bindings.
func (r *instanceReconciler) unbind(ctx context.Context, s *scope) (left int, err error) {
	for _, from := range r.bindings {
		bindings := &v1alpha1.ServiceBindingList{}
		if err := from.List(ctx, bindings, client.InNamespace(s.Namespace), client.MatchingFields{v1alpha1.FieldInstanceName: s.Name}); err != nil {
			return 0, fmt.Errorf("list bindings: %w", err)
		}
		if len(bindings.Items) > 0 {
			return len(bindings.Items), r.deleteAll(ctx, bindings.Items)
		}
	}
	return 0, nil
}

func (r *instanceReconciler) deleteAll(ctx context.Context, bindings []v1alpha1.ServiceBinding) error {
	for i := range bindings {
		binding := &bindings[i]
		if !binding.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.hub.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete binding %s: %w", binding.Name, err)
		}
	}
	return nil
}

// leave takes the cluster that was made for the instance out of the inventory if its driver is not asked to remove it:
// because the management cluster is forsaken, or has left the inventory, or because the provision failed and so is nowhere.
func (r *instanceReconciler) leave(ctx context.Context, s *scope) (ctrl.Result, error) {
	everywhere := s.Status.Everywhere()
	leaver, makes := r.drivers[v1alpha1.DriverCAPI].(delivery.Leaver)
	if !makes || len(everywhere) > 0 && !slices.ContainsFunc(everywhere, func(p *v1alpha1.Placement) bool {
		return p.Shape != nil && r.isGone(s, p.Cluster)
	}) {
		return ctrl.Result{}, nil
	}
	if err := r.leadership.Confirm(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if err := leaver.Leave(ctx, s.ServiceInstance); err != nil {
		return r.retry(ctx, s, err)
	}
	return ctrl.Result{}, nil
}
