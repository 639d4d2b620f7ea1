package osb

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// edit changes the body of a request before it is sent.
type edit func(object)

func with(field string, value any) edit { return func(body object) { body[field] = value } }

func without(field string) edit { return func(body object) { delete(body, field) } }

// instance is a service instance that a spec asks for.
type instance struct {
	platform  platform
	id        string
	serviceID string
	planID    string
	bindings  []*binding // that the spec asked for
}

// newInstance is an id that nobody has used. Whatever the broker makes of it is
// deleted, with its bindings, when the spec ends.
func newInstance() *instance { return newInstanceOf(target.platform, "osb-conformance-"+rand.Text()) }

func newInstanceOf(p platform, id string) *instance {
	i := &instance{platform: p, id: id, serviceID: target.service.ID, planID: target.plan.ID}
	DeferCleanup(i.remove)
	return i
}

// provisionedInstance is ready for use.
func provisionedInstance(ctx context.Context, edits ...edit) *instance {
	GinkgoHelper()
	i := newInstance()
	i.provision(ctx, edits...)
	return i
}

// pendingInstance is being provisioned for as long as the spec runs; the response is
// that of the PUT.
func pendingInstance(ctx context.Context) (*instance, response) {
	GinkgoHelper()
	need(target.pending != nil, "a provision that stays in progress: OSB_PENDING_PARAMETERS")
	i := newInstance()
	i.planID = target.pendingPlanID
	answer := i.put(ctx, with("parameters", target.pending))
	answer.mustBe(http.StatusAccepted)
	return i, answer
}

// body of a complete and valid PUT.
func (i *instance) body(edits ...edit) object {
	body := object{
		"service_id": i.serviceID, "plan_id": i.planID,
		"organization_guid": "org-guid", "space_guid": "space-guid",
		"context": object{
			"platform": "cloudfoundry", "organization_guid": "org-guid", "space_guid": "space-guid", "instance_name": "conformance",
		},
	}
	if target.parameters != nil {
		body["parameters"] = maps.Clone(target.parameters)
	}
	for _, edit := range edits {
		edit(body)
	}
	return body
}

func (i *instance) path(rest ...string) []string {
	return append([]string{"service_instances", i.id}, rest...)
}

func async() url.Values { return url.Values{"accepts_incomplete": {"true"}} }

func (i *instance) do(ctx context.Context, r request) response {
	GinkgoHelper()
	return i.platform.do(ctx, r)
}

func (i *instance) put(ctx context.Context, edits ...edit) response {
	GinkgoHelper()
	return i.send(ctx, http.MethodPut, i.body(edits...))
}

func (i *instance) patch(ctx context.Context, edits ...edit) response {
	GinkgoHelper()
	body := object{"service_id": i.serviceID}
	for _, edit := range edits {
		edit(body)
	}
	return i.send(ctx, http.MethodPatch, body)
}

func (i *instance) send(ctx context.Context, method string, body any) response {
	GinkgoHelper()
	return i.do(ctx, request{method: method, path: i.path(), query: async(), body: body})
}

func (i *instance) get(ctx context.Context) response {
	GinkgoHelper()
	return i.do(ctx, request{method: http.MethodGet, path: i.path()})
}

func (i *instance) delete(ctx context.Context) response {
	GinkgoHelper()
	return i.do(ctx, request{method: http.MethodDelete, path: i.path(), query: i.deletion()})
}

func (i *instance) deletion() url.Values {
	return url.Values{"service_id": {i.serviceID}, "plan_id": {i.planID}, "accepts_incomplete": {"true"}}
}

// lastOperation polls for the operation of an earlier answer, as a platform does.
func (i *instance) lastOperation(ctx context.Context, operation string) response {
	GinkgoHelper()
	return i.do(ctx, request{method: http.MethodGet, path: i.path("last_operation"), query: i.poll(operation)})
}

func (i *instance) poll(operation string) url.Values {
	query := url.Values{"service_id": {i.serviceID}, "plan_id": {i.planID}}
	if operation != "" {
		query.Set("operation", operation)
	}
	return query
}

// provision waits until the instance is ready.
func (i *instance) provision(ctx context.Context, edits ...edit) response {
	GinkgoHelper()
	answer := i.put(ctx, edits...)
	answer.mustBe(http.StatusCreated, http.StatusAccepted)
	i.mustSucceed(ctx, answer)
	return answer
}

// update waits until the update has been carried out.
func (i *instance) update(ctx context.Context, edits ...edit) {
	GinkgoHelper()
	answer := i.patch(ctx, edits...)
	answer.mustBe(http.StatusOK, http.StatusAccepted)
	i.mustSucceed(ctx, answer)
}

func (i *instance) mustSucceed(ctx context.Context, answer response) {
	GinkgoHelper()
	if answer.status == http.StatusAccepted {
		last := i.finished(ctx, answer.operation())
		var state operationState
		last.decode(&state)
		Expect(state.State).To(Equal(succeeded), last.String)
	}
}

// finished polls until the operation is no longer in progress.
func (i *instance) finished(ctx context.Context, operation string) response {
	GinkgoHelper()
	return finished(ctx, func() response { return i.lastOperation(ctx, operation) })
}

func finished(ctx context.Context, poll func() response) response {
	GinkgoHelper()
	var last response
	Eventually(func(g Gomega) {
		last = poll()
		g.Expect(last.status).To(Equal(http.StatusOK), last.String)
		var state operationState
		last.decode(&state)
		g.Expect(state.State).To(BeElementOf(succeeded, failed), last.String)
	}).WithContext(ctx).Should(Succeed())
	return last
}

// isInProgress says whether the broker still carries out the operation.
func (i *instance) isInProgress(ctx context.Context, operation string) bool {
	GinkgoHelper()
	last := i.lastOperation(ctx, operation)
	var state operationState
	if last.status == http.StatusOK {
		last.decode(&state)
	}
	return state.State == inProgress
}

// mustNotExist checks that a refused PUT has left nothing behind.
func (i *instance) mustNotExist(ctx context.Context) {
	GinkgoHelper()
	if target.service.InstancesRetrievable {
		i.get(ctx).mustRefuse("", http.StatusNotFound)
	}
	i.delete(ctx).mustBe(http.StatusGone)
}

// remove deletes what the broker has of the instance and waits until it is gone. A
// DELETE may be repeated at any time: OSB 2.17, "Orphan Mitigation".
func (i *instance) remove(ctx context.Context) {
	for _, b := range slices.Backward(i.bindings) {
		b.untilGone(ctx)
	}
	untilGone(ctx, fmt.Sprintf("instance %q", i.id), func(planID string) response {
		i.planID = planID
		return i.delete(ctx)
	}, i.planID)
}

// untilGone repeats a DELETE until it is answered 410. After a spec that failed
// nobody knows which plan the instance is of: another one is tried after a 400.
func untilGone(ctx context.Context, what string, remove func(planID string) response, planID string) {
	plans := []string{planID, target.plan.ID, target.otherPlan.ID}
	Eventually(func(g Gomega) {
		answer := remove(plans[0])
		if answer.status == http.StatusBadRequest {
			plans = append(plans[1:], plans[0])
		}
		g.Expect(answer.status).To(Equal(http.StatusGone), answer.String)
	}).WithContext(ctx).Should(Succeed(), "delete "+what)
}
