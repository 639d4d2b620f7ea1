package broker

import (
	"net/http"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// lastOperation answers GET /v2/service_instances/:id/last_operation (OSB 2.17,
// "Polling Last Operation for Service Instances"). It reads live and writes nothing.
//
// The query parameters service_id and plan_id are hints and not needed: after a
// change of plan, plan_id names the old one, which nobody remembers.
func (s *server) lastOperation(c *call) (*reply, error) {
	asked, err := c.operation()
	if err != nil {
		return nil, err
	}
	i, err := s.findInstance(c)
	if err != nil {
		return nil, err
	}
	if i == nil || isOver(asked, v1alpha1.OperationDeprovision, i.DeletionTimestamp != nil) {
		return c.deletedOperation(asked, v1alpha1.OperationDeprovision, errNoInstance)
	}
	return s.operationReply(c, instanceOperationAsked(i, asked)), nil
}

// operation reads the query parameter of that name. Tokens of foreign origin, which
// platforms do send, and an empty one, are the same as none.
func (c *call) operation() (v1alpha1.OperationToken, error) {
	text, _, err := single(c.query, "operation")
	if err != nil {
		return v1alpha1.OperationToken{}, err
	}
	token, _ := v1alpha1.ParseOperationToken(text)
	return token, nil
}

// isOver reports whether a poll for a deletion finds a resource that is not being
// deleted: one of the same id that was made since.
func isOver(asked v1alpha1.OperationToken, deletion v1alpha1.OperationType, deleting bool) bool {
	return asked.Type == deletion && !deleting
}

// deletedOperation answers a poll about a resource that is not there: only a poll
// that names a deletion gets to hear that it is gone.
func (c *call) deletedOperation(asked v1alpha1.OperationToken, deletion v1alpha1.OperationType, absent *Error) (*reply, error) {
	if asked.Type != deletion {
		return nil, absent
	}
	if c.platform.DeletedLastOperation == DeletedSucceeded {
		done := v1alpha1.Operation{State: v1alpha1.StateSucceeded}
		return &reply{status: http.StatusOK, body: lastOperationResponse(done, c.version)}, nil
	}
	return nil, errGone
}

// instanceOperationAsked is the operation that a token names, or the one in hand.
func instanceOperationAsked(i *v1alpha1.ServiceInstance, asked v1alpha1.OperationToken) v1alpha1.Operation {
	current := instanceOperation(i)
	if asked.Type == current.Type && asked.Generation == current.Generation {
		return current
	}
	earlier := v1alpha1.Operation{Type: asked.Type, Generation: asked.Generation, State: v1alpha1.StateFailed}
	switch {
	case asked.Type == v1alpha1.OperationProvision && asked.Generation < current.Generation:
		if i.Status.Delivered != nil {
			earlier.State = v1alpha1.StateSucceeded
			return earlier
		}
		if i.DeletionTimestamp != nil {
			earlier.Description = "halted: the instance is being deprovisioned"
			return earlier
		}
	case asked.Type == v1alpha1.OperationUpdate && asked.Generation < current.Generation:
		usable := i.DeletionTimestamp == nil
		if d := i.Status.Delivered; d != nil && d.Decision.Generation >= asked.Generation {
			earlier.State = v1alpha1.StateSucceeded
			return earlier
		}
		earlier.Description, earlier.InstanceUsable, earlier.UpdateRepeatable = "superseded by a later operation", &usable, &usable
		return earlier
	}
	return current
}

func (s *server) operationReply(c *call, o v1alpha1.Operation) *reply {
	r := &reply{status: http.StatusOK, body: lastOperationResponse(o, c.version)}
	if inProgress(o) {
		r.retryAfter = retryAfter(o.StartedAt.Time, s.Clock.Now())
	}
	return r
}
