package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// servicePass is one look at a service claim.
type servicePass struct {
	*Controller
	claim *claimsv1.ServiceClaim
	// stored is the status as the API server has it.
	stored *claimsv1.ServiceClaimStatus
}

// ReconcileService carries out a service claim as far as it goes now. It is idempotent.
func (c *Controller) ReconcileService(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var claim claimsv1.ServiceClaim
	if err := c.Client.Get(ctx, request.NamespacedName, &claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Spec.Broker != c.Name {
		return reconcile.Result{}, nil
	}
	s := &servicePass{c, &claim, claim.Status.DeepCopy()}
	var wrong *problem
	var err error
	if claim.DeletionTimestamp != nil {
		if wrong, err = s.remove(ctx); wrong == nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	} else {
		wrong, err = s.carryOut(ctx)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	became := conclude(&claim, &claim.Status.Conditions, &claim.Status.ObservedGeneration, "the broker has the instance as it is claimed", wrong)
	if err := s.save(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if became != nil {
		c.tell(&claim, became.Reason, became.Message)
	}
	return wrong.next()
}

// conclude sets the condition of a claim, which is ready with a message unless something is wrong. It returns the condition
// if its reason is another one, with its whole message, for an Event.
func conclude(claim client.Object, conditions *[]metav1.Condition, observed *int64, ready string, wrong *problem) (became *metav1.Condition) {
	is := &metav1.Condition{Status: metav1.ConditionTrue, Reason: claimsv1.ReasonReady, Message: ready}
	if wrong != nil {
		is.Reason, is.Message = wrong.reason, wrong.message
		if !wrong.works {
			is.Status = metav1.ConditionFalse
		}
	}
	if before := meta.FindStatusCondition(*conditions, claimsv1.ConditionReady); before == nil || before.Reason != is.Reason {
		became = is
	}
	*observed = claim.GetGeneration()
	v1alpha1.SetCondition(conditions, claim.GetGeneration(), claimsv1.ConditionReady, is.Status, is.Reason, v1alpha1.Cut(is.Message, longestMessage))
	return became
}

// longestMessage is the length of a condition's message, in characters; the API takes 32768.
const longestMessage = 1024

// save writes the status, if it has changed.
func (s *servicePass) save(ctx context.Context) error {
	return writeStatus(ctx, s.Client, s.claim, &s.claim.Status, s.stored)
}

// carryOut makes the broker's instance what the claim wants, and returns nil once it is.
func (s *servicePass) carryOut(ctx context.Context) (*problem, error) {
	status := &s.claim.Status
	if status.Operation != nil {
		return s.proceed(ctx)
	}
	want, wrong := s.want(ctx)
	if wrong != nil {
		return s.unlessSettled(wrong), nil
	}
	if has := status.Instance; has != nil && has.Digest == want.to.Digest {
		has.BindingsRetrievable, status.Failure = want.to.BindingsRetrievable, nil
		return s.check(ctx, want)
	}
	if f := status.Failure; f != nil && f.Digest == want.to.Digest {
		if wait := s.until(f); wait > 0 {
			return &problem{reason: f.Reason, message: told(f), after: wait}, nil
		}
	}
	kind, schema := claimsv1.OperationProvision, want.plan.Schemas.Instance.Create.Schema
	if status.Instance != nil {
		kind, schema = claimsv1.OperationUpdate, want.plan.Schemas.Instance.Update.Schema
	}
	if wrong := want.checkSchema(schema); wrong != nil {
		return wrong, nil
	}
	added, err := s.hold(ctx, s.claim)
	if err != nil {
		return nil, err
	}
	if added {
		s.stored = s.claim.Status.DeepCopy()
	}
	status.InstanceID = string(s.claim.UID)
	if err := s.begin(ctx, kind, want.to, want.plan.MaximumPollingDuration); err != nil {
		return nil, err
	}
	return s.send(ctx, want, false)
}

// unlessSettled returns a problem, unless the instance is there as the claim wants it, and the broker is merely away or
// sells no more of its plan.
func (s *servicePass) unlessSettled(wrong *problem) *problem {
	was := meta.FindStatusCondition(s.stored.Conditions, claimsv1.ConditionReady)
	if was != nil && was.Status == metav1.ConditionTrue && was.ObservedGeneration == s.claim.Generation && wrong.reason != claimsv1.ReasonInvalidParameters {
		return nil
	}
	return wrong
}

// until returns how long a failure keeps the same order from being tried; zero if it does not.
func (c *Controller) until(f *claimsv1.Failure) time.Duration {
	if f.RetryAt == nil {
		return Recheck
	}
	return max(f.RetryAt.Sub(c.now()), 0)
}

// told returns a failure in words.
func told(f *claimsv1.Failure) string {
	if f.RetryAt == nil {
		return f.Message + "; it is tried again when the claim changes"
	}
	return f.Message + "; it is tried again at " + f.RetryAt.UTC().Format(time.RFC3339)
}

// begin writes an operation before it is asked for.
func (s *servicePass) begin(ctx context.Context, kind claimsv1.OperationType, to claimsv1.Ordered, pollingSeconds int64) error {
	s.claim.Status.Operation = &claimsv1.ServiceOperation{Type: kind, To: to, StartedAt: metav1.NewTime(s.now().Truncate(time.Second)), PollingSeconds: pollingSeconds}
	s.claim.Status.LastOperation = ""
	return s.save(ctx)
}

// proceed goes on with the operation in the status.
func (s *servicePass) proceed(ctx context.Context) (*problem, error) {
	operation := s.claim.Status.Operation
	switch {
	case operation.Type == claimsv1.OperationDeprovision:
		if wrong := s.deprovision(ctx); wrong != nil {
			return s.undoing(wrong), nil
		}
		s.claim.Status.Operation, s.claim.Status.Instance = nil, nil
		return s.carryOut(ctx)
	case operation.Token != nil:
		return s.poll(ctx, operation)
	}
	want, wrong := s.want(ctx)
	switch {
	case wrong != nil && wrong.err != nil:
		return wrong, nil
	case wrong != nil || want.to.Digest != operation.To.Digest:
		// What was asked for is not wanted any more, and nobody knows whether the broker does it.
		if operation.Type == claimsv1.OperationProvision {
			return s.undo(ctx, nil)
		}
		s.claim.Status.Operation, s.claim.Status.Instance.Digest = nil, ""
		return s.carryOut(ctx)
	}
	return s.send(ctx, want, true)
}

// undoing returns the problem of a deprovision that undoes a provision.
func (s *servicePass) undoing(wrong *problem) *problem {
	if f := s.claim.Status.Failure; f != nil && wrong.reason == claimsv1.ReasonDeleting {
		wrong.message = f.Message + "; what the broker may have of it is deleted"
		wrong.reason = f.Reason
	}
	return wrong
}

// send asks for the operation in the status. again reports whether it may have been asked for before.
func (s *servicePass) send(ctx context.Context, want *wanted, again bool) (*problem, error) {
	status, broker, place := &s.claim.Status, s.Broker(), s.context(s.claim)
	operation, id := status.Operation, string(s.claim.UID)
	var accepted osbclient.Accepted
	var err error
	if operation.Type == claimsv1.OperationProvision {
		var space corev1.Namespace
		if err := s.Client.Get(ctx, client.ObjectKey{Name: s.claim.Namespace}, &space); err != nil {
			return nil, fmt.Errorf("read the namespace: %w", err)
		}
		accepted, err = broker.Provision(ctx, id, osbclient.Order{
			ServiceID: want.to.ServiceID, PlanID: want.to.PlanID, Context: place, Parameters: want.document, Identity: s.Cluster.Identity,
			OrganizationGUID: s.Cluster.ID, SpaceGUID: string(space.UID), MaintenanceInfo: maintenance(want.to.MaintenanceVersion),
		})
	} else {
		accepted, err = broker.Update(ctx, id, s.change(want, place))
	}
	if err != nil {
		return s.failed(ctx, err, want, again)
	}
	if accepted.Dashboard != nil && want.hide.text(accepted.Dashboard.URL) == accepted.Dashboard.URL {
		status.DashboardURL = accepted.Dashboard.URL
	}
	if accepted.Done {
		return s.done(ctx)
	}
	operation.Token = &accepted.Operation
	return s.waits(accepted.RetryAfter, ""), nil
}

// change returns the update to what is wanted. It has the parameters, and of the rest what differs; all of it if nobody
// knows what the instance is. Parameters that a claim has no more are sent as an empty object: without it, the broker keeps
// them (OSB 2.17, "Updating a Service Instance"). A plan that is known to have got none is sent none, because it may refuse an
// object.
func (s *servicePass) change(want *wanted, place json.RawMessage) osbclient.Change {
	has := s.claim.Status.Instance
	change := osbclient.Change{
		ServiceID: want.to.ServiceID, Context: place, Identity: s.Cluster.Identity, Parameters: want.document,
		PreviousValues: osbclient.PreviousValues{PlanID: has.PlanID, MaintenanceInfo: maintenance(has.MaintenanceVersion)},
	}
	if has.Digest == "" || want.to.PlanID != has.PlanID {
		change.PlanID = want.to.PlanID
	}
	if change.PlanID != "" || want.to.MaintenanceVersion != has.MaintenanceVersion {
		change.MaintenanceInfo = maintenance(want.to.MaintenanceVersion)
	}
	hasSome := has.Digest == "" || !has.NoParameters
	if isEmpty := change.PlanID == "" && change.MaintenanceInfo == nil; change.Parameters == nil && (hasSome || isEmpty) {
		change.Parameters = json.RawMessage("{}")
	}
	return change
}

// done records that the operation in the status was carried out.
func (s *servicePass) done(ctx context.Context) (*problem, error) {
	status := &s.claim.Status
	log.FromContext(ctx).Info("carried out", "operation", status.Operation.Type, "plan", status.Operation.To.Plan)
	to := status.Operation.To
	status.Instance, status.Operation, status.Failure = &to, nil, nil
	return s.carryOut(ctx) // the claim may want something else by now
}

// failed decides what follows from a request that did not succeed.
func (s *servicePass) failed(ctx context.Context, err error, want *wanted, again bool) (*problem, error) {
	status, message := &s.claim.Status, want.hide.text(err.Error())
	verdict := judge(err)
	if verdict == repeat || verdict == unclear {
		return unavailable(err, want.hide), nil
	}
	failure := failed(status.Failure, want.to.Digest, message, s.now())
	if verdict == refuse {
		failure = refused(want.to.Digest, message)
		if osbclient.IsMaintenanceConflict(err) {
			s.offers.forget()
		}
	}
	log.FromContext(ctx).Info("not carried out", "operation", status.Operation.Type, "reason", message)
	if status.Operation.Type == claimsv1.OperationProvision && (verdict == undo || again) {
		return s.undo(ctx, failure)
	}
	return s.end(failure, verdict == undo || again), nil
}

// end ends an operation that failed and leaves nothing behind. unknown reports whether the broker may have done it all the same.
func (s *servicePass) end(failure *claimsv1.Failure, unknown bool) *problem {
	status := &s.claim.Status
	if status.Instance != nil && unknown {
		status.Instance.Digest = ""
	}
	status.Operation, status.Failure = nil, failure
	return &problem{reason: failure.Reason, message: told(failure), after: s.until(failure)}
}

// undo deletes what a provision may have left at the broker. The failure is nil if another order follows.
func (s *servicePass) undo(ctx context.Context, failure *claimsv1.Failure) (*problem, error) {
	s.claim.Status.Failure = failure
	if err := s.begin(ctx, claimsv1.OperationDeprovision, s.claim.Status.Operation.To, 0); err != nil {
		return nil, err
	}
	return s.proceed(ctx)
}

// poll asks for the state of an operation that the broker has accepted.
func (s *servicePass) poll(ctx context.Context, operation *claimsv1.ServiceOperation) (*problem, error) {
	plan := operation.To.PlanID
	if has := s.claim.Status.Instance; has != nil {
		plan = has.PlanID // of an update, the plan before it (OSB 2.17, "Polling Last Operation")
	}
	polled, err := osbclient.Polled(s.Broker().LastOperation(ctx, string(s.claim.UID), operation.To.ServiceID, plan, *operation.Token))
	hide := s.hidden(ctx)
	polled.Description = hide.text(polled.Description)
	switch {
	case osbclient.IsRefused(err):
		operation.Token = nil // it is asked for again
		return s.waits(0, hide.text(err.Error())), nil
	case err != nil:
		return unavailable(err, hide), nil
	case polled.Gone:
		return s.ended(ctx, "the broker does not know the instance any more", false)
	case polled.State == osbclient.Succeeded:
		return s.done(ctx)
	case polled.State == osbclient.Failed:
		s.claim.Status.LastOperation = polled.Description
		final := operation.Type == claimsv1.OperationUpdate && polled.UpdateRepeatable != nil && !*polled.UpdateRepeatable
		return s.ended(ctx, fmt.Sprintf("%s failed: %s", operation.Type, polled.Reason()), final)
	}
	if most := time.Duration(operation.PollingSeconds) * time.Second; most > 0 && s.now().Sub(operation.StartedAt.Time) > most {
		return s.ended(ctx, fmt.Sprintf("%s took longer than the %v that the plan gives", operation.Type, most), false)
	}
	return s.waits(polled.RetryAfter, polled.Description), nil
}

// ended follows an operation that the broker accepted and did not carry out.
func (s *servicePass) ended(ctx context.Context, message string, final bool) (*problem, error) {
	operation := s.claim.Status.Operation
	failure := failed(s.claim.Status.Failure, operation.To.Digest, message, s.now())
	if final {
		failure = refused(operation.To.Digest, message)
	}
	log.FromContext(ctx).Info("not carried out", "operation", operation.Type, "reason", message)
	if operation.Type == claimsv1.OperationProvision {
		return s.undo(ctx, failure)
	}
	return s.end(failure, true), nil
}

// waits returns the problem of an operation that is under way.
func (s *servicePass) waits(pause time.Duration, said string) *problem {
	if said != "" {
		s.claim.Status.LastOperation = said
	}
	message := fmt.Sprintf("%s is under way", s.claim.Status.Operation.Type)
	if said = s.claim.Status.LastOperation; said != "" {
		message += ": " + said
	}
	return &problem{reason: claimsv1.ReasonInProgress, message: message, after: cmp.Or(pause, usualPause)}
}

// check returns a problem if the broker does not know the instance any more. It is not ordered again, because its data
// would be gone without a word.
func (s *servicePass) check(ctx context.Context, want *wanted) (*problem, error) {
	if !want.service.InstancesRetrievable {
		return nil, nil
	}
	exists, err := s.Broker().Exists(ctx, string(s.claim.UID), want.to.ServiceID, want.to.PlanID)
	switch {
	case err != nil && judge(err) != refuse:
		return s.unlessSettled(unavailable(err, want.hide)), nil
	case err == nil && !exists:
		return &problem{reason: claimsv1.ReasonLost, message: "the broker does not know the instance any more: ask its operator. It is not ordered again, because its data would be lost", after: Recheck}, nil
	}
	return nil, nil
}
