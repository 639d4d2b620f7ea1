package osb

import (
	"net/http"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// OSB 2.17, "API Overview": a broker MAY serve several platforms. Their ids are their
// own.
var _ = Describe("Two platforms", func() {
	second := func() platform {
		GinkgoHelper()
		need(target.second != nil, "a second platform: OSB_PLATFORM2_USERNAME")
		return *target.second
	}

	clause("P2", "the same instance id is an instance of each platform", func(ctx SpecContext) {
		one := newInstance()
		other := newInstanceOf(second(), one.id)
		one.provision(ctx)
		other.planID = target.otherPlan.ID
		other.provision(ctx)
		Expect(one.get(ctx).object()).To(HaveKeyWithValue("plan_id", one.planID))
		Expect(other.get(ctx).object()).To(HaveKeyWithValue("plan_id", other.planID))
		other.remove(ctx)
		one.put(ctx).mustBe(http.StatusOK)
	})

	clause("H4", "a platform cannot see or change what is another's", func(ctx SpecContext) {
		one := provisionedInstance(ctx)
		b, bound := one.bind(ctx)
		before := one.get(ctx).object()

		stranger := newInstanceOf(second(), one.id)
		stranger.get(ctx).mustRefuse("", http.StatusNotFound)
		stranger.lastOperation(ctx, "").mustRefuse("", http.StatusNotFound)
		stranger.patch(ctx, with("plan_id", target.otherPlan.ID)).mustRefuse("", http.StatusNotFound, http.StatusBadRequest)
		stranger.delete(ctx).mustBe(http.StatusGone)
		strangeBinding := stranger.newBindingOf(b.id)
		strangeBinding.get(ctx).mustRefuse("", http.StatusNotFound)
		strangeBinding.put(ctx).mustRefuseAsUser()
		strangeBinding.lastOperation(ctx, "").mustRefuse("", http.StatusNotFound)
		strangeBinding.delete(ctx).mustBe(http.StatusGone)

		Expect(one.get(ctx).object()).To(Equal(before))
		again := b.put(ctx)
		again.mustBe(http.StatusOK)
		Expect(withoutParameters(again)).To(Equal(withoutParameters(bound)))
	})

	clause("B4", "a platform cannot rotate what is another's", func(ctx SpecContext) {
		need(target.plan.rotatable(), "a plan with binding_rotatable")
		b, _ := provisionedInstance(ctx).bind(ctx)
		stranger := newInstanceOf(second(), b.instance.id)
		stranger.provision(ctx)
		successor := stranger.newBinding()
		successor.put(ctx, with("predecessor_binding_id", b.id)).mustRefuseAsUser()
		successor.mustNotExist(ctx)
	})

	clause("C1", "a platform can provision nothing but what its catalog shows", func(ctx SpecContext) {
		var seen catalog
		answer := second().catalog(ctx)
		answer.mustBe(http.StatusOK)
		answer.decode(&seen)
		for _, p := range target.service.Plans {
			visible := slices.ContainsFunc(seen.Services, func(s offering) bool {
				return slices.ContainsFunc(s.Plans, func(q plan) bool { return q.ID == p.ID })
			})
			if !visible {
				i := newInstanceOf(second(), newInstance().id)
				i.planID = p.ID
				i.put(ctx).mustRefuse("", http.StatusBadRequest)
				i.mustNotExist(ctx)
			}
		}
	})
})
