package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/workload"
)

// contextTimeout limits the wait for the controller to record a new context.
const contextTimeout = 30 * time.Second

// update answers PATCH /v2/service_instances/:id (OSB 2.17, "Updating a Service Instance").
// Fields that a request omits keep the value in force, so that a failed update has no
// effect on later ones. Parameters replace those of the instance as a whole, except hidden ones.
func (s *server) update(c *call) (*reply, error) {
	async, err := c.acceptsIncomplete()
	if err != nil {
		return nil, err
	}
	request, err := s.decodeUpdate(c)
	if err != nil {
		return nil, err
	}
	for range maxConflicts {
		i, err := s.findInstance(c)
		if err != nil {
			return nil, err
		}
		if i == nil {
			return nil, errNoInstance
		}
		answer, err := s.updateInstance(c, i, request, async)
		if apierrors.IsConflict(err) {
			continue
		}
		return answer, err
	}
	return nil, errConcurrency
}

func (s *server) updateInstance(c *call, i *v1alpha1.ServiceInstance, request *updateRequest, async bool) (*reply, error) {
	operation := instanceOperation(i)
	switch {
	case i.DeletionTimestamp != nil:
		return nil, errConcurrency
	case i.Spec.ServiceID != request.ServiceID:
		return nil, badRequest("service_id: is not the service offering of the instance.")
	case i.Status.Delivered == nil && operation.State == v1alpha1.StateFailed:
		return nil, errNotProvisioned
	case i.Status.Delivered == nil:
		return nil, errConcurrency
	}
	current := i.StateInForce()
	desired, plan, err := s.desiredState(c, i, request)
	if err != nil {
		return nil, err
	}
	switch {
	case inProgress(operation):
		if !isSameState(desired, &i.Spec.Desired) {
			return nil, errConcurrency
		}
		if isSameButContext(desired, current) {
			return s.contextRecorded(c, i, plan)
		}
	case isSameState(desired, current) && isSameState(desired, &i.Spec.Desired):
		return s.instanceReply(c, i, plan, http.StatusOK), nil
	case isSameButContext(desired, current):
		if err := s.writeDesired(c, i, desired, plan); err != nil {
			return nil, err
		}
		return s.contextRecorded(c, i, plan)
	}
	if !async {
		return nil, errAsyncRequired
	}
	if !inProgress(operation) {
		if err := s.writeDesired(c, i, desired, plan); err != nil {
			return nil, err
		}
	}
	return s.instanceReply(c, i, plan, http.StatusAccepted), nil
}

// desiredState returns the state that an update asks for, and its plan.
func (s *server) desiredState(c *call, i *v1alpha1.ServiceInstance, request *updateRequest) (*v1alpha1.InstanceState, *catalog.Plan, error) {
	current := i.StateInForce()
	desired := current.DeepCopy()
	snapshot := s.Catalog.Snapshot()
	if request.PlanID != nil {
		desired.PlanID = *request.PlanID
	}
	plan, err := c.findPlan(snapshot, i.Spec.ServiceID, desired.PlanID)
	if err != nil {
		return nil, nil, err
	}
	changesPlan := desired.PlanID != current.PlanID
	if changesPlan {
		if err := c.mayChange(snapshot, i.Spec.ServiceID, current.PlanID, plan); err != nil {
			return nil, nil, err
		}
		desired.MaintenanceVersion = maintenanceVersion(plan)
	}
	if request.RawContext != nil {
		desired.Context = extension(request.RawContext)
	}
	if changesPlan || request.RawParameters != nil {
		if err := s.setParameters(i, request, plan, desired); err != nil {
			return nil, nil, err
		}
	}
	if info := request.MaintenanceInfo; info != nil {
		if info.Version != maintenanceVersion(plan) {
			return nil, nil, errMaintenanceInfo
		}
		desired.MaintenanceVersion = info.Version
	}
	if plan.RejoinsBy(i.Status.DeliveredDecision().Shape(), desired.Raw()) {
		if err := s.mayLeave(c, i); err != nil {
			return nil, nil, err
		}
	}
	return desired, plan, nil
}

// setParameters sets the parameters of the state that an update asks for.
func (s *server) setParameters(i *v1alpha1.ServiceInstance, request *updateRequest, plan *catalog.Plan, desired *v1alpha1.InstanceState) error {
	current := i.StateInForce()
	var parameters json.RawMessage
	var err error
	if request.RawParameters == nil {
		parameters, err = s.given(i, current)
	} else if parameters, err = s.updated(i, request.RawParameters); err == nil {
		err = storable("context and parameters, with the hidden ones that stay,", rawOf(desired.Context), parameters)
	}
	if err != nil {
		return err
	}
	if desired.Parameters, err = s.stored(i, plan, parameters); err != nil {
		return err
	}
	if sameObject(rawOf(desired.Parameters), rawOf(current.Parameters)) {
		// Such as {} instead of none. The controller compares what is stored.
		desired.Parameters = current.Parameters.DeepCopy()
	}
	err = plan.ValidateState(workload.ParametersOf(i, s.Keys), current, desired)
	if request.RawParameters == nil && is[*catalog.ParameterError](err) {
		return parametersConflict(plan, err)
	}
	return err
}

// parametersConflict refuses a change to a plan that does not accept the instance's present
// parameters (OSB 2.17, "Updating a Service Instance": 422 if the instance's state forbids
// the update).
func parametersConflict(plan *catalog.Plan, err error) error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: codeParametersConflict, Err: err, Description: fmt.Sprintf(
		"The instance's parameters do not suit plan %s: %v. Send with the plan the parameters that the instance is to have; one that is null is dropped.", plan.Name, err)}
}

// mayChange refuses a change of plan that the catalog does not allow. Visibility is checked first: a refusal names the
// new plan and its kind, which a platform may not learn of a hidden one.
func (c *call) mayChange(snapshot *catalog.Snapshot, serviceID, from string, to *catalog.Plan) error {
	if err := c.mayOrder(snapshot, to); err != nil {
		return err
	}
	old, err := snapshot.Plan(serviceID, from)
	if err != nil {
		return fmt.Errorf("find the instance's plan: %v", err) // not wrapped: the request is not at fault
	}
	if why := old.CannotBecome(to); why != "" {
		return &Error{Status: http.StatusUnprocessableEntity, Code: codePlanChangeNotSupported, Description: fmt.Sprintf("Plan not changed: %s.", why)}
	}
	return nil
}

// writeDesired commits an update. Repeating an update that has just failed is a new
// attempt.
func (s *server) writeDesired(c *call, i *v1alpha1.ServiceInstance, desired *v1alpha1.InstanceState, plan *catalog.Plan) error {
	if isSameState(desired, &i.Spec.Desired) {
		i.Spec.Attempt++
	}
	i.Spec.Desired = *desired
	i.Spec.OriginatingIdentity = c.identity
	if err := s.Usage.admit(c.Context(), c.platform, i); err != nil {
		return err
	}
	err := c.write(func(ctx context.Context) error { return s.Client.Update(ctx, i) })
	if err != nil {
		return fmt.Errorf("update instance %s: %w", i.Name, err)
	}
	s.metrics.accepted(plan, v1alpha1.OperationUpdate)
	return nil
}

// contextRecorded waits until the controller has recorded an update of the context alone,
// which it does at once.
func (s *server) contextRecorded(c *call, i *v1alpha1.ServiceInstance, plan *catalog.Plan) (*reply, error) {
	ctx, cancel := context.WithTimeout(c.Context(), contextTimeout)
	defer cancel()
	generation := i.Generation
	i, err := await(ctx, s.Client, i, &v1alpha1.ServiceInstanceList{}, func(i *v1alpha1.ServiceInstance) bool {
		return i.Generation != generation || !inProgress(instanceOperation(i))
	})
	switch {
	case errors.Is(err, errDeleted), err == nil && i.Generation != generation:
		return nil, errConcurrency
	case err != nil:
		return nil, fmt.Errorf("wait for the context of instance %s to be recorded: %w", i.Name, err)
	}
	if operation := instanceOperation(i); operation.State == v1alpha1.StateFailed {
		return nil, &Error{Status: http.StatusInternalServerError, Code: codeOperationFailed, Description: "The context is not recorded: " + toldOf(operation),
			InstanceUsable: operation.InstanceUsable, UpdateRepeatable: operation.UpdateRepeatable}
	}
	return s.instanceReply(c, i, plan, http.StatusOK), nil
}
