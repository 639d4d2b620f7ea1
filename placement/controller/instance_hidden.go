package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Parameters are sealed before they are stored, if the plan hides them (broker/parameters.go). A plan of other brokers may
// hide more later: when a broker joins, or its catalog calls more parameters writeOnly. Those of the instances that are
// there are sealed then.
//
// Sealing changes the spec, and so its generation, but nobody has asked for an operation. So the generation does not count
// for those outside (v1alpha1.AnnotationGenerations), and the generations in the status follow it.

// annotationSealed on a ServiceInstance has the UID and the generation of a spec that differs from the one before only in
// sealed parameters.
const annotationSealed = "sluice.dev/sealed"

// isSealedOnly reports whether the present generation differs only in sealed parameters from that of the operation.
func (s *scope) isSealedOnly() bool {
	op := s.Status.Operation
	return op != nil && op.Generation == s.Generation-1 && s.Annotations[annotationSealed] == sealedMark(s.ServiceInstance, s.Generation)
}

func sealedMark(i *v1alpha1.ServiceInstance, generation int64) string {
	return string(i.UID) + "/" + strconv.FormatInt(generation, 10)
}

// hide seals the parameters that the instance's plan hides by now, and removes their texts from all messages that the hub
// keeps of the instance. It is idempotent, and waits until no operation is under way.
func (r *instanceReconciler) hide(ctx context.Context, s *scope) (ctrl.Result, error) {
	if r.keys == nil || !s.Status.IsFinished() || s.Status.IsMoving() {
		return ctrl.Result{}, nil
	}
	hidden := r.hiddenOf(s)
	of := workload.ParametersOf(s.ServiceInstance, r.keys)
	desired, err := of.SealedMore(hidden, s.Spec.Desired.Raw(), s.StateInForce().Raw())
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("hide parameters: %w", err)
	}
	if !bytes.Equal(desired, s.Spec.Desired.Raw()) {
		if err := r.writeSealed(ctx, s, desired); err != nil {
			return ctrl.Result{}, err
		}
	}
	changed := s.resealed
	if d := s.Status.Delivered; d != nil {
		inForce, err := of.SealedMore(hidden, d.State.Raw(), desired)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("hide parameters: %w", err)
		}
		if !bytes.Equal(inForce, d.State.Raw()) {
			d.State.Parameters, changed = &runtime.RawExtension{Raw: inForce}, true
		}
	}
	if !changed {
		return ctrl.Result{}, nil
	}
	redact := workload.Redaction(s.ServiceInstance, r.keys)
	if err := r.journals().Redact(ctx, s, redact); err != nil {
		return ctrl.Result{}, err
	}
	s.recordRedacted(redact)
	return ctrl.Result{}, r.write(ctx, s, writeProgress)
}

// hiddenOf returns the parameters that the plans of other brokers hide that the instance has, or is to have.
func (r *instanceReconciler) hiddenOf(s *scope) (names []string) {
	for _, id := range []string{s.Spec.Desired.PlanID, s.StateInForce().PlanID} {
		if plan, err := r.plan(s.Spec.ServiceID, id); err == nil && plan.Upstream != nil {
			for _, state := range []*v1alpha1.InstanceState{&s.Spec.Desired, s.StateInForce()} {
				names = append(names, plan.HiddenParameters(state.Raw())...)
			}
		}
	}
	return names
}

// writeSealed writes the parameters of the spec sealed.
func (r *instanceReconciler) writeSealed(ctx context.Context, s *scope, parameters json.RawMessage) error {
	err := r.patch(ctx, s, func(i *v1alpha1.ServiceInstance) {
		i.Spec.Desired.Parameters = &runtime.RawExtension{Raw: parameters}
		metav1.SetMetaDataAnnotation(&i.ObjectMeta, v1alpha1.AnnotationGenerations, strconv.FormatInt(v1alpha1.GenerationsBefore(s)-1, 10))
		metav1.SetMetaDataAnnotation(&i.ObjectMeta, annotationSealed, sealedMark(s.ServiceInstance, s.Generation+1))
	})
	if err != nil {
		return fmt.Errorf("hide parameters: %w", err)
	}
	s.recordResealed()
	return nil
}

// recordRedacted changes all messages by a function that removes hidden parameters.
func (s *scope) recordRedacted(redact func(string) string) {
	hide := func(text *string, longest int) { *text = v1alpha1.Cut(redact(*text), longest) }
	failure := func(f *v1alpha1.OperationFailure) {
		hide(&f.Description, v1alpha1.LongestText)
		hide(&f.Summary, v1alpha1.LongestText)
	}
	op := s.Status.Operation
	hide(&op.Description, v1alpha1.LongestText)
	hide(&op.Summary, v1alpha1.LongestText)
	if op.Failing != nil {
		failure(op.Failing)
	}
	for i := range op.Refusals {
		failure(&op.Refusals[i].OperationFailure)
	}
	for _, d := range s.Status.Decisions() {
		for _, rejection := range d.Rejections {
			for i := range rejection.Examples {
				hide(&rejection.Examples[i].Message, v1alpha1.LongestText)
			}
		}
	}
	for i := range s.Status.Conditions {
		hide(&s.Status.Conditions[i].Message, v1alpha1.LongestText)
	}
	for i := range s.Status.Events {
		hide(&s.Status.Events[i].Message, v1alpha1.LongestEventMessage)
	}
}
