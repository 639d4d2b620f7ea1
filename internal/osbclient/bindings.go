package osbclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// maxEndpoints of a binding.
const maxEndpoints = 256

// BindOrder is a binding as it is ordered: the body of a bind, or of a rotation.
type BindOrder struct {
	ServiceID            string          `json:"service_id"`
	PlanID               string          `json:"plan_id"`
	Context              json.RawMessage `json:"context,omitempty"`
	AppGUID              string          `json:"app_guid,omitempty"`
	BindResource         json.RawMessage `json:"bind_resource,omitempty"`
	Parameters           json.RawMessage `json:"parameters,omitempty"`
	PredecessorBindingID string          `json:"predecessor_binding_id,omitempty"`
	// Identity of the end user; nil sends none.
	Identity *v1alpha1.OriginatingIdentity `json:"-"`
}

// Binding holds what a broker gives to an application.
type Binding struct {
	// Credentials is a JSON object; empty if the broker gives none.
	Credentials seal.Redacted
	Endpoints   []v1alpha1.Endpoint
	// ExpiresAt and RenewBefore are zero if the broker does not give them.
	ExpiresAt, RenewBefore time.Time
}

// Bind orders a binding. It may be repeated with the same order. async allows the broker to answer before it
// is done; then the binding has to be fetched, and is nil. The error is an *Error.
func (c *Client) Bind(ctx context.Context, instance, binding string, order BindOrder, async bool) (*Binding, Accepted, error) {
	const what = "bind"
	got, err := c.send(ctx, request{
		what: what, method: http.MethodPut, path: bindingPath(instance, binding), query: asynchronous(async), body: order, identity: order.Identity,
	}, http.StatusOK, http.StatusCreated, http.StatusAccepted)
	if err != nil {
		return nil, Accepted{}, err
	}
	accepted, err := got.accepted(what)
	if err != nil || !accepted.Done {
		return nil, accepted, err
	}
	bound, err := got.binding(what)
	return bound, accepted, err
}

func bindingPath(instance, binding string, further ...string) []string {
	return instancePath(instance, append([]string{"service_bindings", url.PathEscape(binding)}, further...)...)
}

// FetchBinding returns a binding whose bind is done. Its service has to make bindings retrievable. The error
// is an *Error.
func (c *Client) FetchBinding(ctx context.Context, instance, binding, serviceID, planID string) (*Binding, error) {
	const what = "fetch the binding"
	got, err := c.send(ctx, request{
		what: what, method: http.MethodGet, path: bindingPath(instance, binding), query: url.Values{"service_id": {serviceID}, "plan_id": {planID}},
	}, http.StatusOK)
	if err != nil {
		return nil, err
	}
	return got.binding(what)
}

// BindingLastOperation polls an operation of a binding. The error is an *Error.
func (c *Client) BindingLastOperation(ctx context.Context, instance, binding, serviceID, planID, operation string) (Operation, error) {
	return c.poll(ctx, bindingPath(instance, binding, "last_operation"), serviceID, planID, operation)
}

// Unbind deletes a binding. It may be repeated, and is done if there is none. The error is an *Error.
func (c *Client) Unbind(ctx context.Context, instance, binding, serviceID, planID string, identity *v1alpha1.OriginatingIdentity, async bool) (Accepted, error) {
	return c.remove(ctx, request{what: "unbind", path: bindingPath(instance, binding), identity: identity}, serviceID, planID, async)
}

func (a *answer) binding(what string) (*Binding, error) {
	var said struct {
		Credentials json.RawMessage     `json:"credentials"`
		Endpoints   []v1alpha1.Endpoint `json:"endpoints"`
		Metadata    struct {
			ExpiresAt   string `json:"expires_at"`
			RenewBefore string `json:"renew_before"`
		} `json:"metadata"`
	}
	if err := a.read(what, &said); err != nil {
		return nil, err
	}
	malformed := func(err error) (*Binding, error) {
		return nil, &Error{Request: what, Status: a.status, Malformed: true, Err: err}
	}
	bound := &Binding{Endpoints: said.Endpoints}
	if len(said.Credentials) > 0 && string(said.Credentials) != "null" {
		if said.Credentials[0] != '{' {
			return malformed(fmt.Errorf("credentials: want an object"))
		}
		bound.Credentials = seal.Redact(said.Credentials)
	}
	if err := checkEndpoints(bound.Endpoints); err != nil {
		return malformed(err)
	}
	for name, one := range map[string]struct {
		said string
		into *time.Time
	}{
		"expires_at": {said.Metadata.ExpiresAt, &bound.ExpiresAt}, "renew_before": {said.Metadata.RenewBefore, &bound.RenewBefore},
	} {
		if one.said == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, one.said)
		if err != nil {
			return malformed(fmt.Errorf("metadata.%s: is no time such as 2006-01-02T15:04:05.0Z", name))
		}
		*one.into = at
	}
	return bound, nil
}

// checkEndpoints checks endpoints by OSB 2.17, "Endpoint Object", and completes their protocol.
func checkEndpoints(endpoints []v1alpha1.Endpoint) error {
	if len(endpoints) > maxEndpoints {
		return fmt.Errorf("endpoints: more than %d", maxEndpoints)
	}
	for i := range endpoints {
		e := &endpoints[i]
		if e.Protocol == "" {
			e.Protocol = "tcp"
		}
		known := e.Protocol == "tcp" || e.Protocol == "udp" || e.Protocol == "all"
		if e.Host == "" || len(e.Host) > maxID || Printable(e.Host) != e.Host || len(e.Ports) == 0 || len(e.Ports) > maxEndpoints || !known {
			return fmt.Errorf("endpoints[%d]: want a host, ports, and tcp, udp or all", i)
		}
		for _, port := range e.Ports {
			if port == "" || len(port) > len("65535-65535") {
				return fmt.Errorf("endpoints[%d]: %q is no port and no range", i, Printable(port))
			}
		}
	}
	return nil
}
