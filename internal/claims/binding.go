package claims

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// bindingPass is one look at a binding claim.
type bindingPass struct {
	*Controller
	claim *claimsv1.BindingClaim
	// stored is the status as the API server has it.
	stored *claimsv1.BindingClaimStatus
	// service is the claim of the instance; nil if there is none.
	service *claimsv1.ServiceClaim
}

// ReconcileBinding carries out a binding claim as far as it goes now. It is idempotent.
func (c *Controller) ReconcileBinding(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var claim claimsv1.BindingClaim
	if err := c.Client.Get(ctx, request.NamespacedName, &claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	b := &bindingPass{Controller: c, claim: &claim, stored: claim.Status.DeepCopy()}
	isOurs, err := b.read(ctx)
	if err != nil || !isOurs {
		return reconcile.Result{}, err
	}
	var wrong *problem
	if claim.DeletionTimestamp != nil {
		if wrong, err = b.remove(ctx); wrong == nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	} else {
		wrong, err = b.carryOut(ctx)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	ready := "Secret " + claim.SecretName() + " has the credentials"
	if claim.Status.ExpiresAt != nil {
		ready += "; they end at " + claim.Status.ExpiresAt.UTC().Format(time.RFC3339)
	}
	became := conclude(&claim, &claim.Status.Conditions, &claim.Status.ObservedGeneration, ready, wrong)
	if err := b.save(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if became != nil {
		c.tell(&claim, became.Reason, became.Message)
	}
	result, err := wrong.next()
	if due := b.due(); err == nil && due < result.RequeueAfter {
		result.RequeueAfter = due
	}
	return result, err
}

// read reads the service claim. It reports whether the binding claim is for this controller's broker; nobody's if its
// service claim does not exist.
func (b *bindingPass) read(ctx context.Context) (isOurs bool, err error) {
	var service claimsv1.ServiceClaim
	err = b.Client.Get(ctx, client.ObjectKey{Namespace: b.claim.Namespace, Name: b.claim.Spec.ServiceClaim}, &service)
	switch {
	case apierrors.IsNotFound(err):
		broker := b.claim.Status.Broker
		return broker == b.Name || broker == "" && b.Name == claimsv1.DefaultBroker, nil
	case err != nil:
		return false, fmt.Errorf("read service claim %s: %w", b.claim.Spec.ServiceClaim, err)
	}
	b.service = &service
	if asked := b.claim.Status.Broker; asked != "" {
		return asked == b.Name, nil
	}
	return service.Spec.Broker == b.Name, nil
}

// save writes the status, if it has changed.
func (b *bindingPass) save(ctx context.Context) error {
	return writeStatus(ctx, b.Client, b.claim, &b.claim.Status, b.stored)
}

// due returns the time until something has to be done by the clock.
func (b *bindingPass) due() time.Duration {
	status, due := &b.claim.Status, Recheck
	at := func(t *metav1.Time) {
		if t != nil {
			due = min(due, max(t.Sub(b.now()), time.Second))
		}
	}
	if status.Current != nil && status.Next == nil && status.Failure == nil {
		at(status.Current.RenewAt)
	}
	if status.Current != nil {
		if end := status.Current.ExpiresAt; end != nil && end.After(b.now()) {
			at(end)
		}
	}
	for i := range status.Revoking {
		at(status.Revoking[i].RevokeAt)
	}
	return due
}

// wantedBinding describes a binding as its claim wants it.
type wantedBinding struct {
	*parameters
	service *osbclient.Service
	plan    *osbclient.Plan
	// order is a digest of the instance and the parameters, digest also of the renewal.
	order, digest string
}

// attempt is a digest of all that the broker judges.
func (w *wantedBinding) attempt() string { return w.digest + "-" + digest(w.plan.ID) }

// carryOut makes the Secret what the claim wants, and returns nil once it is. While what is in the Secret works, a problem
// is one of the renewal.
func (b *bindingPass) carryOut(ctx context.Context) (*problem, error) {
	wrong, err := b.revoke(ctx, false)
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		log.FromContext(ctx).Info("unbind", "reason", wrong.message) // it is tried again, and is no problem of who reads the Secret
	}
	if wrong, err = b.bind(ctx); wrong == nil || err != nil || b.claim.Status.Binding == nil {
		return wrong, err
	}
	switch end := b.claim.Status.ExpiresAt; {
	case end != nil && !end.After(b.now()):
		wrong.message = "the credentials ended at " + end.UTC().Format(time.RFC3339) + ": " + wrong.message
		wrong.reason = claimsv1.ReasonExpired
	case wrong.reason == claimsv1.ReasonInProgress:
		wrong.message, wrong.works = "the credentials in the Secret still work, and others are on their way: "+wrong.message, true
	case wrong.reason != claimsv1.ReasonSecretConflict:
		wrong.message, wrong.works = "the credentials in the Secret still work, and others cannot be had: "+wrong.message, true
		wrong.reason = claimsv1.ReasonRenewalFailed
	}
	return wrong, nil
}

func (b *bindingPass) bind(ctx context.Context) (*problem, error) {
	if b.service == nil {
		return &problem{reason: claimsv1.ReasonServiceNotReady, message: "there is no service claim " + b.claim.Spec.ServiceClaim, after: Recheck}, nil
	}
	secret, wrong, err := b.secret(ctx)
	if wrong != nil || err != nil {
		return wrong, err
	}
	want := &wantedBinding{}
	if want.parameters, wrong = b.parametersOf(ctx, b.claim.Namespace, b.claim.Spec.Parameters, b.claim.Spec.ParametersFrom); wrong != nil {
		return wrong, nil
	}
	want.order = digest(string(b.service.UID), want.version)
	want.digest = want.order + "-" + digest(b.claim.Spec.Renewal)
	status := &b.claim.Status
	if status.Next == nil && !b.isDue(want, secret) {
		status.Failure = nil
		return nil, nil
	}
	if wrong := b.find(ctx, want); wrong != nil {
		return wrong, nil
	}
	if next := status.Next; next != nil {
		if next.Digest == want.digest && next.PlanID == want.plan.ID {
			return b.proceed(ctx, want, secret, true)
		}
		// Nobody wants it any more, and nobody knows whether the broker has it.
		b.abandon(next)
		if status.Next = nil; !b.isDue(want, secret) {
			return nil, b.save(ctx)
		}
	}
	if f := status.Failure; f != nil && f.Digest == want.attempt() {
		if wait := b.until(f); wait > 0 {
			return &problem{reason: f.Reason, message: told(f), after: wait}, nil
		}
	}
	if wrong := want.checkSchema(want.plan.Schemas.Binding.Create.Schema); wrong != nil {
		return wrong, nil
	}
	if added, err := b.reserve(ctx); added || err != nil {
		// Once more: a service claim that is deleted by now may have seen no finalizer.
		return &problem{reason: claimsv1.ReasonInProgress, message: "the binding is ordered", after: time.Millisecond}, err
	}
	if err := b.begin(ctx, want, b.rotates(want)); err != nil {
		return nil, err
	}
	return b.proceed(ctx, want, secret, false)
}

// reserve adds the finalizer, after the name of the broker, and reports whether that is new.
func (b *bindingPass) reserve(ctx context.Context) (bool, error) {
	if controllerutil.ContainsFinalizer(b.claim, claimsv1.Finalizer) {
		return false, nil
	}
	b.claim.Status.Broker = b.Name
	if err := b.save(ctx); err != nil {
		return false, err
	}
	added, err := b.hold(ctx, b.claim)
	if added {
		b.stored = b.claim.Status.DeepCopy()
	}
	return added, err
}

// find completes what is wanted by the plan of the instance. A plan that is not offered any more can be bound all the same.
func (b *bindingPass) find(ctx context.Context, want *wantedBinding) (wrong *problem) {
	instance, name := b.service.Status.Instance, b.service.Name
	switch {
	case b.service.DeletionTimestamp != nil:
		return &problem{reason: claimsv1.ReasonServiceNotReady, message: "service claim " + name + " is being deleted", after: Recheck}
	case instance == nil:
		return &problem{reason: claimsv1.ReasonServiceNotReady, message: "service claim " + name + " has no instance yet", after: Recheck}
	}
	want.service, want.plan, wrong = b.ordered(ctx, instance)
	return wrong
}

// isDue reports whether another binding is to be ordered.
func (b *bindingPass) isDue(want *wantedBinding, secret *corev1.Secret) bool {
	current := b.claim.Status.Current
	return current == nil || current.Digest != want.digest || secret == nil || secret.Annotations[claimsv1.AnnotationBinding] != current.ID ||
		current.RenewAt != nil && !b.now().Before(current.RenewAt.Time)
}

// rotates returns the id of the binding that is replaced by rotation; "" if another binding is ordered beside it. A
// rotation has the parameters of its predecessor.
func (b *bindingPass) rotates(want *wantedBinding) string {
	current := b.claim.Status.Current
	switch {
	case current == nil, !want.plan.BindingRotatable, !strings.HasPrefix(current.Digest, want.order+"-"):
		return ""
	case current.ExpiresAt != nil && !current.ExpiresAt.After(b.now()):
		return "" // brokers rotate bindings that are in force
	}
	return current.ID
}
