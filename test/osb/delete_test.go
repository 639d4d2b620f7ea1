package osb

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Unbinding", func() {
	clause("D1", "an unbind is answered 200 with an empty object, or 202, and then the binding is gone", func(ctx SpecContext) {
		b, _ := provisionedInstance(ctx).bind(ctx)
		answer := b.delete(ctx)
		answer.mustBe(http.StatusOK, http.StatusAccepted)
		if answer.status == http.StatusOK {
			Expect(answer.object()).To(BeEmpty())
		}
		b.untilGone(ctx)
		b.mustNotExist(ctx)
	})

	clause("D1", "an unbind leaves the instance and its other bindings", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		b, _ := i.bind(ctx)
		other, _ := i.bind(ctx)
		b.unbind(ctx)
		other.put(ctx).mustBe(http.StatusOK)
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("D1", "the id of a binding that is gone can be used again, with new credentials", func(ctx SpecContext) {
		b, first := provisionedInstance(ctx).bind(ctx)
		b.unbind(ctx)
		second := b.create(ctx)
		Expect(second.object()["credentials"]).NotTo(Equal(first.object()["credentials"]))
	})
})

var _ = Describe("Deprovisioning", func() {
	clause("D1", "a deprovision is answered 200 with an empty object, or 202, and then the instance is gone", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		answer := i.delete(ctx)
		answer.mustBe(http.StatusOK, http.StatusAccepted)
		if answer.status == http.StatusOK {
			Expect(answer.object()).To(BeEmpty())
		}
		i.remove(ctx)
		i.mustNotExist(ctx)
	})

	clause("D1", "a deprovision repeated while in progress is answered 202 with the same operation", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		first := i.delete(ctx)
		first.mustBe(http.StatusOK, http.StatusAccepted)
		again := i.delete(ctx)
		again.mustBe(http.StatusAccepted, http.StatusGone)
		if again.status == http.StatusAccepted {
			Expect(again.operation()).To(Equal(first.operation()))
		}
	})

	for name, query := range map[string]url.Values{"absent": {}, "false": {"accepts_incomplete": {"false"}}} {
		clause("D1", "a deprovision that takes time is refused with AsyncRequired where accepts_incomplete is "+name, func(ctx SpecContext) {
			i := provisionedInstance(ctx)
			query := url.Values{"service_id": {i.serviceID}, "plan_id": {i.planID}, "accepts_incomplete": query["accepts_incomplete"]}
			answer := i.do(ctx, request{method: http.MethodDelete, path: i.path(), query: query})
			need(answer.status != http.StatusOK, "a plan that is deprovisioned asynchronously")
			answer.mustRefuse("AsyncRequired", http.StatusUnprocessableEntity)
			i.put(ctx).mustBe(http.StatusOK)
		})
	}

	clause("D1", "an instance that is being deleted cannot be bound, updated or provisioned", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		first := i.delete(ctx)
		first.mustBe(http.StatusOK, http.StatusAccepted)
		for _, mutate := range []func(context.Context, ...edit) response{i.newBinding().put, i.patch, i.put} {
			answer := mutate(ctx)
			if first.status == http.StatusAccepted && i.isInProgress(ctx, first.operation()) {
				answer.mustRefuse("ConcurrencyError", http.StatusUnprocessableEntity)
			}
		}
	})

	clause("D2", "a deprovision is accepted while the provision is in progress, and halts it", func(ctx SpecContext) {
		i, provision := pendingInstance(ctx)
		answer := i.delete(ctx)
		answer.mustBe(http.StatusOK, http.StatusAccepted)
		if answer.status == http.StatusAccepted {
			Expect(answer.operation()).NotTo(Equal(provision.operation()))
			last := i.lastOperation(ctx, answer.operation())
			last.mustBe(http.StatusOK, http.StatusGone)
			if last.status == http.StatusOK {
				Expect(last.object()).To(HaveKeyWithValue("state", BeElementOf(inProgress, succeeded)), last.String)
			}
		}
		i.remove(ctx)
		i.mustNotExist(ctx)
	})

	clause("D2", "an unbind is accepted while the bind is in progress, and halts it", func(ctx SpecContext) {
		if !target.asyncBind {
			return
		}
		b := provisionedInstance(ctx).newBinding()
		b.put(ctx).mustBe(http.StatusAccepted)
		b.delete(ctx).mustBe(http.StatusOK, http.StatusAccepted)
		b.untilGone(ctx)
		b.mustNotExist(ctx)
	})

	clause("D2", "a provision that a deprovision halted is not resumed by its platform's polls", func(ctx SpecContext) {
		i, provision := pendingInstance(ctx)
		i.remove(ctx)
		last := i.lastOperation(ctx, provision.operation())
		last.mustBe(http.StatusOK, http.StatusNotFound, http.StatusGone)
		Expect(last.object()).NotTo(HaveKeyWithValue("state", inProgress), last.String)
		i.mustNotExist(ctx)
	})
})

var _ = Describe("Orphan mitigation", func() {
	clause("O1", "an instance that the broker never heard of is gone", func(ctx SpecContext) {
		answer := newInstance().delete(ctx)
		answer.mustBe(http.StatusGone)
	})

	clause("O1", "a binding that the broker never heard of is gone, of a known and of an unknown instance", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		i.newBinding().delete(ctx).mustBe(http.StatusGone)
		newInstance().newBinding().delete(ctx).mustBe(http.StatusGone)
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("D1", "a platform that missed the end of an update is served: the plan is a hint", func(ctx SpecContext) {
		beyondTheSpec("the spec calls the ids of a deletion hints, and leaves open what a wrong one means")
		i := provisionedInstance(ctx)
		before := i.planID
		i.update(ctx, with("plan_id", target.otherPlan.ID))
		i.planID = before
		i.newBinding().delete(ctx).mustBe(http.StatusGone)
		i.delete(ctx).mustBe(http.StatusOK, http.StatusAccepted)
	})

	clause("O1", "what a refused bind may have left is gone", func(ctx SpecContext) {
		i, _ := pendingInstance(ctx)
		b := i.newBinding()
		b.put(ctx).mustRefuse("ConcurrencyError", http.StatusUnprocessableEntity)
		b.delete(ctx).mustBe(http.StatusGone)
	})

	patiences := []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}

	clause("O1", "an instance can be deleted whenever the platform hung up on its provision", func(ctx SpecContext) {
		var removals []func(context.Context) response
		for _, patience := range patiences {
			i := newInstance()
			hangUp(ctx, patience, func(ctx context.Context) error {
				_, err := i.platform.try(ctx, request{method: http.MethodPut, path: i.path(), query: async(), body: i.body()})
				return err
			})
			i.delete(ctx).mustBe(http.StatusOK, http.StatusAccepted, http.StatusGone)
			removals = append(removals, i.delete)
		}
		untilGoneForGood(ctx, removals)
	})

	clause("O1", "a binding can be deleted whenever the platform hung up on its bind", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		var removals []func(context.Context) response
		for _, patience := range patiences {
			b := i.newBinding()
			hangUp(ctx, patience, func(ctx context.Context) error {
				_, err := b.platform.try(ctx, request{method: http.MethodPut, path: b.path(), body: b.body()})
				return err
			})
			removals = append(removals, b.delete)
		}
		untilGoneForGood(ctx, removals)
		i.put(ctx).mustBe(http.StatusOK)
	})
})

// hangUp calls the broker with that much patience.
func hangUp(ctx context.Context, patience time.Duration, call func(context.Context) error) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := call(ctx); err != nil {
		Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue(), "%v", err)
	}
}

// untilGoneForGood repeats DELETEs until all have been answered 410 for a second: the
// broker may begin with a PUT after its client has hung up.
func untilGoneForGood(ctx context.Context, removals []func(context.Context) response) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, remove := range removals {
			answer := remove(ctx)
			g.Expect(answer.status).To(Equal(http.StatusGone), answer.String)
		}
	}).WithContext(ctx).MustPassRepeatedly(int(time.Second / target.polling)).Should(Succeed())
}
