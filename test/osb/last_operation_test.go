package osb

import (
	"net/http"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Polling last operation", func() {
	clause("L1", "an operation is in progress until it has succeeded, and stays so", func(ctx SpecContext) {
		i := newInstance()
		answer := i.provision(ctx)
		for range 3 {
			last := i.lastOperation(ctx, answer.operation())
			last.mustBe(http.StatusOK)
			Expect(last.object()).To(HaveKeyWithValue("state", succeeded))
		}
	})

	clause("L1", "a provision that takes time is in progress and says what it waits for", func(ctx SpecContext) {
		i, answer := pendingInstance(ctx)
		last := i.lastOperation(ctx, answer.operation())
		last.mustBe(http.StatusOK)
		Expect(last.object()).To(HaveKeyWithValue("state", inProgress))
		if target.strict {
			Eventually(func() object { return i.lastOperation(ctx, answer.operation()).object() }).WithContext(ctx).
				Should(HaveKeyWithValue("description", Not(BeEmpty())))
		}
	})

	clause("L1", "an instance that nobody asked for is not found", func(ctx SpecContext) {
		newInstance().lastOperation(ctx, "").mustRefuse("", http.StatusNotFound)
	})

	clause("L1", "410 is for deletions: the provision of an instance that is not there is not found", func(ctx SpecContext) {
		i := newInstance()
		operation := i.provision(ctx).operation()
		newInstance().lastOperation(ctx, operation).mustRefuse("", http.StatusNotFound)
	})

	clause("L1", "410 is for deletions that were asked for: one that never was is not found", func(ctx SpecContext) {
		newInstance().lastOperation(ctx, "deprovision-77").mustRefuse("", http.StatusNotFound)
	})

	clause("L1", "a poll without the ids or without the operation is answered", func(ctx SpecContext) {
		i := newInstance()
		answer := i.provision(ctx)
		for _, query := range []url.Values{{}, {"operation": {answer.operation()}}, i.poll("")} {
			last := i.do(ctx, request{method: http.MethodGet, path: i.path("last_operation"), query: query})
			last.mustBe(http.StatusOK)
			Expect(last.object()).To(HaveKeyWithValue("state", succeeded))
		}
	})

	clause("L1", "a poll with an operation that the broker did not give is answered with a state", func(ctx SpecContext) {
		beyondTheSpec("platforms in the field send operations of their own making")
		i := provisionedInstance(ctx)
		for _, foreign := range []string{"foreign", "provision-99999", "deprovision-", "-1", "💣", "'\"&=%"} {
			last := i.lastOperation(ctx, foreign)
			last.mustBe(http.StatusOK)
			Expect(last.object()).To(HaveKeyWithValue("state", BeElementOf(inProgress, succeeded, failed)), last.String)
		}
	})

	clause("L1", "after a plan change the poll has the plan of before the change", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		answer := i.patch(ctx, with("plan_id", target.otherPlan.ID))
		answer.mustBe(http.StatusOK, http.StatusAccepted)
		i.mustSucceed(ctx, answer) // i.planID is still the old one
		last := i.lastOperation(ctx, answer.operation())
		last.mustBe(http.StatusOK)
		i.planID = target.otherPlan.ID
	})

	clause("L1", "a deletion is in progress until it has succeeded or the instance is gone", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		answer := i.delete(ctx)
		answer.mustBe(http.StatusOK, http.StatusAccepted)
		var last response
		Eventually(func(g Gomega) {
			last = i.lastOperation(ctx, answer.operation())
			if answer.status == http.StatusOK || last.status == http.StatusGone {
				return
			}
			g.Expect(last.object()).To(HaveKeyWithValue("state", succeeded), last.String)
		}).WithContext(ctx).Should(Succeed())
		if answer.status == http.StatusAccepted {
			last.mustBe(http.StatusOK, http.StatusGone)
		}
	})

	clause("L1", "the operation of a binding that nobody asked for is not found", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		i.newBinding().lastOperation(ctx, "").mustRefuse("", http.StatusNotFound)
	})

	clause("L1", "the operation of a binding has a state", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		b := i.newBinding()
		b.create(ctx)
		if target.asyncBind || target.strict {
			last := b.lastOperation(ctx, "")
			last.mustBe(http.StatusOK)
			Expect(last.object()).To(HaveKeyWithValue("state", succeeded))
		}
	})

	clause("L2", "Retry-After, while in progress, is a number of seconds that a platform can wait", func(ctx SpecContext) {
		i, answer := pendingInstance(ctx)
		last := i.lastOperation(ctx, answer.operation())
		last.mustBe(http.StatusOK)
		value := last.header.Get("Retry-After")
		if target.strict {
			Expect(value).NotTo(BeEmpty())
		}
		Expect(value).To(Or(BeEmpty(), MatchRegexp(`^[1-9][0-9]{0,3}$`)))
	})
})
