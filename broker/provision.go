package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// maxConflicts limits how often a request is tried again because the resource was changed
// meanwhile.
const maxConflicts = 5

// provision answers PUT /v2/service_instances/:id (OSB 2.17, "Provisioning").
//
// A new instance is one Create, without a read before it. The resource's name is derived
// from the ids, so one of several concurrent requests wins and the others find its instance.
//
// Step 2 of a provision (docs/architecture.md).
func (s *server) provision(c *call) (*reply, error) {
	async, err := c.acceptsIncomplete()
	if err != nil {
		return nil, err
	}
	request, err := s.decodeProvision(c)
	if err != nil {
		return nil, err
	}
	if c.via, err = s.via(c); err != nil {
		return nil, err
	}
	snapshot := s.Catalog.Snapshot()
	plan, err := c.findPlan(snapshot, request.ServiceID, request.PlanID)
	if err != nil {
		return nil, err
	}
	refusal := c.admissible(snapshot, plan, request, async)
	for range maxConflicts {
		if refusal == nil {
			created, err := s.createInstance(c, request, plan)
			switch {
			case err == nil:
				return s.instanceReply(c, s.awaitDashboard(c, created, plan), plan, http.StatusAccepted), nil
			case is[*Error](err):
				refusal = err // returned only if the instance does not exist
			case !apierrors.IsAlreadyExists(err):
				return nil, err
			}
		}
		existing, err := s.findInstance(c)
		switch {
		case err != nil:
			return nil, err
		case existing != nil:
			answer, err := s.provisionAgain(c, existing, request, plan, async)
			if apierrors.IsConflict(err) {
				continue
			}
			return answer, err
		case refusal != nil:
			return nil, refusal
		}
		// The instance was deleted meanwhile: try again.
	}
	return nil, errConcurrency
}

// admissible returns the reason why a request cannot create an instance; nil if it can.
func (c *call) admissible(snapshot *catalog.Snapshot, plan *catalog.Plan, request *provisionRequest, async bool) error {
	if err := c.mayOrder(snapshot, plan); err != nil {
		return err
	}
	if err := plan.ValidateCreate(request.RawParameters); err != nil {
		return err
	}
	if info := request.MaintenanceInfo; info != nil && info.Version != maintenanceVersion(plan) {
		return errMaintenanceInfo
	}
	if !async {
		return errAsyncRequired
	}
	return nil
}

// mayOrder refuses plans that are not sold, or not sold to this platform.
func (c *call) mayOrder(snapshot *catalog.Snapshot, plan *catalog.Plan) error {
	if !plan.VisibleTo(c.platform.Name) {
		return c.unseen(snapshot, &catalog.UnknownPlanError{ServiceID: plan.Offering.ID, PlanID: plan.ID})
	}
	if plan.Offering.Retired {
		return badRequest("plan_id: the service offering %s is being withdrawn.", plan.Offering.Name)
	}
	if plan.Withdrawn {
		return badRequest("plan_id: plan %s of %s is withdrawn: no provider offers it any more. Order another plan; existing instances go on.", plan.Name, plan.Offering.Name)
	}
	return nil
}

// findPlan finds a plan, whether or not the platform sees it: an instance may have a plan
// that was hidden later.
func (c *call) findPlan(snapshot *catalog.Snapshot, serviceID, planID string) (*catalog.Plan, error) {
	plan, err := snapshot.Plan(serviceID, planID)
	if unknown := (*catalog.UnknownPlanError)(nil); errors.As(err, &unknown) {
		return nil, c.unseen(snapshot, unknown)
	}
	return plan, err
}

// unseen returns the error for an unknown plan, or for an unknown service offering if the
// platform sees none of its plans. Hidden plans get the same answer as plans that do not
// exist.
func (c *call) unseen(snapshot *catalog.Snapshot, plan *catalog.UnknownPlanError) error {
	sees := func(o *catalog.Offering) bool { return o.ID == plan.ServiceID }
	if slices.ContainsFunc(snapshot.Offerings(c.platform.Name), sees) {
		return plan
	}
	return &catalog.UnknownServiceError{ServiceID: plan.ServiceID}
}

func maintenanceVersion(plan *catalog.Plan) string {
	if plan.MaintenanceInfo == nil {
		return ""
	}
	return plan.MaintenanceInfo.Version
}

func (s *server) createInstance(c *call, request *provisionRequest, plan *catalog.Plan) (*v1alpha1.ServiceInstance, error) {
	i := &v1alpha1.ServiceInstance{
		ObjectMeta: s.objectMeta(v1alpha1.InstanceName(c.platform.Name, c.instanceID)),
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: c.platform.Name, InstanceID: c.instanceID, ServiceID: request.ServiceID,
			OrganizationGUID: request.OrganizationGUID, SpaceGUID: request.SpaceGUID,
			Desired: v1alpha1.InstanceState{
				PlanID:             request.PlanID,
				Context:            extension(request.RawContext),
				MaintenanceVersion: maintenanceVersion(plan),
			},
			OriginatingIdentity: c.identity,
			Via:                 c.via,
		},
	}
	parameters, err := s.stored(i, plan, request.RawParameters)
	if err != nil {
		return nil, err
	}
	i.Spec.Desired.Parameters = parameters
	if err := s.Usage.admit(c.Context(), c.platform, i); err != nil {
		return nil, err
	}
	if err := c.write(func(ctx context.Context) error { return s.Client.Create(ctx, i) }); err != nil {
		return nil, fmt.Errorf("create instance %s: %w", i.Name, err)
	}
	s.Usage.put(i)
	s.metrics.accepted(plan, v1alpha1.OperationProvision)
	return i, nil
}

// provisionAgain answers a provision of an instance that exists.
func (s *server) provisionAgain(c *call, i *v1alpha1.ServiceInstance, request *provisionRequest, plan *catalog.Plan, async bool) (*reply, error) {
	if i.DeletionTimestamp != nil {
		return nil, errConcurrency
	}
	parameters, err := s.given(i, i.StateInForce())
	switch {
	case err != nil:
		return nil, err
	case !isSameInstance(i, parameters, request):
		return nil, errInstanceConflict
	}
	operation := instanceOperation(i)
	switch {
	case i.Status.Delivered != nil:
		return s.instanceReply(c, i, plan, http.StatusOK), nil
	case !async:
		return nil, errAsyncRequired
	case operation.State == v1alpha1.StateFailed:
		if err := c.mayOrder(s.Catalog.Snapshot(), plan); err != nil {
			return nil, err
		}
		if err := s.attempt(c, i); err != nil {
			return nil, err
		}
		s.metrics.accepted(plan, v1alpha1.OperationProvision)
	}
	return s.instanceReply(c, s.awaitDashboard(c, i, plan), plan, http.StatusAccepted), nil
}

// attempt starts a failed provision again. A conflict means that another request did so
// first.
func (s *server) attempt(c *call, i *v1alpha1.ServiceInstance) error {
	i.Spec.Attempt++
	i.Spec.OriginatingIdentity = c.identity
	err := c.write(func(ctx context.Context) error { return s.Client.Update(ctx, i) })
	if err != nil {
		return fmt.Errorf("start instance %s again: %w", i.Name, err)
	}
	return nil
}

// instanceReply returns the answer to a provision or an update.
func (s *server) instanceReply(c *call, i *v1alpha1.ServiceInstance, plan *catalog.Plan, status int) *reply {
	operation := ""
	if status == http.StatusAccepted {
		operation = s.token(i, instanceOperation(i))
	}
	return &reply{status: status, body: instanceResponse(i, dashboardURL(plan, i), operation, c.version)}
}
