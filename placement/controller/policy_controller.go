package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/rebalance"
)

// policyReconciler puts the policies in force, with what consumers have proven, and reports for each
// whether it compiles. It always processes all of them. A policy's status depends only on its spec: a write that
// conflicts is soon repeated.
type policyReconciler struct {
	hub       client.Client
	namespace string
	inventory *placement.Inventory
	recovery  *recovery
	clock     clock.PassiveClock
}

// afterConflict is a delay that lets the cache catch up.
const afterConflict = 100 * time.Millisecond

func (r *policyReconciler) setup(mgr ctrl.Manager) error {
	whole := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: r.namespace, Name: "policies"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("placementpolicy").
		Watches(&v1alpha1.PlacementPolicy{}, whole, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ServiceOffering{}, whole, builder.WithPredicates(predicate.GenerationChangedPredicate{})). // UnknownPlans
		Watches(&v1alpha1.Consumer{}, whole, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, provenAnew))).
		Complete(requeue.OnConflict(r))
}

// provenAnew passes consumers that have proven something else.
var provenAnew = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !equality.Semantic.DeepEqual(e.ObjectOld.(*v1alpha1.Consumer).Status.Claims, e.ObjectNew.(*v1alpha1.Consumer).Status.Claims)
}}

// Reconcile puts all policies and proofs in force, wakes waiting instances, and writes the statuses.
func (r *policyReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := r.recovery.ensure(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var list v1alpha1.PlacementPolicyList
	if err := r.hub.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list placement policies: %w", err)
	}
	var consumers v1alpha1.ConsumerList
	if err := r.hub.List(ctx, &consumers, client.InNamespace(r.namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list consumers: %w", err)
	}
	var offerings v1alpha1.ServiceOfferingList
	if err := r.hub.List(ctx, &offerings, client.InNamespace(r.namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list service offerings: %w", err)
	}
	// A claim that ends is taken from the consumer's status, which brings the next pass.
	r.inventory.SetProofs(placement.ProofsOf(consumers.Items, r.clock.Now()))
	var result ctrl.Result
	var failures []error
	all := placement.CompilePolicies(list.Items)
	r.inventory.SetPolicies(all)
	for i := range list.Items {
		policy := &list.Items[i]
		_, problem := placement.CompilePolicy(policy)
		state, reason, message := metav1.ConditionTrue, v1alpha1.ReasonReady, v1alpha1.PolicyInForceMessage
		if problem != nil {
			state, reason, message = metav1.ConditionFalse, "Invalid", problem.Error()+"; requests that it matches are refused"
		} else if spec := policy.Spec.Rebalance; spec != nil {
			if _, _, err := rebalance.Window(spec, r.clock.Now()); err != nil {
				state, reason, message = metav1.ConditionFalse, "Invalid", err.Error()+"; it moves no instances"
			}
		} else if class, first := all.DeclaredBefore(policy); class != "" {
			message = fmt.Sprintf("in force, except priority class %s, which policy %s declares", class, first)
		}
		if unknown := policy.Spec.UnknownPlans(offerings.Items); unknown != "" && state == metav1.ConditionTrue {
			message += "; " + unknown
		}
		before := policy.Status.ObservedGeneration
		policy.Status.ObservedGeneration = policy.Generation
		if !v1alpha1.SetCondition(&policy.Status.Conditions, policy.Generation, v1alpha1.ConditionReady, state, reason, message) && before == policy.Generation {
			continue
		}
		switch err := r.hub.Status().Update(ctx, policy); {
		case apierrors.IsConflict(err): // the cache was behind, and may not trigger another pass
			result.RequeueAfter = afterConflict
		case client.IgnoreNotFound(err) != nil:
			failures = append(failures, fmt.Errorf("policy %s: write the status: %w", policy.Name, err))
		}
	}
	if len(failures) > 0 {
		return ctrl.Result{}, errors.Join(failures...)
	}
	return result, nil
}
