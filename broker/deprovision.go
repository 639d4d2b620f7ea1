package broker

import (
	"net/http"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// deprovision answers DELETE /v2/service_instances/:id (OSB 2.17, "Deprovisioning"). It is
// accepted during any other operation and halts that operation. The instance's bindings are
// deleted too.
func (s *server) deprovision(c *call) (*reply, error) {
	async, err := c.acceptsIncomplete()
	if err != nil {
		return nil, err
	}
	serviceID, planID, err := c.ids()
	if err != nil {
		return nil, err
	}
	i, err := s.findInstance(c)
	switch {
	case err != nil:
		return nil, err
	case i == nil:
		return nil, errGone
	case i.Spec.ServiceID != serviceID:
		return nil, badRequest("service_id: is not the service offering of the instance.")
	}
	c.hint(planID, i.StateInForce().PlanID)
	if !async {
		return nil, errAsyncRequired
	}
	if i.DeletionTimestamp == nil {
		if err := s.mayLeave(c, i); err != nil {
			return nil, err
		}
		uid := i.UID
		if err := s.delete(c, i); err != nil {
			return nil, err
		}
		if plan, err := s.Catalog.Snapshot().Plan(serviceID, i.Spec.Desired.PlanID); err == nil {
			s.metrics.accepted(plan, v1alpha1.OperationDeprovision)
		}
		// The deletion made a new generation, which names the operation.
		if i, err = s.findInstance(c); err != nil {
			return nil, err
		}
		if i == nil || i.UID != uid {
			return &reply{status: http.StatusOK, body: emptyBody{}}, nil
		}
	}
	return &reply{status: http.StatusAccepted, body: operationBody{s.token(i, instanceOperation(i))}}, nil
}
