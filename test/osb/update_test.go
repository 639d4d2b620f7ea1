package osb

import (
	"net/http"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Updating a service instance", func() {
	// changePlan is the update that most specs here send.
	changePlan := func() edit {
		GinkgoHelper()
		need(target.service.updateable(&target.plan) && target.otherPlan.ID != "", "a plan that can be changed to another")
		return with("plan_id", target.otherPlan.ID)
	}

	clause("U1", "a plan change is carried out", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		i.update(ctx, changePlan(), with("previous_values", object{"plan_id": i.planID, "service_id": i.serviceID}))
		i.planID = target.otherPlan.ID
		Expect(i.get(ctx).object()).To(HaveKeyWithValue("plan_id", i.planID))
		i.put(ctx).mustBe(http.StatusOK)
		i.put(ctx, with("plan_id", target.plan.ID)).mustRefuse("", http.StatusConflict)
	})

	clause("U1", "parameters are changed, and the plan is not when it is absent", func(ctx SpecContext) {
		need(target.otherParameters != nil, "other valid parameters: OSB_OTHER_PARAMETERS")
		i := provisionedInstance(ctx)
		i.update(ctx, with("parameters", target.otherParameters))
		Expect(i.get(ctx).object()).To(And(
			HaveKeyWithValue("plan_id", i.planID),
			HaveKeyWithValue("parameters", target.otherParameters),
		))
	})

	clause("U1", "parameters are not changed when they are absent", func(ctx SpecContext) {
		need(target.otherParameters != nil, "other valid parameters: OSB_OTHER_PARAMETERS")
		i := provisionedInstance(ctx, with("parameters", target.otherParameters))
		i.update(ctx, changePlan())
		i.planID = target.otherPlan.ID
		Expect(i.get(ctx).object()).To(And(
			HaveKeyWithValue("plan_id", i.planID),
			HaveKeyWithValue("parameters", target.otherParameters),
		))
	})

	clause("U1", "an update that changes nothing is answered 200, or 202 and then succeeds", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		before := i.get(ctx).object()
		i.update(ctx)
		i.update(ctx, with("plan_id", i.planID))
		Expect(i.get(ctx).object()).To(Equal(before))
	})

	invalid := map[string]edit{
		"no service_id":      without("service_id"),
		"empty service_id":   with("service_id", ""),
		"unknown service_id": with("service_id", "no-such-service"),
		"empty plan_id":      with("plan_id", ""),
		"unknown plan_id":    with("plan_id", "no-such-plan"),
	}
	clauses("U1", "an update needs the service's id, and a plan of that service if any", invalid, func(ctx SpecContext, e edit) {
		i := provisionedInstance(ctx)
		before := i.get(ctx).object()
		i.patch(ctx, changePlan(), e).mustRefuse("", http.StatusBadRequest)
		Expect(i.get(ctx).object()).To(Equal(before))
	})

	clause("U1", "parameters that the plan does not take are refused", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		i.patch(ctx, with("parameters", target.invalidParameters)).mustRefuse("", http.StatusBadRequest)
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("U1", "a plan that says so cannot be changed", func(ctx SpecContext) {
		for _, fixed := range target.service.Plans {
			if target.service.updateable(&fixed) {
				continue
			}
			i := newInstance()
			i.planID = fixed.ID
			i.provision(ctx)
			i.patch(ctx, with("plan_id", target.plan.ID)).mustRefuse("", http.StatusBadRequest, http.StatusUnprocessableEntity)
			i.put(ctx).mustBe(http.StatusOK)
		}
	})

	clause("U1", "an instance that is not there cannot be updated", func(ctx SpecContext) {
		newInstance().patch(ctx, changePlan()).mustRefuse("", http.StatusNotFound, http.StatusBadRequest)
	})

	for name, query := range map[string]url.Values{"absent": {}, "false": {"accepts_incomplete": {"false"}}} {
		clause("U1", "an update that takes time is refused with AsyncRequired where accepts_incomplete is "+name, func(ctx SpecContext) {
			i := provisionedInstance(ctx)
			before := i.get(ctx).object()
			change := object{"service_id": i.serviceID}
			changePlan()(change)
			answer := i.do(ctx, request{method: http.MethodPatch, path: i.path(), query: query, body: change})
			if answer.status == http.StatusOK {
				i.planID = target.otherPlan.ID
			}
			need(answer.status != http.StatusOK, "a plan that is changed asynchronously")
			answer.mustRefuse("AsyncRequired", http.StatusUnprocessableEntity)
			Expect(i.get(ctx).object()).To(Equal(before))
		})
	}

	clause("U1", "an identical update while in progress is answered 202 with the same operation", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		change := changePlan()
		first := i.patch(ctx, change)
		first.mustBe(http.StatusOK, http.StatusAccepted)
		again := i.patch(ctx, change)
		if first.status == http.StatusAccepted && i.isInProgress(ctx, first.operation()) {
			again.mustBe(http.StatusAccepted)
			Expect(again.operation()).To(Equal(first.operation()))
		}
		i.mustSucceed(ctx, first)
		i.planID = target.otherPlan.ID
		i.update(ctx, change)
	})

	clause("U1", "another update while one is in progress is refused with ConcurrencyError", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		first := i.patch(ctx, changePlan())
		first.mustBe(http.StatusOK, http.StatusAccepted)
		other := i.patch(ctx, with("plan_id", target.plan.ID))
		if first.status == http.StatusAccepted && i.isInProgress(ctx, first.operation()) {
			other.mustRefuse("ConcurrencyError", http.StatusUnprocessableEntity)
			i.mustSucceed(ctx, first)
			Expect(i.get(ctx).object()).To(HaveKeyWithValue("plan_id", target.otherPlan.ID))
			i.planID = target.otherPlan.ID
		}
	})

	clause("U1", "an instance that is being provisioned cannot be updated", func(ctx SpecContext) {
		i, first := pendingInstance(ctx)
		i.patch(ctx, changePlan()).mustRefuse("ConcurrencyError", http.StatusUnprocessableEntity)
		Expect(i.isInProgress(ctx, first.operation())).To(BeTrue())
	})

	clause("U2", "a context without anything else is accepted, at once, and changes nothing that is seen", func(ctx SpecContext) {
		need(target.service.AllowContextUpdates, "allow_context_updates")
		i := provisionedInstance(ctx)
		before := i.get(ctx).object()
		renamed := object{
			"service_id": i.serviceID,
			"context":    object{"platform": "cloudfoundry", "organization_guid": "org-guid", "space_guid": "space-guid", "instance_name": "renamed"},
		}
		i.do(ctx, request{method: http.MethodPatch, path: i.path(), body: renamed}).mustBe(http.StatusOK)
		Expect(i.get(ctx).object()).To(Equal(before))
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("U2", "previous_values are accepted, and not believed", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		i.update(ctx, changePlan(), with("previous_values", object{
			"service_id": "another-service", "plan_id": "another-plan", "organization_id": "o", "space_id": "s",
			"maintenance_info": object{"version": "0.0.1"},
		}))
		i.planID = target.otherPlan.ID
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("U2", "a maintenance_info that is not the plan's is refused with MaintenanceInfoConflict", func(ctx SpecContext) {
		need(target.plan.MaintenanceInfo != nil, "a plan with maintenance_info")
		i := provisionedInstance(ctx)
		before := i.get(ctx).object()
		i.patch(ctx, with("maintenance_info", object{"version": "999.9.9"})).
			mustRefuse("MaintenanceInfoConflict", http.StatusUnprocessableEntity)
		i.patch(ctx, changePlan(), with("maintenance_info", object{"version": "999.9.9"})).
			mustRefuse("MaintenanceInfoConflict", http.StatusUnprocessableEntity)
		Expect(i.get(ctx).object()).To(Equal(before))
	})

	clause("U2", "the plan's maintenance_info is accepted", func(ctx SpecContext) {
		need(target.plan.MaintenanceInfo != nil, "a plan with maintenance_info")
		i := provisionedInstance(ctx)
		i.update(ctx, with("maintenance_info", object{"version": target.plan.MaintenanceInfo.Version}))
		i.put(ctx).mustBe(http.StatusOK)
	})
})
