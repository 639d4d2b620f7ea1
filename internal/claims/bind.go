package claims

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// soonest is the time after which a binding is renewed at the earliest, whatever the broker says.
const soonest = 5 * time.Second

// begin writes the next binding before it is asked for.
func (b *bindingPass) begin(ctx context.Context, want *wantedBinding, predecessor string) error {
	status, instance := &b.claim.Status, b.service.Status.Instance
	status.Bindings++
	status.Next = &claimsv1.BrokerBinding{
		ID: bindingID(b.claim.UID, status.Bindings), InstanceID: string(b.service.UID), ServiceID: instance.ServiceID, PlanID: instance.PlanID,
		Digest: want.digest, Predecessor: predecessor,
	}
	return b.save(ctx)
}

// proceed goes on with the next binding. again reports whether it may have been asked for before.
func (b *bindingPass) proceed(ctx context.Context, want *wantedBinding, secret *corev1.Secret, again bool) (*problem, error) {
	bound, wait, err := b.ask(ctx, want)
	if err != nil {
		return b.failed(ctx, want, secret, again, err)
	}
	if wait != nil {
		return wait, nil
	}
	next := b.claim.Status.Next
	err = b.write(ctx, secret, want, bound, next.ID)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) { // a quota, a webhook, or a right that the controller lacks
		return &problem{reason: claimsv1.ReasonFailed, message: err.Error(), err: err}, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, b.replace(ctx, bound)
}

// failedError is a bind that the broker accepted and did not carry out.
type failedError struct{ said string }

func (e *failedError) Error() string { return "bind failed: " + e.said }

// ask asks for the next binding, or what has become of it. It returns a problem while the broker is binding.
func (b *bindingPass) ask(ctx context.Context, want *wantedBinding) (*osbclient.Binding, *problem, error) {
	next, broker := b.claim.Status.Next, b.Broker()
	waits := func(pause time.Duration, said string) *problem {
		message := "the broker is binding"
		if said = want.hide.text(said); said != "" {
			message += ": " + said
		}
		return &problem{reason: claimsv1.ReasonInProgress, message: message, after: max(pause, time.Second)}
	}
	if next.Token == nil {
		order := osbclient.BindOrder{
			ServiceID: next.ServiceID, PlanID: next.PlanID, Context: b.context(b.service), PredecessorBindingID: next.Predecessor, Identity: b.Cluster.Identity,
		}
		if next.Predecessor == "" {
			order.Parameters = want.document
		}
		bound, accepted, err := broker.Bind(ctx, next.InstanceID, next.ID, order, want.service.BindingsRetrievable)
		switch {
		case err != nil:
			return nil, nil, err
		case !accepted.Done:
			next.Token = &accepted.Operation
			return nil, waits(accepted.RetryAfter, ""), nil
		case len(bound.Credentials.Reveal()) > 0 || !want.service.BindingsRetrievable:
			return bound, nil, nil
		}
	} else {
		polled, err := osbclient.Polled(broker.BindingLastOperation(ctx, next.InstanceID, next.ID, next.ServiceID, next.PlanID, *next.Token))
		switch {
		case osbclient.IsRefused(err):
			next.Token = nil // it is asked for again
			return nil, waits(0, err.Error()), nil
		case err != nil:
			return nil, nil, err
		case polled.Gone:
			return nil, nil, &failedError{"the broker does not know the binding any more"}
		case polled.State == osbclient.Failed:
			return nil, nil, &failedError{polled.Description}
		case polled.State == osbclient.InProgress:
			return nil, waits(polled.RetryAfter, polled.Description), nil
		}
	}
	bound, err := broker.FetchBinding(ctx, next.InstanceID, next.ID, next.ServiceID, next.PlanID)
	if err != nil && judge(err) == refuse {
		err = &failedError{err.Error()} // there is a binding, and nobody can read it
	}
	return bound, nil, err
}

// failed decides what follows from a bind that did not succeed.
func (b *bindingPass) failed(ctx context.Context, want *wantedBinding, secret *corev1.Secret, again bool, err error) (*problem, error) {
	status, verdict, message := &b.claim.Status, judge(err), want.hide.text(err.Error())
	if broken := (*failedError)(nil); errors.As(err, &broken) {
		verdict = undo
	}
	if verdict == repeat || verdict == unclear {
		return unavailable(err, want.hide), nil
	}
	log.FromContext(ctx).Info("not bound", "reason", message)
	next := status.Next
	if status.Next = nil; verdict == undo || again || next.Token != nil {
		b.abandon(next)
	}
	if verdict == refuse && next.Predecessor != "" {
		if err := b.begin(ctx, want, ""); err != nil {
			return nil, err
		}
		return b.proceed(ctx, want, secret, false)
	}
	// What was never bound is refused for good; what is to be renewed has to be, sooner or later.
	if status.Failure = failed(status.Failure, want.attempt(), message, b.now()); verdict == refuse && (status.Current == nil || status.Current.Digest != want.digest) {
		status.Failure = refused(want.attempt(), message)
	}
	return &problem{reason: status.Failure.Reason, message: told(status.Failure), after: b.until(status.Failure)}, b.save(ctx)
}

// replace makes the next binding, which is in the Secret, the current one. The former one is unbound later.
func (b *bindingPass) replace(ctx context.Context, bound *osbclient.Binding) error {
	status, now := &b.claim.Status, b.now()
	next := status.Next
	if !bound.ExpiresAt.IsZero() {
		next.ExpiresAt = &metav1.Time{Time: bound.ExpiresAt}
		next.RenewAt = &metav1.Time{Time: now.Add(bound.ExpiresAt.Sub(now) * 2 / 3)}
	}
	if !bound.RenewBefore.IsZero() && (bound.ExpiresAt.IsZero() || bound.RenewBefore.Before(bound.ExpiresAt)) {
		next.RenewAt = &metav1.Time{Time: bound.RenewBefore}
	}
	if next.RenewAt != nil && next.RenewAt.Sub(now) < soonest {
		next.RenewAt = &metav1.Time{Time: now.Add(soonest)}
	}
	next.Token = nil
	if former := status.Current; former != nil {
		at := now.Add(b.Overlap)
		if former.ExpiresAt != nil && former.ExpiresAt.Time.Before(at) {
			at = former.ExpiresAt.Time
		}
		former.RevokeAt = &metav1.Time{Time: at}
		status.Revoking = append(status.Revoking, *former)
	}
	status.Current, status.Next, status.Failure = next, nil, nil
	status.ExpiresAt, status.Binding = next.ExpiresAt, &claimsv1.SecretReference{Name: b.claim.SecretName()}
	log.FromContext(ctx).Info("bound", "secret", b.claim.SecretName(), "until", status.ExpiresAt)
	return b.save(ctx)
}
