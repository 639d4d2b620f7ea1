package osb

import (
	"net/http"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// maxOperationLength in characters, OSB 2.17 "Provisioning".
const maxOperationLength = 10_000

var _ = Describe("Provisioning", func() {
	invalid := map[string]edit{
		"no service_id":           without("service_id"),
		"no plan_id":              without("plan_id"),
		"no organization_guid":    without("organization_guid"),
		"no space_guid":           without("space_guid"),
		"empty service_id":        with("service_id", ""),
		"empty plan_id":           with("plan_id", ""),
		"empty organization_guid": with("organization_guid", ""),
		"empty space_guid":        with("space_guid", ""),
		"unknown service_id":      with("service_id", "no-such-service"),
		"unknown plan_id":         with("plan_id", "no-such-plan"),
	}
	clauses("P1", "a provision needs the ids of a service, a plan, an organization and a space", invalid, func(ctx SpecContext, e edit) {
		i := newInstance()
		i.put(ctx, e).mustRefuse("", http.StatusBadRequest)
		i.mustNotExist(ctx)
	})

	clause("P1", "the plan must be one of the service", func(ctx SpecContext) {
		need(target.otherService != nil && len(target.otherService.Plans) > 0, "a catalog with a second service")
		i := newInstance()
		i.put(ctx, with("service_id", target.otherService.ID)).mustRefuse("", http.StatusBadRequest)
		i.put(ctx, with("plan_id", target.otherService.Plans[0].ID)).mustRefuse("", http.StatusBadRequest)
		i.mustNotExist(ctx)
	})

	clause("P2", "a provision is answered 201 when done, or 202 and then succeeds", func(ctx SpecContext) {
		i := newInstance()
		answer := i.put(ctx)
		answer.mustBe(http.StatusCreated, http.StatusAccepted)
		i.mustSucceed(ctx, answer)
	})

	clause("P2", "an identical PUT for a finished instance is answered 200 with the same body", func(ctx SpecContext) {
		i := newInstance()
		first := i.provision(ctx).object()
		delete(first, "operation")
		for range 2 {
			answer := i.put(ctx)
			answer.mustBe(http.StatusOK)
			Expect(answer.object()).To(Equal(first), answer.String)
		}
	})

	clause("P2", "an identical PUT is told by its meaning, not by its spelling", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		spelled := append([]byte(" {\n\t\"unknown\" : 1, \"plan\\u005fid\": "), encode(i.planID)...)
		spelled = append(append(spelled, ','), encode(i.body(without("plan_id")))[1:]...)
		i.send(ctx, http.MethodPut, spelled).mustBe(http.StatusOK)
	})

	clause("P2", "an identical PUT while in progress is answered 202 with the same operation", func(ctx SpecContext) {
		i, first := pendingInstance(ctx)
		for range 2 {
			again := i.put(ctx, with("parameters", target.pending))
			again.mustBe(http.StatusAccepted)
			Expect(again.object()).To(Equal(first.object()))
		}
	})

	clause("P2", "a different PUT for the same id is answered 409 and changes nothing", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		before := i.get(ctx).object()
		for name, e := range map[string]edit{
			"plan":         with("plan_id", target.otherPlan.ID),
			"organization": with("organization_guid", "another-org"),
			"space":        with("space_guid", "another-space"),
		} {
			By(name)
			i.put(ctx, e).mustRefuse("", http.StatusConflict)
			Expect(i.get(ctx).object()).To(Equal(before))
		}
	})

	clause("P2", "a PUT with different parameters for the same id is answered 409", func(ctx SpecContext) {
		need(target.otherParameters != nil, "other valid parameters: OSB_OTHER_PARAMETERS")
		i := provisionedInstance(ctx)
		i.put(ctx, with("parameters", target.otherParameters)).mustRefuse("", http.StatusConflict)
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("P2", "a different PUT while in progress is answered 409", func(ctx SpecContext) {
		i, _ := pendingInstance(ctx)
		i.put(ctx, with("parameters", target.pending), with("space_guid", "another-space")).mustRefuse("", http.StatusConflict)
		i.put(ctx, with("parameters", target.pending)).mustBe(http.StatusAccepted)
	})

	clause("P2", "an id can be used again once its instance is gone", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		i.remove(ctx)
		i.provision(ctx, with("plan_id", target.otherPlan.ID))
		i.planID = target.otherPlan.ID
		Expect(i.get(ctx).object()).To(HaveKeyWithValue("plan_id", i.planID))
	})

	for name, query := range map[string]url.Values{"absent": {}, "false": {"accepts_incomplete": {"false"}}} {
		clause("P3", "a provision that takes time is refused with AsyncRequired where accepts_incomplete is "+name, func(ctx SpecContext) {
			i := newInstance()
			answer := i.do(ctx, request{method: http.MethodPut, path: i.path(), query: query, body: i.body()})
			need(answer.status != http.StatusCreated, "a plan that is provisioned asynchronously")
			answer.mustRefuse("AsyncRequired", http.StatusUnprocessableEntity)
			i.mustNotExist(ctx)
		})
	}

	clause("P3", "a maintenance_info that is not the plan's is refused with MaintenanceInfoConflict", func(ctx SpecContext) {
		need(target.plan.MaintenanceInfo != nil, "a plan with maintenance_info")
		i := newInstance()
		i.put(ctx, with("maintenance_info", object{"version": "999.9.9"})).
			mustRefuse("MaintenanceInfoConflict", http.StatusUnprocessableEntity)
		i.mustNotExist(ctx)
	})

	clause("P3", "the plan's maintenance_info is accepted, and an empty one means none", func(ctx SpecContext) {
		need(target.plan.MaintenanceInfo != nil, "a plan with maintenance_info")
		i := newInstance()
		i.provision(ctx, with("maintenance_info", object{"version": target.plan.MaintenanceInfo.Version}))
		if target.strict {
			i.put(ctx, with("maintenance_info", object{})).mustBe(http.StatusOK)
		}
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("P4", "the operation is a string of at most 10,000 characters", func(ctx SpecContext) {
		answer := newInstance().put(ctx)
		need(answer.status == http.StatusAccepted, "a plan that is provisioned asynchronously")
		Expect(answer.object()).To(HaveKey("operation"))
		Expect(len([]rune(answer.operation()))).To(BeNumerically("<=", maxOperationLength))
	})

	clause("P4", "the dashboard_url is in the first response already", func(ctx SpecContext) {
		i := newInstance()
		first := i.provision(ctx).object()["dashboard_url"]
		Expect(i.put(ctx).object()["dashboard_url"]).To(Equal(first))
		need(first != nil, "a plan with a dashboard_url")
		address, err := url.Parse(first.(string))
		Expect(err).NotTo(HaveOccurred())
		Expect(address.Scheme).To(BeElementOf("http", "https"))
		Expect(address.Host).NotTo(BeEmpty())
	})

	clause("P4", "metadata has labels and attributes, and each is an object", func(ctx SpecContext) {
		i := newInstance()
		answer := i.provision(ctx)
		for _, metadata := range []any{answer.object()["metadata"], i.get(ctx).object()["metadata"]} {
			if metadata == nil {
				continue
			}
			Expect(metadata).To(BeAssignableToTypeOf(object{}))
			for name, value := range metadata.(object) {
				Expect(value).To(BeAssignableToTypeOf(object{}), name)
			}
		}
	})
})

var _ = Describe("Fetching a service instance", func() {
	BeforeEach(func() { need(target.service.InstancesRetrievable, "instances_retrievable") })

	clause("F1", "an instance that nobody asked for is not found", func(ctx SpecContext) {
		newInstance().get(ctx).mustRefuse("", http.StatusNotFound)
	})

	clause("F1", "an instance that is being provisioned is not found", func(ctx SpecContext) {
		i, _ := pendingInstance(ctx)
		i.get(ctx).mustRefuse("", http.StatusNotFound)
	})

	clause("F1", "an instance is shown as it was asked for", func(ctx SpecContext) {
		i := newInstance()
		answer := i.provision(ctx)
		fetched := i.get(ctx)
		fetched.mustBe(http.StatusOK)
		Expect(fetched.object()).To(And(HaveKeyWithValue("service_id", i.serviceID), HaveKeyWithValue("plan_id", i.planID)))
		Expect(fetched.object()["dashboard_url"]).To(BeEquivalentTo(answer.object()["dashboard_url"]))
		i.do(ctx, request{method: http.MethodGet, path: i.path(), query: url.Values{
			"service_id": {i.serviceID}, "plan_id": {i.planID},
		}}).mustBe(http.StatusOK)
	})

	clause("F1", "the parameters are those of the provision", func(ctx SpecContext) {
		need(target.otherParameters != nil, "valid parameters: OSB_OTHER_PARAMETERS")
		i := provisionedInstance(ctx, with("parameters", target.otherParameters))
		Expect(i.get(ctx).object()).To(HaveKeyWithValue("parameters", target.otherParameters))
	})

	clause("F1", "an instance that is being updated is refused with ConcurrencyError", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		answer := i.patch(ctx, with("plan_id", target.otherPlan.ID))
		answer.mustBe(http.StatusOK, http.StatusAccepted)
		for answer.status == http.StatusAccepted {
			fetched := i.get(ctx)
			// Asked afterwards: what is in progress now was in progress before.
			if !i.isInProgress(ctx, answer.operation()) {
				break
			}
			fetched.mustRefuse("ConcurrencyError", http.StatusUnprocessableEntity)
		}
		i.planID = target.otherPlan.ID
		i.get(ctx).mustBe(http.StatusOK)
	})

	clause("F1", "an instance that is gone is not found", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		i.remove(ctx)
		i.get(ctx).mustRefuse("", http.StatusNotFound)
	})

	clause("F2", "an instance shows the maintenance_info it was provisioned with", func(ctx SpecContext) {
		need(target.plan.MaintenanceInfo != nil, "a plan with maintenance_info")
		i := provisionedInstance(ctx)
		Expect(i.get(ctx).object()).To(HaveKeyWithValue("maintenance_info", HaveKeyWithValue("version", target.plan.MaintenanceInfo.Version)))
	})
})
