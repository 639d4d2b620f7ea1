package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// unbind answers DELETE /v2/service_instances/:id/service_bindings/:id (OSB 2.17,
// "Unbinding"). It answers once the credentials are revoked, if that is possible in time.
func (s *server) unbind(c *call) (*reply, error) {
	async, err := c.acceptsIncomplete()
	if err != nil {
		return nil, err
	}
	serviceID, planID, err := c.ids()
	if err != nil {
		return nil, err
	}
	b, err := s.findBinding(c, c.bindingID)
	switch {
	case err != nil:
		return nil, err
	case b == nil:
		return nil, errGone
	case b.Spec.ServiceID != serviceID:
		return nil, badRequest("service_id: is not the service offering of the binding.")
	}
	c.hint(planID, b.Spec.PlanID)
	c.due = time.Now().Add(s.BindTimeout)
	if b.DeletionTimestamp == nil {
		if err := s.delete(c, b); err != nil {
			return nil, err
		}
		if plan, err := s.Catalog.Snapshot().Plan(b.Spec.ServiceID, b.Spec.PlanID); err == nil {
			s.metrics.accepted(plan, v1alpha1.OperationUnbind)
		}
	}
	return s.finishUnbind(c, b, async)
}

// finishUnbind waits until a binding is gone and answers.
func (s *server) finishUnbind(c *call, b *v1alpha1.ServiceBinding, async bool) (*reply, error) {
	uid := b.UID
	_, err := s.awaitBinding(c, b, async, func(*v1alpha1.ServiceBinding) bool { return false })
	switch {
	case errors.Is(err, errDeleted):
		return &reply{status: http.StatusOK, body: emptyBody{}}, nil
	case c.Context().Err() != nil:
		return nil, c.Context().Err()
	case !errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("wait for the end of binding %s: %w", b.Name, err)
	}
	// The deletion made a new generation, which names the operation.
	latest, err := s.findBinding(c, c.bindingID)
	switch {
	case err != nil:
		return nil, err
	case latest == nil, latest.UID != uid:
		return &reply{status: http.StatusOK, body: emptyBody{}}, nil
	case async:
		return &reply{status: http.StatusAccepted, body: operationBody{s.token(latest, bindingOperation(latest))}}, nil
	}
	return nil, &Error{Status: http.StatusInternalServerError, Code: codeOperationFailed,
		Description: "The credentials are still being revoked; the same request can safely be repeated until they are" + because(latest) + "."}
}
