package broker

import (
	"net/http"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// fetchBinding answers GET /v2/service_instances/:id/service_bindings/:id (OSB 2.17,
// "Fetching a Service Binding"). It renews credentials that are past half of their
// lifetime.
func (s *server) fetchBinding(c *call) (*reply, error) {
	b, err := s.findBinding(c, c.bindingID)
	switch {
	case err != nil:
		return nil, err
	case b == nil, b.DeletionTimestamp != nil, bindingOperation(b).State != v1alpha1.StateSucceeded:
		return nil, errNoBinding
	}
	if b = s.renewed(c, b); b.DeletionTimestamp != nil {
		return nil, errNoBinding
	}
	body, err := s.bindingBody(b, c.version)
	if err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, body: fetchedBindingBody{bindingBody: body, Parameters: s.shownOf(b)}}, nil
}
