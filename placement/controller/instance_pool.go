package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// endOrphan deletes an instance that a pool has ordered for one of a consumer, if that one is gone or another one has its name.
// It is deleted with it, unless somebody has removed the finalizer of the consumer's; nobody else would end it.
func (r *instanceReconciler) endOrphan(ctx context.Context, s *scope) (ctrl.Result, error) {
	order := s.Spec.Pool
	if order == nil {
		return ctrl.Result{}, nil
	}
	for _, from := range []client.Reader{r.hub, r.live} { // the cache may not have heard of it yet
		var outer v1alpha1.ServiceInstance
		err := from.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: order.Instance}, &outer)
		if err == nil && v1alpha1.UIDOf(&outer) == order.InstanceUID {
			return ctrl.Result{}, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("read instance %s, for which pool %s has ordered: %w", order.Instance, order.Pool, err)
		}
	}
	log.FromContext(ctx).Info("Ending what a pool has ordered for an instance that is gone", "pool", order.Pool, "instance", order.Instance)
	err := r.hub.Delete(ctx, s.ServiceInstance, client.Preconditions{UID: &s.UID})
	return ctrl.Result{RequeueAfter: staleAfter}, client.IgnoreNotFound(err)
}
