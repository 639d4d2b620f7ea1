package osbclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Order is an instance as it is ordered: the body of a provision.
type Order struct {
	ServiceID        string           `json:"service_id"`
	PlanID           string           `json:"plan_id"`
	Context          json.RawMessage  `json:"context,omitempty"`
	OrganizationGUID string           `json:"organization_guid"`
	SpaceGUID        string           `json:"space_guid"`
	Parameters       json.RawMessage  `json:"parameters,omitempty"`
	MaintenanceInfo  *MaintenanceInfo `json:"maintenance_info,omitempty"`
	// Identity of the end user; nil sends none.
	Identity *v1alpha1.OriginatingIdentity `json:"-"`
	// Via lists the ids of the hubs that the order has come through, the caller's own last.
	Via []string `json:"-"`
}

// Change of an instance: the body of an update.
type Change struct {
	ServiceID       string           `json:"service_id"`
	PlanID          string           `json:"plan_id,omitempty"`
	Context         json.RawMessage  `json:"context,omitempty"`
	Parameters      json.RawMessage  `json:"parameters,omitempty"`
	MaintenanceInfo *MaintenanceInfo `json:"maintenance_info,omitempty"`
	PreviousValues  PreviousValues   `json:"previous_values"`
	// Identity of the end user; nil sends none.
	Identity *v1alpha1.OriginatingIdentity `json:"-"`
}

// PreviousValues of an instance that is updated.
type PreviousValues struct {
	PlanID          string           `json:"plan_id,omitempty"`
	MaintenanceInfo *MaintenanceInfo `json:"maintenance_info,omitempty"`
}

// Accepted is the answer to a request that the broker carries out, or has carried out.
type Accepted struct {
	// Done means that it has been carried out.
	Done bool
	// Operation to poll if it is not done.
	Operation string
	// RetryAfter is the time to wait before the first poll; zero if the broker gives none.
	RetryAfter time.Duration
	// Dashboard of the instance; nil if the broker says nothing of it.
	Dashboard *v1alpha1.UpstreamDashboard
}

// State of an operation.
type State string

// States of operations (OSB 2.17, "Polling Last Operation").
const (
	InProgress State = "in progress"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
)

// Operation is the answer to a poll.
type Operation struct {
	State            State  `json:"state"`
	Description      string `json:"description"`
	InstanceUsable   *bool  `json:"instance_usable"`
	UpdateRepeatable *bool  `json:"update_repeatable"`
	// Gone means that the broker does not know the instance or binding any more (410).
	Gone bool `json:"-"`
	// RetryAfter is the time to wait before the next poll; zero if the broker gives none.
	RetryAfter time.Duration `json:"-"`
}

// Reason returns why the operation failed, as the broker says.
func (o Operation) Reason() string { return cmp.Or(o.Description, "the broker gives no reason") }

func instancePath(id string, further ...string) []string {
	return append([]string{"service_instances", url.PathEscape(id)}, further...)
}

// asynchronous is the query of requests whose answers may be 202.
func asynchronous(may bool) url.Values {
	if !may {
		return url.Values{}
	}
	return url.Values{"accepts_incomplete": {"true"}}
}

// Provision orders an instance. It may be repeated with the same order: the broker then answers what has
// become of the first. The error is an *Error.
func (c *Client) Provision(ctx context.Context, instance string, order Order) (Accepted, error) {
	got, err := c.send(ctx, request{
		what: "provision", method: http.MethodPut, path: instancePath(instance), query: asynchronous(true), body: order, identity: order.Identity,
		header: via(order.Via),
	}, http.StatusOK, http.StatusCreated, http.StatusAccepted)
	if err != nil {
		return Accepted{}, err
	}
	return c.withDashboard(got, "provision")
}

// Update changes an instance. It may be repeated. The error is an *Error.
func (c *Client) Update(ctx context.Context, instance string, change Change) (Accepted, error) {
	got, err := c.send(ctx, request{
		what: "update", method: http.MethodPatch, path: instancePath(instance), query: asynchronous(true), body: change, identity: change.Identity,
	}, http.StatusOK, http.StatusAccepted)
	if err != nil {
		return Accepted{}, err
	}
	return c.withDashboard(got, "update")
}

// Deprovision deletes an instance. It may be repeated, and is done if there is none. The error is an *Error.
func (c *Client) Deprovision(ctx context.Context, instance, serviceID, planID string, identity *v1alpha1.OriginatingIdentity) (Accepted, error) {
	return c.remove(ctx, request{what: "deprovision", path: instancePath(instance), identity: identity}, serviceID, planID, true)
}

func (c *Client) remove(ctx context.Context, r request, serviceID, planID string, async bool) (Accepted, error) {
	r.method, r.query = http.MethodDelete, asynchronous(async)
	r.query.Set("service_id", serviceID)
	r.query.Set("plan_id", planID)
	got, err := c.send(ctx, r, http.StatusOK, http.StatusAccepted, http.StatusGone)
	if err != nil {
		return Accepted{}, err
	}
	if got.status == http.StatusGone {
		return Accepted{Done: true}, nil
	}
	return got.accepted(r.what)
}

func (a *answer) accepted(what string) (Accepted, error) {
	var said struct {
		Operation string `json:"operation"`
	}
	if err := a.read(what, &said); err != nil {
		return Accepted{}, err
	}
	if len(said.Operation) > maxOperation {
		return Accepted{}, &Error{Request: what, Status: a.status, Malformed: true, Err: fmt.Errorf("operation: is longer than %d bytes", maxOperation)}
	}
	return Accepted{Done: a.status != http.StatusAccepted, Operation: said.Operation, RetryAfter: a.retryAfter}, nil
}

// LastOperation polls an operation of an instance. The error is an *Error.
func (c *Client) LastOperation(ctx context.Context, instance, serviceID, planID, operation string) (Operation, error) {
	return c.poll(ctx, instancePath(instance, "last_operation"), serviceID, planID, operation)
}

func (c *Client) poll(ctx context.Context, path []string, serviceID, planID, operation string) (Operation, error) {
	r := request{what: "poll the operation", method: http.MethodGet, path: path, query: url.Values{"service_id": {serviceID}, "plan_id": {planID}}}
	if operation != "" {
		r.query.Set("operation", operation)
	}
	got, err := c.send(ctx, r, http.StatusOK, http.StatusGone)
	if err != nil {
		return Operation{}, err
	}
	if got.status == http.StatusGone {
		return Operation{State: Succeeded, Gone: true}, nil
	}
	polled := Operation{RetryAfter: got.retryAfter}
	if err := got.read(r.what, &polled); err != nil {
		return Operation{}, err
	}
	polled.Description = Printable(polled.Description)
	switch polled.State {
	case InProgress, Succeeded, Failed:
		return polled, nil
	}
	return Operation{}, &Error{
		Request: r.what, Status: got.status, Malformed: true, Err: fmt.Errorf("state: %q is none of in progress, succeeded and failed", Printable(string(polled.State))),
	}
}

// Instance as its broker shows it.
type Instance struct {
	ServiceID       string           `json:"service_id"`
	PlanID          string           `json:"plan_id"`
	DashboardURL    string           `json:"dashboard_url"`
	Parameters      json.RawMessage  `json:"parameters"`
	MaintenanceInfo *MaintenanceInfo `json:"maintenance_info"`
	Metadata        struct {
		Attributes map[string]any `json:"attributes"`
	} `json:"metadata"`
}

// FetchInstance returns an instance. Its service has to make instances retrievable; an instance that is being
// provisioned is not found. serviceID and planID may be empty. The error is an *Error.
func (c *Client) FetchInstance(ctx context.Context, instance, serviceID, planID string) (*Instance, error) {
	r := request{what: "fetch the instance", method: http.MethodGet, path: instancePath(instance), query: url.Values{}}
	for name, id := range map[string]string{"service_id": serviceID, "plan_id": planID} {
		if id != "" {
			r.query.Set(name, id)
		}
	}
	got, err := c.send(ctx, r, http.StatusOK)
	if err != nil {
		return nil, err
	}
	fetched := &Instance{}
	return fetched, got.read(r.what, fetched)
}

// Exists reports whether the broker has an instance: false only if it says so. Its service has to be
// retrievable. The error is an *Error.
func (c *Client) Exists(ctx context.Context, instance, serviceID, planID string) (bool, error) {
	_, err := c.FetchInstance(ctx, instance, serviceID, planID)
	if answer := (*Error)(nil); errors.As(err, &answer) {
		switch answer.Status {
		case http.StatusNotFound:
			return false, nil
		case http.StatusOK, http.StatusUnprocessableEntity: // a body that is not OSB, and an update in progress
			return true, nil
		}
	}
	return err == nil, err
}
