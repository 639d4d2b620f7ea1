package osb

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// timestamp is the one form that OSB 2.17, "Binding Metadata Object", allows:
// yyyy-mm-ddTHH:MM:ss.sZ, in UTC, with at least one digit after the point.
const timestamp = `^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d+Z$`

var _ = Describe("Binding", func() {
	BeforeEach(func() { need(target.service.bindable(&target.plan), "a bindable plan") })

	clause("B1", "a bind returns credentials, and 201 where it is synchronous", func(ctx SpecContext) {
		_, answer := provisionedInstance(ctx).bind(ctx)
		if !target.asyncBind {
			answer.mustBe(http.StatusCreated)
		}
		Expect(answer.object()).To(HaveKeyWithValue("credentials", And(BeAssignableToTypeOf(object{}), Not(BeEmpty()))), answer.String)
	})

	clause("B1", "a bind that takes time is answered 202 without credentials", func(ctx SpecContext) {
		if !target.asyncBind {
			return
		}
		b := provisionedInstance(ctx).newBinding()
		answer := b.put(ctx)
		answer.mustBe(http.StatusAccepted)
		Expect(answer.object()).NotTo(Or(HaveKey("credentials"), HaveKey("endpoints")))
		b.create(ctx)
	})

	clause("B1", "an identical bind is answered 200 with the same body", func(ctx SpecContext) {
		b, first := provisionedInstance(ctx).bind(ctx)
		for range 2 {
			again := b.put(ctx)
			again.mustBe(http.StatusOK)
			Expect(withoutParameters(again)).To(Equal(withoutParameters(first)), again.String)
		}
	})

	clause("B1", "a different bind for the same id is answered 409 and changes nothing", func(ctx SpecContext) {
		b, first := provisionedInstance(ctx).bind(ctx)
		b.put(ctx, with("app_guid", "another-app"), with("bind_resource", object{"app_guid": "another-app"})).
			mustRefuse("", http.StatusConflict)
		again := b.put(ctx)
		again.mustBe(http.StatusOK)
		Expect(withoutParameters(again)).To(Equal(withoutParameters(first)))
	})

	clause("B1", "two bindings of an instance have credentials of their own", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		_, one := i.bind(ctx)
		_, other := i.bind(ctx)
		Expect(other.object()["credentials"]).NotTo(Equal(one.object()["credentials"]))
	})

	invalid := map[string]edit{
		"no service_id":      without("service_id"),
		"no plan_id":         without("plan_id"),
		"empty service_id":   with("service_id", ""),
		"empty plan_id":      with("plan_id", ""),
		"unknown service_id": with("service_id", "no-such-service"),
		"unknown plan_id":    with("plan_id", "no-such-plan"),
		"unknown parameters": with("parameters", object{"osb-conformance-no-such-parameter": true}),
	}
	clauses("B1", "a bind needs the ids of its instance's service and plan, and valid parameters", invalid, func(ctx SpecContext, e edit) {
		b := provisionedInstance(ctx).newBinding()
		b.put(ctx, e).mustRefuse("", http.StatusBadRequest)
		b.mustNotExist(ctx)
	})

	clause("B1", "an instance that is not there cannot be bound", func(ctx SpecContext) {
		b := newInstance().newBinding()
		b.put(ctx).mustRefuseAsUser()
		b.mustNotExist(ctx)
	})

	clause("B1", "an instance that is being provisioned cannot be bound", func(ctx SpecContext) {
		i, _ := pendingInstance(ctx)
		b := i.newBinding()
		b.put(ctx).mustRefuse("ConcurrencyError", http.StatusUnprocessableEntity)
		b.mustNotExist(ctx)
	})

	clause("B1", "a plan that says so cannot be bound", func(ctx SpecContext) {
		for _, unbindable := range target.service.Plans {
			if target.service.bindable(&unbindable) {
				continue
			}
			i := newInstance()
			i.planID = unbindable.ID
			i.provision(ctx)
			b := i.newBinding()
			b.put(ctx).mustRefuseAsUser()
			b.mustNotExist(ctx)
		}
	})

	clause("B2", "endpoints have a host, ports or ranges as strings, and tcp, udp or all", func(ctx SpecContext) {
		_, answer := provisionedInstance(ctx).bind(ctx)
		value, there := answer.object()["endpoints"]
		need(there, "a plan whose bindings have endpoints")
		Expect(value).To(BeAssignableToTypeOf([]any{}))
		var body struct{ Endpoints []endpoint }
		answer.decode(&body)
		Expect(body.Endpoints).NotTo(BeEmpty())
		for _, e := range body.Endpoints {
			Expect(e.Host).NotTo(BeEmpty())
			Expect(e.Host).NotTo(ContainSubstring("/"))
			Expect(e.Ports).NotTo(BeEmpty())
			for _, ports := range e.Ports {
				Expect(portRange(ports)).To(BeTrue(), "ports %q", ports)
			}
			Expect(e.Protocol).To(BeElementOf("", "tcp", "udp", "all"))
		}
	})

	clause("B3", "expires_at is in the future, renew_before is not after it, and both are in UTC with fractions", func(ctx SpecContext) {
		_, answer := provisionedInstance(ctx).bind(ctx)
		var body struct{ Metadata *bindingMetadata }
		answer.decode(&body)
		need(body.Metadata != nil && body.Metadata.ExpiresAt != "", "a plan whose bindings expire")
		Expect(body.Metadata.ExpiresAt).To(MatchRegexp(timestamp))
		expires, err := time.Parse(time.RFC3339Nano, body.Metadata.ExpiresAt)
		Expect(err).NotTo(HaveOccurred())
		Expect(expires).To(BeTemporally(">", time.Now()))
		if body.Metadata.RenewBefore != "" {
			Expect(body.Metadata.RenewBefore).To(MatchRegexp(timestamp))
			renew, err := time.Parse(time.RFC3339Nano, body.Metadata.RenewBefore)
			Expect(err).NotTo(HaveOccurred())
			Expect(renew).To(BeTemporally("<=", expires))
			Expect(renew).To(BeTemporally(">", time.Now()))
		}
	})

	clause("B5", "a binding has a log drain, a route service or volumes only if the offering requires them", func(ctx SpecContext) {
		_, answer := provisionedInstance(ctx).bind(ctx)
		for field, permission := range map[string]string{
			"syslog_drain_url": "syslog_drain", "route_service_url": "route_forwarding", "volume_mounts": "volume_mount",
		} {
			if _, there := answer.object()[field]; there {
				Expect(target.service.Requires).To(ContainElement(permission), field)
			}
		}
	})

	describeFetchingBindings()
})

func describeFetchingBindings() {
	needRetrievable := func() { GinkgoHelper(); need(target.service.BindingsRetrievable, "bindings_retrievable") }

	clause("B6", "a binding is shown with the credentials, endpoints and metadata that the bind returned", func(ctx SpecContext) {
		needRetrievable()
		b, bound := provisionedInstance(ctx).bind(ctx)
		fetched := b.get(ctx)
		fetched.mustBe(http.StatusOK)
		Expect(withoutParameters(fetched)).To(Equal(withoutParameters(bound)))
		b.do(ctx, request{method: http.MethodGet, path: b.path(), query: url.Values{
			"service_id": {b.serviceID}, "plan_id": {b.planID},
		}}).mustBe(http.StatusOK)
	})

	clause("B6", "a binding that nobody asked for is not found", func(ctx SpecContext) {
		needRetrievable()
		i := provisionedInstance(ctx)
		i.newBinding().get(ctx).mustRefuse("", http.StatusNotFound)
		newInstance().newBinding().get(ctx).mustRefuse("", http.StatusNotFound)
	})

	clause("B6", "a binding is not found by the id of another instance", func(ctx SpecContext) {
		needRetrievable()
		b, _ := provisionedInstance(ctx).bind(ctx)
		provisionedInstance(ctx).newBindingOf(b.id).get(ctx).mustRefuse("", http.StatusNotFound)
	})

	clause("B6", "a binding that is in progress is not found", func(ctx SpecContext) {
		if !target.asyncBind {
			return
		}
		needRetrievable()
		b := provisionedInstance(ctx).newBinding()
		answer := b.put(ctx)
		answer.mustBe(http.StatusAccepted)
		for {
			fetched := b.get(ctx)
			last := b.lastOperation(ctx, answer.operation()).object()
			if last["state"] != inProgress {
				break
			}
			fetched.mustRefuse("", http.StatusNotFound)
		}
		b.get(ctx).mustBe(http.StatusOK)
	})
}

var _ = Describe("Binding rotation", func() {
	BeforeEach(func() { need(target.plan.rotatable(), "a plan with binding_rotatable") })

	clause("B4", "a successor has credentials of its own, and the predecessor stays until it is deleted", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		old, before := i.bind(ctx)
		successor := i.newBinding()
		after := successor.create(ctx, with("predecessor_binding_id", old.id))
		Expect(after.object()).To(HaveKeyWithValue("credentials", Not(BeEmpty())))
		Expect(after.object()["credentials"]).NotTo(Equal(before.object()["credentials"]))

		stillThere := old.put(ctx)
		stillThere.mustBe(http.StatusOK)
		Expect(withoutParameters(stillThere)).To(Equal(withoutParameters(before)))
		old.unbind(ctx)
		again := successor.put(ctx, with("predecessor_binding_id", old.id))
		again.mustBe(http.StatusOK)
		Expect(withoutParameters(again)).To(Equal(withoutParameters(after)))
	})

	clause("B4", "a rotation may name the predecessor only", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		old, _ := i.bind(ctx)
		successor := i.newBinding()
		only := func(body object) {
			clear(body)
			body["predecessor_binding_id"] = old.id
		}
		answer := successor.create(ctx, only)
		Expect(answer.object()).To(HaveKeyWithValue("credentials", Not(BeEmpty())))
		successor.put(ctx, only).mustBe(http.StatusOK)
	})

	clause("B4", "a rotation is repeated by an identical bind only", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		old, _ := i.bind(ctx)
		another, _ := i.bind(ctx)
		successor := i.newBinding()
		successor.create(ctx, with("predecessor_binding_id", old.id))
		successor.put(ctx, with("predecessor_binding_id", old.id)).mustBe(http.StatusOK)
		successor.put(ctx, with("predecessor_binding_id", another.id)).mustRefuse("", http.StatusConflict)
	})

	clause("B4", "the predecessor must be a binding of the same instance", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		foreign, _ := provisionedInstance(ctx).bind(ctx)
		for _, predecessor := range []any{foreign.id, "no-such-binding", "", 1} {
			successor := i.newBinding()
			successor.put(ctx, with("predecessor_binding_id", predecessor)).mustRefuseAsUser()
			successor.mustNotExist(ctx)
		}
	})
})

// portRange says whether ports is a port or a range of ports, such as "8000-8010".
func portRange(ports string) bool {
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return false
	}
	to, err := strconv.ParseUint(last, 10, 16)
	return err == nil && from > 0 && from <= to
}

// withoutParameters returns the fields that a bind and a fetch of the same binding share.
func withoutParameters(answer response) object {
	GinkgoHelper()
	body := answer.object()
	delete(body, "parameters")
	delete(body, "operation")
	return body
}
