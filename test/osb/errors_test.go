package osb

import (
	"net/http"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Service broker errors", func() {
	entries := map[string]struct {
		request request
		status  int
	}{
		"no such route":            {request{method: http.MethodGet, path: []string{"no-such-route"}}, http.StatusNotFound},
		"no such route below one":  {request{method: http.MethodGet, path: []string{"catalog", "more"}}, http.StatusNotFound},
		"no such method":           {request{method: http.MethodDelete, path: []string{"catalog"}}, http.StatusMethodNotAllowed},
		"POST to an instance":      {request{method: http.MethodPost, path: []string{"service_instances", "a"}}, http.StatusMethodNotAllowed},
		"no such instance":         {request{method: http.MethodGet, path: []string{"service_instances", "absent"}}, http.StatusNotFound},
		"no such last operation":   {request{method: http.MethodGet, path: []string{"service_instances", "absent", "last_operation"}}, http.StatusNotFound},
		"no such binding":          {request{method: http.MethodGet, path: []string{"service_instances", "absent", "service_bindings", "absent"}}, http.StatusNotFound},
		"provision without a body": {request{method: http.MethodPut, path: []string{"service_instances", "absent"}, query: async()}, http.StatusBadRequest},
	}
	for _, name := range sortedKeys(entries) {
		entry := entries[name]
		clause("H5", "an error is a JSON object with a description for the user ("+name+")", func(ctx SpecContext) {
			target.platform.do(ctx, entry.request).mustRefuse("", entry.status)
		})
	}

	clause("H5", "a method that a URL does not have is refused with those that it has", func(ctx SpecContext) {
		beyondTheSpec("RFC 9110, section 15.5.6")
		refused := target.platform.do(ctx, request{method: http.MethodPost, path: []string{"catalog"}})
		refused.mustRefuse("", http.StatusMethodNotAllowed)
		Expect(refused.header.Get("Allow")).To(ContainSubstring(http.MethodGet))
	})

	clause("H5", "HEAD is answered as GET is, without a body", func(ctx SpecContext) {
		beyondTheSpec("RFC 9110, section 9.3.2")
		answer := target.platform.do(ctx, request{method: http.MethodHead, path: []string{"catalog"}})
		Expect(answer.status).To(Equal(http.StatusOK), answer.String)
		Expect(answer.body).To(BeEmpty())
	})

	clause("H5", "an empty instance id is an error and no redirect", func(ctx SpecContext) {
		for _, path := range [][]string{{"service_instances", ""}, {"service_instances", "", "last_operation"}} {
			target.platform.do(ctx, request{method: http.MethodGet, path: path}).
				mustRefuse("", http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed)
		}
	})

	clause("H5", "errors with a code have the description that clients in the field match", func(ctx SpecContext) {
		beyondTheSpec("Service Catalog's client matches the description word by word")
		i := newInstance()
		refused := i.do(ctx, request{method: http.MethodPut, path: i.path(), body: i.body()})
		refused.mustRefuse("AsyncRequired", http.StatusUnprocessableEntity)
		Expect(refused.object()).To(HaveKeyWithValue("description",
			"This service plan requires client support for asynchronous service operations."))
		pending, _ := pendingInstance(ctx)
		refused = pending.patch(ctx, with("plan_id", target.otherPlan.ID))
		refused.mustRefuse("ConcurrencyError", http.StatusUnprocessableEntity)
		Expect(refused.object()).To(HaveKeyWithValue("description",
			"The Service Broker does not support concurrent requests that mutate the same resource."))
	})
})

var _ = Describe("Failed operations", func() {
	fail := func(ctx SpecContext) (*instance, response) {
		GinkgoHelper()
		need(target.failing != nil, "an update that fails: OSB_FAILING_UPDATE_PARAMETERS")
		i := provisionedInstance(ctx)
		answer := i.patch(ctx, with("plan_id", target.failingPlanID), with("parameters", target.failing))
		answer.mustBe(http.StatusAccepted)
		last := i.finished(ctx, answer.operation())
		Expect(last.object()).To(HaveKeyWithValue("state", failed), last.String)
		return i, last
	}

	clause("H6", "a failed update says why, whether the instance is usable and whether the update may be repeated", func(ctx SpecContext) {
		_, last := fail(ctx)
		Expect(last.object()).To(And(
			HaveKeyWithValue("description", And(BeAssignableToTypeOf(""), Not(BeEmpty()))),
			HaveKeyWithValue("instance_usable", BeAssignableToTypeOf(true)),
			HaveKeyWithValue("update_repeatable", BeAssignableToTypeOf(true)),
		), last.String)
	})

	clause("H6", "an instance that a failed update left usable is as it was before, and can be bound", func(ctx SpecContext) {
		i, last := fail(ctx)
		if last.object()["instance_usable"] != true {
			return
		}
		fetched := i.get(ctx)
		fetched.mustBe(http.StatusOK)
		Expect(fetched.object()).To(HaveKeyWithValue("plan_id", i.planID), fetched.String)
		i.bind(ctx)
	})

	clause("H6", "a failed update that may be repeated is carried out again when it is", func(ctx SpecContext) {
		i, last := fail(ctx)
		if last.object()["update_repeatable"] != true {
			return
		}
		again := i.patch(ctx, with("plan_id", target.failingPlanID), with("parameters", target.failing))
		again.mustBe(http.StatusAccepted)
		i.finished(ctx, again.operation())
		i.update(ctx, with("plan_id", target.otherPlan.ID))
		i.planID = target.otherPlan.ID
	})

	clause("H6", "the two flags are for failed updates and deprovisions only", func(ctx SpecContext) {
		i := newInstance()
		answer := i.provision(ctx)
		for _, operation := range []string{answer.operation(), ""} {
			Expect(i.lastOperation(ctx, operation).object()).NotTo(Or(HaveKey("instance_usable"), HaveKey("update_repeatable")))
		}
	})

	clause("H6", "clients older than 2.16 do not see the two flags", func(ctx SpecContext) {
		beyondTheSpec("clients SHOULD ignore fields they do not know, and some do not")
		i, _ := fail(ctx)
		i.platform.version = "2.15"
		Expect(newerFields(i.lastOperation(ctx, "").object(), failedFieldsSince, "2.15")).To(BeEmpty())
	})
})

var _ = Describe("Refused requests", func() {
	clause("H7", "an update that is refused applies nothing of itself", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		before := i.get(ctx).object()
		change := with("plan_id", target.otherPlan.ID)
		for name, edits := range map[string][]edit{
			"unknown service":     {change, with("service_id", "no-such-service")},
			"no service":          {change, without("service_id")},
			"unknown plan":        {with("plan_id", "no-such-plan")},
			"invalid parameters":  {change, with("parameters", target.invalidParameters)},
			"maintenance version": {change, with("maintenance_info", object{"version": "999.9.9"})},
		} {
			By(name)
			i.patch(ctx, edits...).mustRefuseAsUser()
			Expect(i.get(ctx).object()).To(Equal(before), name)
		}
		Expect(i.lastOperation(ctx, "").object()).To(HaveKeyWithValue("state", succeeded))
	})

	clause("H7", "parameters that the plan does not take are refused with 400 and change nothing", func(ctx SpecContext) {
		i := newInstance()
		i.put(ctx, with("parameters", target.invalidParameters)).mustRefuse("", http.StatusBadRequest)
		i.mustNotExist(ctx)
	})

	clause("H7", "a deletion that is refused deletes nothing", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		b, _ := i.bind(ctx)
		for name, query := range map[string]url.Values{
			"no ids":            {"accepts_incomplete": {"true"}},
			"no plan":           {"accepts_incomplete": {"true"}, "service_id": {i.serviceID}},
			"no service":        {"accepts_incomplete": {"true"}, "plan_id": {i.planID}},
			"empty ids":         {"accepts_incomplete": {"true"}, "service_id": {""}, "plan_id": {""}},
			"another service's": {"accepts_incomplete": {"true"}, "service_id": {"no-such-service"}, "plan_id": {i.planID}},
		} {
			By(name)
			i.do(ctx, request{method: http.MethodDelete, path: b.path(), query: query}).mustRefuse("", http.StatusBadRequest)
			i.do(ctx, request{method: http.MethodDelete, path: i.path(), query: query}).mustRefuse("", http.StatusBadRequest)
		}
		b.put(ctx).mustBe(http.StatusOK)
		i.put(ctx).mustBe(http.StatusOK)
	})
})
