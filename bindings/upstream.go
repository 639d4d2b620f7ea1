package bindings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// A binding of an instance of another broker is a binding there. Its credentials are what that broker gives.

// upstreamCheck is the interval of checks while another broker binds or unbinds, if it asks for none.
const upstreamCheck = time.Second

// upstreamBinds returns the error for a bind that another broker has not carried out yet. pause is what it asks for.
func upstreamBinds(pause time.Duration) error {
	return &pendingError{"waiting for the provider to bind the instance", max(pause, upstreamCheck)}
}

// upstreamRefusedError reports that another broker does not bind.
type upstreamRefusedError struct {
	broker string
	err    error
	// description of the broker for end users.
	description string
}

func (e *upstreamRefusedError) Error() string { return fmt.Sprintf("broker %s: %v", e.broker, e.err) }

func (e *upstreamRefusedError) Unwrap() error { return e.err }

// public returns the part that end users may read.
func (e *upstreamRefusedError) public() string {
	if e.description == "" {
		return "the provider does not bind the instance"
	}
	return "the provider does not bind the instance: " + e.description
}

// upstreamOf returns the placement of a delivered instance at another broker; nil if it has none.
func upstreamOf(instance *v1alpha1.ServiceInstance) *v1alpha1.Placement {
	return placementWhere(instance, func(p *v1alpha1.Placement) bool { return p.Upstream != nil })
}

// nameUpstream puts into status what the binding is at another broker, before anything is sent there. It
// reports whether that is new.
func (c *Controller) nameUpstream(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	p := upstreamOf(instance)
	if p == nil || b.Status.Upstream != nil {
		return false
	}
	b.Status.Upstream = &v1alpha1.BindingUpstream{
		Broker: p.Cluster, InstanceID: osbclient.InstanceID(c.Hub, p.Cluster, instance.Name), BindingID: osbclient.BindingID(c.Hub, p.Cluster, b.Name),
		ServiceID: p.Upstream.ServiceID, PlanID: p.Upstream.PlanID,
	}
	return true
}

// redactUpstream returns an error without the texts of hidden parameters, which a broker may repeat.
func (c *Controller) redactUpstream(err error, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) error {
	hide := workload.BindingRedaction(b, instance, c.Keys)
	if refused := (*upstreamRefusedError)(nil); errors.As(err, &refused) {
		refused.err, refused.description = workload.RedactedError(refused.err, hide), hide(refused.description)
		return err
	}
	return workload.RedactedError(err, hide)
}

// bindUpstream orders a binding from another broker, and returns what it gives. While the broker is binding,
// the error is *pendingError; if it refuses, *upstreamRefusedError.
func (c *Controller) bindUpstream(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, p *v1alpha1.Placement) (*issued, error) {
	if c.Brokers == nil {
		return nil, errors.New("this Sluice orders nothing from brokers")
	}
	broker, err := c.Brokers.Get(ctx, p.Cluster)
	if err != nil {
		return nil, err
	}
	bound, err := c.askUpstream(ctx, b, instance, p, broker)
	answer := (*osbclient.Error)(nil)
	pause, waits := osbclient.AsksToWait(err)
	switch {
	case errors.As(err, &answer) && !osbclient.IsTransient(err):
		err = &upstreamRefusedError{broker: p.Cluster, err: err, description: answer.Description}
	case waits:
		err = upstreamBinds(pause)
	}
	if err != nil {
		return nil, c.redactUpstream(err, b, instance)
	}
	return handedOn(p, revealUpstream(bound), func(status *v1alpha1.ServiceBindingStatus) {
		tellUpstream(status, bound)
		status.Upstream.Operation = nil
	}), nil
}

func (c *Controller) askUpstream(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, p *v1alpha1.Placement, broker *osbclient.Client) (*osbclient.Binding, error) {
	u := b.Status.Upstream
	if u.Operation != nil {
		return c.pollUpstream(ctx, b, broker)
	}
	parameters, err := workload.BindingParametersOf(b, c.Keys).Opened(b.Spec.Raw())
	if err != nil {
		return nil, err
	}
	order := osbclient.BindOrder{
		ServiceID: u.ServiceID, PlanID: u.PlanID, AppGUID: b.Spec.AppGUID, BindResource: rawOf(b.Spec.BindResource), Parameters: parameters,
	}
	order.Context, order.Identity = broker.Identify(instance, b.Spec.Context, b.Spec.OriginatingIdentity)
	predecessor, err := c.predecessorUpstream(ctx, b, p)
	if err != nil {
		return nil, err
	}
	order.PredecessorBindingID = predecessor
	bound, accepted, err := broker.Bind(ctx, u.InstanceID, u.BindingID, order, p.Upstream.BindingsRetrievable)
	switch {
	case err != nil:
		return nil, err
	case accepted.Done && len(bound.Credentials.Reveal()) == 0 && p.Upstream.BindingsRetrievable:
		return fetchUpstream(ctx, u, broker) // it was bound before this process was killed
	case accepted.Done:
		return bound, nil
	}
	u.Operation = &accepted.Operation
	return nil, upstreamBinds(accepted.RetryAfter)
}

// pollUpstream asks what has become of a bind that the broker has accepted.
func (c *Controller) pollUpstream(ctx context.Context, b *v1alpha1.ServiceBinding, broker *osbclient.Client) (*osbclient.Binding, error) {
	u := b.Status.Upstream
	polled, err := osbclient.Polled(broker.BindingLastOperation(ctx, u.InstanceID, u.BindingID, u.ServiceID, u.PlanID, *u.Operation))
	switch {
	case osbclient.IsRefused(err):
		u.Operation = nil // it is asked for again
		return nil, upstreamBinds(0)
	case err != nil:
		return nil, err
	case polled.State == osbclient.InProgress:
		return nil, upstreamBinds(polled.RetryAfter)
	case polled.State == osbclient.Failed:
		return nil, &upstreamRefusedError{broker: u.Broker, err: errors.New("bind failed: " + polled.Description), description: polled.Description}
	}
	return fetchUpstream(ctx, u, broker)
}

// fetchUpstream reads a binding that the broker has made. A broker that answers by 5xx is asked again: that says nothing
// about the binding.
func fetchUpstream(ctx context.Context, u *v1alpha1.BindingUpstream, broker *osbclient.Client) (*osbclient.Binding, error) {
	bound, err := broker.FetchBinding(ctx, u.InstanceID, u.BindingID, u.ServiceID, u.PlanID)
	if answer := (*osbclient.Error)(nil); errors.As(err, &answer) && answer.Status >= http.StatusInternalServerError {
		return nil, upstreamBinds(answer.RetryAfter)
	}
	return bound, err
}

// predecessorUpstream returns the id, at the same broker, of the binding that this one replaces, if the
// broker rotates bindings. Otherwise the new one is a binding like any other, and the platform deletes the
// old one.
func (c *Controller) predecessorUpstream(ctx context.Context, b *v1alpha1.ServiceBinding, p *v1alpha1.Placement) (string, error) {
	if b.Spec.PredecessorBindingID == "" || !p.Upstream.BindingRotatable {
		return "", nil
	}
	var before v1alpha1.ServiceBinding
	name := v1alpha1.BindingName(b.Spec.Platform, b.Spec.InstanceID, b.Spec.PredecessorBindingID)
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, &before); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if u := before.Status.Upstream; u != nil && u.Broker == p.Cluster && u.Failure == "" {
		return u.BindingID, nil
	}
	return "", nil
}

// failUpstream ends a bind for good, once nothing of it is left at the broker (OSB 2.17, "Orphan
// Mitigation"), or can be removed there. The reason is written first, so that the bind is not tried again.
func (c *Controller) failUpstream(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, why string) (reconcile.Result, error) {
	u := b.Status.Upstream
	if u.Failure == "" {
		c.begin(b, v1alpha1.OperationBind)
		u.Failure = why
		if err := c.writeStatus(ctx, b); err != nil {
			return reconcile.Result{}, err
		}
	}
	err := c.revokeAll(ctx, b, instance, []string{u.Broker})
	if pending := pendingIn(err); pending != nil {
		return reconcile.Result{RequeueAfter: pending.pause}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).Info("bind failed", "binding", b.Name, "broker", u.Broker, "reason", u.Failure)
	return reconcile.Result{}, c.fail(ctx, b, u.Failure)
}

// unbindUpstream deletes a binding at another broker. It returns nil when the broker says that there is
// none, and *pendingError until then. What the broker has accepted is written into the status.
func (c *Controller) unbindUpstream(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) error {
	if c.Brokers == nil {
		return errors.New("this Sluice orders nothing from brokers")
	}
	u := b.Status.Upstream
	broker, err := c.Brokers.Get(ctx, u.Broker)
	if err != nil {
		return err
	}
	planID := u.PlanID
	if is := instance.Status.UpstreamOn(u.Broker); is != nil {
		planID = is.PlanID
	}
	_, identity := broker.Identify(instance, b.Spec.Context, b.Spec.OriginatingIdentity)
	before := u.Unbind
	ended, err := osbclient.End(&u.Unbind, func() (osbclient.Accepted, error) {
		return broker.Unbind(ctx, u.InstanceID, u.BindingID, u.ServiceID, planID, identity, true)
	}, func(operation string) (osbclient.Operation, error) {
		return broker.BindingLastOperation(ctx, u.InstanceID, u.BindingID, u.ServiceID, planID, operation)
	})
	if err == nil && ended.State == osbclient.Succeeded {
		return nil
	}
	if u.Unbind != before {
		if err := c.writeStatus(ctx, b); err != nil {
			return err
		}
	}
	switch {
	case err == nil && ended.State == osbclient.InProgress:
		return &pendingError{"the provider is unbinding the instance", max(ended.RetryAfter, upstreamCheck)}
	case err == nil:
		err = errors.New("unbind failed: " + ended.Reason())
	}
	return fmt.Errorf("broker %s: %w", u.Broker, c.redactUpstream(err, b, instance))
}

// tellUpstream writes what another broker gave into the status, besides the credentials.
func tellUpstream(status *v1alpha1.ServiceBindingStatus, bound *osbclient.Binding) {
	status.Endpoints = bound.Endpoints
	status.IssuedAt, status.ExpiresAt, status.RenewBefore = nil, nil, nil
	if !bound.ExpiresAt.IsZero() {
		status.ExpiresAt = &metav1.Time{Time: bound.ExpiresAt}
		status.RenewBefore = &metav1.Time{Time: bound.ExpiresAt}
	}
	if !bound.RenewBefore.IsZero() && (bound.ExpiresAt.IsZero() || bound.RenewBefore.Before(bound.ExpiresAt)) {
		status.RenewBefore = &metav1.Time{Time: bound.RenewBefore}
	}
}

// revealUpstream returns the credentials of another broker; an empty object if it gave none.
func revealUpstream(bound *osbclient.Binding) seal.Redacted {
	if len(bound.Credentials.Reveal()) > 0 {
		return bound.Credentials
	}
	return seal.Redact([]byte("{}"))
}

func rawOf(from *runtime.RawExtension) json.RawMessage {
	if from == nil {
		return nil
	}
	return from.Raw
}
