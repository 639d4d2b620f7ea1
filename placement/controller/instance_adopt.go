package controller

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/carried"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
)

// isToBeAdopted reports whether the instance is on its clusters already, and the hub has not taken it over yet.
func (s *scope) isToBeAdopted() bool {
	return s.Annotations[v1alpha1.AnnotationAdopt] != "" && s.Status.Decision == nil && s.Status.Delivered == nil && !s.Status.IsFinished()
}

// takeOver makes the status of an instance that is on its clusters already, by the order that these carry. Nothing is
// placed, and nothing removed if it fails: it is tried again. What the order reserves is reserved before the hub has it,
// as in place; until then the cluster's reader counts it as used by others. Then the clusters are checked, and repaired.
func (r *instanceReconciler) takeOver(ctx context.Context, s *scope) (ctrl.Result, error) {
	order, err := r.orderOf(s)
	if err != nil {
		return r.retry(ctx, s, fmt.Errorf("adopt: %w", err))
	}
	d := order.Decision.DeepCopy()
	d.Generation, d.Term = s.Generation, r.leadership.Term()
	if d.Workload != nil {
		if err := r.bindSecrets(s, order); err != nil {
			return r.retry(ctx, s, fmt.Errorf("adopt: %w", err))
		}
	}
	later := s.ServiceInstance.DeepCopy()
	later.Status.Decision = d
	if err := r.inventory.Take(placement.HoldingOf(later)); err != nil {
		return r.retry(ctx, s, fmt.Errorf("adopt: %w", err))
	}
	s.recordDecision(d)
	s.recordDelivered()
	if err := r.write(ctx, s, writeDelivered); err != nil {
		return ctrl.Result{}, err
	}
	r.observations.Store(s.Name, observation{at: s.now, request: s.Annotations[AnnotationObserve]})
	return ctrl.Result{}, nil
}

// orderOf returns the order by which an instance is to be adopted.
func (r *instanceReconciler) orderOf(s *scope) (*carried.Order, error) {
	if r.keys == nil {
		return nil, errors.New("there is no keyset")
	}
	order, err := carried.Open(s.Annotations[v1alpha1.AnnotationAdopt], r.keys, s.Namespace, s.Name)
	if err != nil {
		return nil, err
	}
	if err := order.Adoptable(); err != nil {
		return nil, err
	}
	if !order.IsOf(&s.Spec) {
		return nil, errors.New("the resource was changed: delete it, and adopt the instance again")
	}
	return order, nil
}

// bindSecrets puts the workload's secrets into the status, bound to this resource instead of the former one.
func (r *instanceReconciler) bindSecrets(s *scope, order *carried.Order) error {
	former := s.ServiceInstance.DeepCopy()
	former.UID, former.Annotations, former.Status.SealedSecrets = order.UID, nil, order.SealedSecrets
	secrets, err := workload.UnsealInstance(former, r.keys)
	if err != nil {
		return err
	}
	sealed, err := secrets.SealInstance(s.ServiceInstance, r.keys)
	if err != nil {
		return err
	}
	s.recordSecrets(sealed)
	return nil
}
