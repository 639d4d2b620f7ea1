package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/selfdescription"
)

// proof keeps the claims and the condition Proven of consumers up to date.
type proof struct {
	Options
	hub client.Client
}

func (r *proof) setup(mgr ctrl.Manager) error {
	presented := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []ctrl.Request {
		who := o.(*v1alpha1.SelfDescription).Spec.Presenter
		return r.consumers(ctx, func(c *v1alpha1.Consumer) bool { return who.Consumer == c.Name || r.presenter(c) == who })
	})
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []ctrl.Request {
		return r.consumers(ctx, func(*v1alpha1.Consumer) bool { return true })
	})
	return ctrl.NewControllerManagedBy(mgr).Named("consumer").
		For(&v1alpha1.Consumer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.SelfDescription{}, presented, builder.WithPredicates(later, judgedAnew)).
		Watches(&v1alpha1.Provider{}, all, specChanged).
		Watches(&v1alpha1.TrustedIssuer{}, all, specChanged).
		Complete(requeue.OnConflict(r))
}

// presenter returns who presents with the consumer's DID: a provider that has the same one, or the consumer.
func (r *proof) presenter(c *v1alpha1.Consumer) v1alpha1.Presenter {
	who, _ := r.Book.Picture().PresenterOf(c.Spec.DID)
	return who
}

// consumers returns requests for those that are wanted.
func (r *proof) consumers(ctx context.Context, wanted func(*v1alpha1.Consumer) bool) (requests []ctrl.Request) {
	var list v1alpha1.ConsumerList
	if err := r.hub.List(ctx, &list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache was stopped
	}
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile checks what one consumer has proven.
func (r *proof) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	consumer := &v1alpha1.Consumer{}
	if err := r.hub.Get(ctx, request.NamespacedName, consumer); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Book.Refresh(ctx, r.hub, r.Namespace); err != nil {
		return ctrl.Result{}, err
	}
	before, now := consumer.Status.DeepCopy(), r.Clock.Now()
	set, err := r.credentials(ctx, r.hub, r.presenter(consumer), nil, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	claims, report := selfdescription.Prove(set, consumer.Spec.DID, r.Book.Picture().Issuers, now)
	s := &consumer.Status
	s.Claims, s.Report = apiClaims(claims, 0), steps(report.Steps)
	state, reason, message := metav1.ConditionTrue, v1alpha1.ReasonReady, fmt.Sprintf("%d claims are proven", len(claims))
	if failed := report.Failed(); failed != nil {
		state, reason, message = metav1.ConditionFalse, "NotProven", fmt.Sprintf("%s: %s", failed.Name, failed.Message)
	}
	turned := v1alpha1.SetCondition(&s.Conditions, consumer.Generation, v1alpha1.ConditionProven, state, reason, message)
	again := ctrl.Result{RequeueAfter: untilNext(s.Claims, now)}
	if equality.Semantic.DeepEqual(before, s) {
		return again, nil
	}
	if err := r.hub.Status().Update(ctx, consumer); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return ctrl.Result{RequeueAfter: afterConflict}, nil
		}
		return ctrl.Result{}, fmt.Errorf("write the consumer's status: %w", err)
	}
	if turned {
		log.FromContext(ctx).Info("Proof of a consumer", "consumer", consumer.Name, "proven", state, "reason", reason, "message", message)
	}
	return again, nil
}
