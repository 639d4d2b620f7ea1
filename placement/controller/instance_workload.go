package controller

import (
	"errors"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// runningWorkload returns the workload that an instance keeps in a state; nil if it gets that of its
// plan. A delivered instance keeps its own until it requests another plan, or the plan's next
// maintenance: a change of the plan alone changes nothing that runs.
func runningWorkload(instance *v1alpha1.ServiceInstance, wanted *v1alpha1.InstanceState) *v1alpha1.WorkloadPlan {
	if d := kept(instance, wanted); d != nil {
		return d.Decision.Workload
	}
	return nil
}

// workload returns what Sluice applies for an instance by a decision, in a state; nil if nothing.
func (r *instanceReconciler) workload(s *scope, decision *v1alpha1.Decision, state *v1alpha1.InstanceState) (*workload.Order, error) {
	plan := workload.PlanOf(decision)
	if plan == nil {
		return nil, nil
	}
	secrets, err := workload.UnsealInstance(s.ServiceInstance, r.keys)
	if err != nil {
		return nil, err
	}
	return workload.Of(plan, s.ServiceInstance, state, r.keys, secrets)
}

// secure puts the secrets of a workload into the status, sealed, unless they are there already. They
// are written together with the decision that needs them.
func (r *instanceReconciler) secure(s *scope, w *v1alpha1.WorkloadPlan) error {
	if w == nil {
		return nil
	}
	if r.keys == nil {
		return errors.New("seal the workload's secrets: there is no keyset")
	}
	secrets, err := workload.UnsealInstance(s.ServiceInstance, r.keys)
	if err != nil {
		return err
	}
	complete, changed := secrets.Complete(w.Secrets)
	if !changed {
		return nil
	}
	sealed, err := complete.SealInstance(s.ServiceInstance, r.keys)
	if err != nil {
		return err
	}
	s.recordSecrets(sealed)
	return nil
}
