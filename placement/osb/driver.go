package osb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// Driver orders instances from brokers. It keeps no state and is safe for concurrent use.
type Driver struct {
	// Brokers behind this one.
	Brokers *osbclient.Brokers
	// Hub is the hub's ID, a part of all ids at brokers.
	Hub string
	// Keys open the parameters that plans hide.
	Keys *seal.Keyset
	// Clock; nil means the real one.
	Clock clock.PassiveClock
}

var _ delivery.Driver = (*Driver)(nil)

// removes stands for a deprovision in notes.
const removes = "remove"

// usualPause is the longest time between two polls of an operation if the broker gives none.
const usualPause = 5 * time.Second

// tenant is one instance at one broker.
type tenant struct {
	*Driver
	client   *osbclient.Client
	broker   string
	instance *v1alpha1.ServiceInstance
	// id of the instance at the broker.
	id string
	// dashboard as the broker gave it in this call; nil if it gave none.
	dashboard *v1alpha1.UpstreamDashboard
	// version of the plan in the broker's catalog, if this call has found that it is another one than in the decision.
	version *string
	// notUndone has the meaning of that of delivery.Said.
	notUndone bool
}

func (d *Driver) open(ctx context.Context, of delivery.Delivery) (*tenant, error) {
	client, err := d.Brokers.Get(ctx, of.Placement.Cluster)
	if err != nil {
		return nil, err
	}
	broker := of.Placement.Cluster
	return &tenant{Driver: d, client: client, broker: broker, instance: of.Instance, id: osbclient.InstanceID(d.Hub, broker, of.Instance.Name)}, nil
}

// Deliver orders the instance, or changes it to what the delivery says, and returns nil once the broker has
// carried that out. Until then it returns *delivery.PendingError, with the broker's pause between two polls.
// It is refused if the broker refuses, or fails. A request without an answer is repeated.
func (d *Driver) Deliver(ctx context.Context, of delivery.Delivery) error {
	t, err := d.open(ctx, of)
	if err != nil {
		return err
	}
	want, err := t.wanted(of)
	if err != nil {
		return t.redacted(t.unmade(err))
	}
	err = t.redacted(t.deliver(ctx, want, of.Applied))
	if of.Said != nil {
		of.Said.Dashboard, of.Said.MaintenanceVersion, of.Said.NotUndone = t.passable(), t.version, t.notUndone
	}
	return err
}

func (t *tenant) deliver(ctx context.Context, want *wanted, applied string) error {
	has, err := t.delivered()
	if err != nil {
		return t.unmade(err)
	}
	if sent, operation := readNote(applied); sent == want.digest {
		planID := want.PlanID
		if has != nil {
			planID = has.PlanID // of an update, the plan before it (OSB 2.17, "Polling Last Operation")
		}
		return t.poll(ctx, want, planID, operation)
	}
	var accepted osbclient.Accepted
	switch {
	case has == nil:
		accepted, err = t.client.Provision(ctx, t.id, t.order(want))
	case has.digest == want.digest && !t.instance.Status.IsUndelivered():
		return t.check(ctx, want)
	default:
		change := t.change(want, has)
		if change.Parameters, err = t.taken(ctx, change.Parameters, want, has); err != nil {
			return fmt.Errorf("broker %s: %w", t.broker, err)
		}
		accepted, err = t.client.Update(ctx, t.id, change)
	}
	switch {
	case err != nil && has != nil && has.digest == want.digest && osbclient.IsRefused(err):
		t.notUndone = true
		return nil // an update is undone, and the broker says that it was not carried out
	case has == nil && osbclient.IsMaintenanceConflict(err):
		return t.outdated(ctx, want, err)
	case err != nil:
		return t.failed(want, err)
	}
	if t.dashboard = accepted.Dashboard; accepted.Done {
		return nil
	}
	return t.waits(want, accepted.Operation, accepted.RetryAfter, "")
}

// outdated returns the error for an order that the broker refuses because of the version of its plan: *delivery.PendingError
// if the plan has another version by now. It is ordered by that version once the decision has it.
func (t *tenant) outdated(ctx context.Context, want *wanted, refusal error) error {
	catalog, err := t.client.Catalog(ctx)
	if err != nil {
		return fmt.Errorf("broker %s: %w", t.broker, err)
	}
	version, offered := catalog.VersionOf(want.ServiceID, want.PlanID)
	if !offered || version == want.MaintenanceVersion {
		return t.failed(want, refusal)
	}
	t.version = &version
	return &delivery.PendingError{Step: fmt.Sprintf("order version %q of the plan from broker %s", version, t.broker), Detail: refusal.Error()}
}

// poll asks for the state of an operation that the broker has accepted.
func (t *tenant) poll(ctx context.Context, want *wanted, planID, operation string) error {
	polled, err := osbclient.Polled(t.client.LastOperation(ctx, t.id, want.ServiceID, planID, operation))
	switch {
	case osbclient.IsRefused(err): // the request is made again
		return fmt.Errorf("broker %s: %w", t.broker, err)
	case err != nil:
		return t.waits(want, operation, retryAfter(err), err.Error())
	case polled.Gone:
		return t.refused("it does not know the instance any more", "order again")
	case polled.State == osbclient.Failed:
		refused := t.refused(cmp.Or(polled.Description, "it gives no reason"), "do what the broker asks for, or order elsewhere")
		refused.Consumer = "the provider could not carry it out" + because(polled.Description)
		refused.Repeatable, refused.Unusable = ptr.Deref(polled.UpdateRepeatable, true), !ptr.Deref(polled.InstanceUsable, true)
		return refused
	case polled.State == osbclient.Succeeded:
		return nil
	}
	return t.waits(want, operation, polled.RetryAfter, polled.Description)
}

// waits returns the error for an operation that is in progress, unless it takes longer than the broker's plan
// says that a platform polls. What undoes an operation may take longer.
func (t *tenant) waits(want *wanted, operation string, pause time.Duration, detail string) error {
	is := t.instance.Status.Operation
	if most := time.Duration(want.PollingSeconds) * time.Second; most > 0 && is != nil && is.Failing == nil && !t.instance.Status.IsFinished() {
		if began := is.TriedSince(); t.now().Sub(began) > most {
			return t.refused(fmt.Sprintf("its operation took longer than the %v that its plan gives", most), "ask the broker's operator")
		}
	}
	return &delivery.PendingError{
		Step: "wait for broker " + t.broker, Detail: detail, Consumer: "the provider is carrying it out",
		Every: max(pause, usualPause), NotBefore: pause, Applied: note(want.digest, operation),
	}
}

func (d *Driver) now() time.Time {
	if d.Clock == nil {
		return time.Now()
	}
	return d.Clock.Now()
}

// failed returns the error for a request that did not succeed: *delivery.PendingError if it is repeated at a
// time of the broker's, *delivery.RefusedError if a repetition is in vain.
func (t *tenant) failed(want *wanted, err error) error {
	answer := (*osbclient.Error)(nil)
	if !errors.As(err, &answer) {
		return err
	}
	pause, waits := osbclient.AsksToWait(err)
	switch {
	case waits:
		return &delivery.PendingError{Step: "wait for broker " + t.broker, Detail: err.Error(), Every: max(pause, usualPause), NotBefore: pause}
	case osbclient.IsTransient(err):
		return fmt.Errorf("broker %s: %w", t.broker, err)
	}
	refused := t.refused(answer.Error(), "do what the broker asks for, or order elsewhere")
	if answer.Status >= http.StatusBadRequest && answer.Status < http.StatusInternalServerError {
		refused.Consumer = "the provider refuses it" + because(answer.Description)
	}
	refused.OfParameters = answer.OfParameters() && want.isGiven
	refused.Repeatable, refused.Unusable = ptr.Deref(answer.UpdateRepeatable, answer.Orphan()), !ptr.Deref(answer.InstanceUsable, true)
	return refused
}

// unmade returns the error for an order that cannot be made of the parameters, so that the broker was not asked.
func (t *tenant) unmade(err error) error {
	refused := t.refused(err.Error(), "correct the plan's parameters for the broker, or those of the order")
	refused.OfParameters = true
	return refused
}

func (t *tenant) refused(reason, remedy string) *delivery.RefusedError {
	return &delivery.RefusedError{Reason: fmt.Sprintf("broker %s: %s", t.broker, reason), Remedy: remedy}
}

func because(description string) string {
	if description == "" {
		return ""
	}
	return ": " + description
}

func retryAfter(err error) time.Duration {
	if answer := (*osbclient.Error)(nil); errors.As(err, &answer) {
		return answer.RetryAfter
	}
	return 0
}

// Observe returns nil while the broker has the instance, as far as its plan lets a platform ask.
func (d *Driver) Observe(ctx context.Context, of delivery.Delivery) error {
	t, err := d.open(ctx, of)
	if err != nil {
		return err
	}
	want, err := t.wanted(of)
	if err != nil {
		return t.redacted(err)
	}
	return t.redacted(t.check(ctx, want))
}

// check returns an error if the broker does not know the instance any more. It is not ordered again, because
// its data would be gone without a word.
func (t *tenant) check(ctx context.Context, want *wanted) error {
	if !want.InstancesRetrievable {
		return nil
	}
	exists, err := t.client.Exists(ctx, t.id, want.ServiceID, want.PlanID)
	switch {
	case err != nil:
		return fmt.Errorf("broker %s: %w", t.broker, err)
	case !exists:
		return fmt.Errorf("broker %s: it does not know instance %s any more: ask its operator; it is not ordered again, as its data would be lost", t.broker, t.id)
	}
	return nil
}

// Remove deletes the instance at the broker, and returns nil once the broker says that there is none. For a
// broker that is no longer in the inventory it returns nil: Sluice cannot reach it any more.
func (d *Driver) Remove(ctx context.Context, of delivery.Delivery) error {
	t, err := d.open(ctx, of)
	if member.IsUnknown(err) {
		log.FromContext(ctx).Info("broker left the inventory; what was ordered there is left to its operator", "broker", of.Placement.Cluster)
		return nil
	}
	if err != nil {
		return err
	}
	is := of.Instance.Status.UpstreamOn(t.broker)
	if is == nil {
		return nil // decided before Sluice knew brokers: nothing was ordered
	}
	var token *string
	if sent, operation := readNote(of.Applied); sent == removes {
		token = &operation
	}
	return t.redacted(t.end(ctx, is, token))
}

// end deletes the instance, or asks how far its deletion is. One that failed is asked for again, with back-off.
func (t *tenant) end(ctx context.Context, is *v1alpha1.PlacementUpstream, token *string) error {
	_, user := t.identify(t.instance.Spec.Desired.Context)
	ended, err := osbclient.End(&token, func() (osbclient.Accepted, error) {
		return t.client.Deprovision(ctx, t.id, is.ServiceID, is.PlanID, user)
	}, func(operation string) (osbclient.Operation, error) {
		return t.client.LastOperation(ctx, t.id, is.ServiceID, is.PlanID, operation)
	})
	switch {
	case err != nil:
		return fmt.Errorf("broker %s: %w", t.broker, err)
	case ended.State == osbclient.Succeeded:
		return nil
	case ended.State == osbclient.Failed:
		return fmt.Errorf("broker %s: deprovision failed%s", t.broker, because(ended.Description))
	}
	pending := &delivery.PendingError{
		Step: "deprovision at broker " + t.broker, Detail: ended.Description, Every: max(ended.RetryAfter, usualPause), NotBefore: ended.RetryAfter,
	}
	if token != nil {
		pending.Applied = note(removes, *token)
	}
	return pending
}
