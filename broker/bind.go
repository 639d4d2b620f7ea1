package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// bind answers PUT /v2/service_instances/:id/service_bindings/:id (OSB 2.17, "Binding" and
// "Binding Rotation"). It is synchronous if possible, because many platforms read
// credentials only from this response.
func (s *server) bind(c *call) (*reply, error) {
	async, err := c.acceptsIncomplete()
	if err != nil {
		return nil, err
	}
	request, err := s.decodeBind(c)
	if err != nil {
		return nil, err
	}
	c.due = time.Now().Add(s.BindTimeout)
	for range maxConflicts {
		existing, err := s.findBinding(c, c.bindingID)
		if err != nil {
			return nil, err
		}
		if existing != nil {
			again, err := s.bindAgain(c, existing, request, async)
			if again == nil && err == nil {
				continue // bindAgain deleted a failed one
			}
			return again, err
		}
		b, of, plan, err := s.newBinding(c, request)
		if err != nil {
			return nil, err
		}
		if err := s.Usage.admitBinding(c.Context(), c.platform, b, of); err != nil {
			return nil, err
		}
		err = c.write(func(ctx context.Context) error { return s.Client.Create(ctx, b) })
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			s.Usage.withdraw(b)
			return nil, fmt.Errorf("create binding %s: %w", b.Name, err)
		}
		s.metrics.accepted(plan, v1alpha1.OperationBind)
		return s.finishBind(c, b, async, true)
	}
	return nil, errConcurrency
}

// newBinding returns the binding that a request asks for, its instance and plan, or the reason why there
// cannot be one.
func (s *server) newBinding(c *call, request *bindRequest) (*v1alpha1.ServiceBinding, *v1alpha1.ServiceInstance, *catalog.Plan, error) {
	i, err := s.findInstance(c)
	if err != nil {
		return nil, nil, nil, err
	}
	if i == nil {
		return nil, nil, nil, errNoInstance
	}
	rotation := request.PredecessorBindingID != nil
	if request.ServiceID != i.Spec.ServiceID && !(rotation && request.ServiceID == "") {
		return nil, nil, nil, badRequest("service_id: is not the service offering of the instance.")
	}
	if err := s.bindable(c, i.Spec.ServiceID, request.PlanID, i.StateInForce().PlanID); err != nil {
		return nil, nil, nil, err
	}
	operation := instanceOperation(i)
	switch {
	case i.DeletionTimestamp == nil && i.Status.Delivered == nil && operation.State == v1alpha1.StateFailed:
		return nil, nil, nil, errNoInstance // its provision failed
	case i.DeletionTimestamp != nil, inProgress(operation):
		return nil, nil, nil, errConcurrency
	}
	state := i.StateInForce()
	plan, err := s.Catalog.Snapshot().Plan(i.Spec.ServiceID, state.PlanID)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("find the plan of instance %s: %v", i.Name, err) // not wrapped: the request is not at fault
	}
	if !plan.IsBindable() {
		return nil, nil, nil, badRequest("Instances of plan %s cannot be bound.", plan.Name)
	}
	b := &v1alpha1.ServiceBinding{
		ObjectMeta: s.objectMeta(v1alpha1.BindingName(c.platform.Name, c.instanceID, c.bindingID)),
		Spec: v1alpha1.ServiceBindingSpec{
			Platform: c.platform.Name, InstanceName: i.Name, InstanceID: c.instanceID, BindingID: c.bindingID,
			ServiceID: i.Spec.ServiceID, PlanID: state.PlanID, AppGUID: request.AppGUID,
			BindResource: extension(request.RawBindResource), Parameters: extension(request.RawParameters),
			Context: extension(request.RawContext), OriginatingIdentity: c.identity,
		},
	}
	var before []string
	if rotation {
		if before, err = s.rotate(c, b, *request.PredecessorBindingID, plan); err != nil {
			return nil, nil, nil, err
		}
	}
	hidden := slices.Concat(plan.HiddenBindingParameters(b.Spec.Raw()), before)
	if err := plan.ValidateBind(b.Spec.Raw()); err != nil {
		return nil, nil, nil, err
	}
	b.Spec.Credentials = plan.BindingCredentials(b.Spec.Raw())
	if plan.Credentials.RequiresApp && b.Spec.AppGUID == "" {
		return nil, nil, nil, errRequiresApp
	}
	if b.Spec.Parameters, err = sealed(workload.BindingParametersOf(b, s.Keys), plan, hidden, b.Spec.Raw()); err != nil {
		return nil, nil, nil, err
	}
	return b, i, plan, nil
}

// bindable refuses a bind with the plan_id of a plan that the service offering does not have (OSB 2.17, "Binding"). Another
// plan of it is a hint.
func (s *server) bindable(c *call, serviceID, sent, actual string) error {
	if _, err := s.Catalog.Snapshot().Plan(serviceID, sent); err != nil && sent != "" && sent != actual {
		return badRequest("plan_id: is no plan of the service offering.")
	}
	c.hint(sent, actual)
	return nil
}

// rotate makes b the successor of another binding of the same instance. Fields that the
// request omits are taken from that binding. Both are valid until the old one is deleted.
// It returns the names of the parameters that are taken and were sealed.
func (s *server) rotate(c *call, b *v1alpha1.ServiceBinding, predecessorID string, plan *catalog.Plan) (hidden []string, err error) {
	if !plan.IsBindingRotatable() {
		return nil, badRequest("predecessor_binding_id: bindings of plan %s cannot be rotated.", plan.Name)
	}
	predecessor, err := s.findBinding(c, predecessorID)
	if err != nil {
		return nil, err
	}
	switch {
	case predecessor == nil:
		return nil, badRequest("predecessor_binding_id: the instance has no such binding.")
	case predecessor.DeletionTimestamp != nil, bindingOperation(predecessor).State != v1alpha1.StateSucceeded:
		return nil, badRequest("predecessor_binding_id: the binding is not in force.")
	case isExpired(predecessor, s.Clock.Now()):
		return nil, badRequest("predecessor_binding_id: the binding has expired.")
	}
	b.Spec.PredecessorBindingID = predecessorID
	if b.Spec.AppGUID == "" {
		b.Spec.AppGUID = predecessor.Spec.AppGUID
	}
	if b.Spec.BindResource == nil {
		b.Spec.BindResource = predecessor.Spec.BindResource
	}
	if b.Spec.Context == nil {
		b.Spec.Context = predecessor.Spec.Context
	}
	if b.Spec.Parameters != nil {
		return nil, nil
	}
	of := workload.BindingParametersOf(predecessor, s.Keys)
	were, err := of.Hidden(predecessor.Spec.Raw())
	if err != nil {
		return nil, err
	}
	given, err := of.Opened(predecessor.Spec.Raw())
	b.Spec.Parameters = extension(given)
	return slices.Collect(maps.Keys(were)), err
}

// bindAgain answers a bind for a binding that exists. It returns neither a reply nor an
// error if the binding had failed and is now deleted.
func (s *server) bindAgain(c *call, b *v1alpha1.ServiceBinding, request *bindRequest, async bool) (*reply, error) {
	if b.DeletionTimestamp != nil {
		return nil, errConcurrency
	}
	given, err := workload.BindingParametersOf(b, s.Keys).Opened(b.Spec.Raw())
	if err != nil {
		return nil, err
	}
	if !isSameBinding(b, given, request) || s.bindable(c, b.Spec.ServiceID, request.PlanID, b.Spec.PlanID) != nil {
		return nil, errBindingConflict
	}
	if bindingOperation(b).State != v1alpha1.StateFailed {
		return s.finishBind(c, b, async, false)
	}
	if err := s.delete(c, b); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(c.Context(), c.due)
	defer cancel()
	_, err = await(ctx, s.Client, b, &v1alpha1.ServiceBindingList{}, func(*v1alpha1.ServiceBinding) bool { return false })
	if errors.Is(err, errDeleted) {
		return nil, nil
	}
	return nil, errConcurrency
}

// finishBind waits for a bind and answers it. If created, this request made the binding;
// finishBind then deletes the binding if it fails before the answer.
func (s *server) finishBind(c *call, b *v1alpha1.ServiceBinding, async, created bool) (*reply, error) {
	b, err := s.awaitBinding(c, b, async, func(b *v1alpha1.ServiceBinding) bool {
		return b.DeletionTimestamp != nil || !inProgress(bindingOperation(b))
	})
	operation := bindingOperation(b)
	switch {
	case errors.Is(err, errDeleted), b.DeletionTimestamp != nil:
		return nil, errConcurrency
	case err == nil && operation.State == v1alpha1.StateSucceeded:
		status := http.StatusOK
		if created {
			status = http.StatusCreated
		} else if b = s.renewed(c, b); b.DeletionTimestamp != nil {
			return nil, errConcurrency
		}
		body, err := s.bindingBody(b, c.version)
		if err != nil {
			return nil, err
		}
		return &reply{status: status, body: body}, nil
	case c.Context().Err() != nil:
		return nil, c.Context().Err() // the platform hung up; the binding stays, so that it can be fetched or deleted
	case errors.Is(err, context.DeadlineExceeded) && async:
		return &reply{status: http.StatusAccepted, body: operationBody{s.token(b, operation)}}, nil
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("wait for binding %s: %w", b.Name, err)
	}
	if created {
		if err := s.delete(c, b); err != nil {
			return nil, err
		}
	}
	what := "The binding could not be created"
	if inProgress(operation) {
		what = fmt.Sprintf("The binding could not be created within %v", s.BindTimeout)
	}
	return nil, &Error{Status: http.StatusInternalServerError, Code: codeOperationFailed,
		Description: what + because(b) + ". Nothing of it stays, and the same request can safely be repeated."}
}

// because completes a sentence about a binding with its controller's description of the
// current operation, if there is one.
func because(b *v1alpha1.ServiceBinding) string {
	if operation := b.Status.Operation; operation != nil && operation.Generation == b.Generation && operation.Description != "" {
		return ": " + operation.Description
	}
	return ""
}

// awaitBinding waits until done or until the platform's time is up, counted from the
// request's arrival. In the latter case it returns the context's error.
func (s *server) awaitBinding(c *call, b *v1alpha1.ServiceBinding, async bool, done func(*v1alpha1.ServiceBinding) bool) (*v1alpha1.ServiceBinding, error) {
	if async && s.BindWait <= 0 && !done(b) {
		return b, context.DeadlineExceeded
	}
	due := c.due
	if soon := time.Now().Add(s.BindWait); async && soon.Before(due) {
		due = soon
	}
	ctx, cancel := context.WithDeadline(c.Context(), due)
	defer cancel()
	return await(ctx, s.Client, b, &v1alpha1.ServiceBindingList{}, done)
}

// bindingBody returns a successful binding with its credentials unsealed.
func (s *server) bindingBody(b *v1alpha1.ServiceBinding, v version) (bindingBody, error) {
	var credentials json.RawMessage
	if len(b.Status.SealedCredentials) > 0 {
		unsealed, err := s.Keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(v1alpha1.UIDOf(b))))
		if err != nil {
			return bindingBody{}, fmt.Errorf("unseal the credentials of binding %s: %w", b.Name, err)
		}
		credentials = unsealed.Reveal()
	}
	return bindingResponse(b, credentials, v), nil
}
