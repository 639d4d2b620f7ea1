package osb

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// callers at once, as when every replica of a platform repeats a request.
const callers = 20

var _ = Describe("Concurrent requests", func() {
	clause("P2", "identical provisions at once make one instance and name one operation", func(ctx SpecContext) {
		i := newInstance()
		answers := parallel(callers, func(int) response { return i.put(ctx) })
		operations := map[string]bool{}
		var created int
		for _, answer := range answers {
			answer.mustBe(http.StatusOK, http.StatusCreated, http.StatusAccepted)
			switch answer.status {
			case http.StatusCreated:
				created++
			case http.StatusAccepted:
				operations[answer.operation()] = true
			}
		}
		Expect(created).To(BeNumerically("<=", 1))
		Expect(len(operations)).To(BeNumerically("<=", 1), "operations %v", operations)
		for operation := range operations {
			Expect(i.finished(ctx, operation).object()).To(HaveKeyWithValue("state", succeeded))
		}
		i.put(ctx).mustBe(http.StatusOK)
	})

	clause("P2", "different provisions at once make the instance that one of them asked for, and refuse the others", func(ctx SpecContext) {
		need(target.otherPlan.ID != "", "a second plan")
		i := newInstance()
		plans := []string{target.plan.ID, target.otherPlan.ID}
		answers := parallel(callers, func(n int) response { return i.put(ctx, with("plan_id", plans[n%2])) })
		winners := map[string]bool{}
		for n, answer := range answers {
			if answer.status == http.StatusConflict {
				answer.mustRefuse("", http.StatusConflict)
				continue
			}
			answer.mustBe(http.StatusOK, http.StatusCreated, http.StatusAccepted)
			winners[plans[n%2]] = true
		}
		Expect(winners).To(HaveLen(1))
		for plan := range winners {
			i.planID = plan
		}
		if i.put(ctx).status == http.StatusAccepted {
			i.finished(ctx, "")
		}
		i.put(ctx).mustBe(http.StatusOK)
		for _, answer := range answers {
			if answer.status == http.StatusConflict {
				return
			}
		}
		Fail("nobody was refused")
	})

	clause("B1", "identical binds at once make one binding with one set of credentials", func(ctx SpecContext) {
		b := provisionedInstance(ctx).newBinding()
		answers := parallel(callers, func(int) response { return b.put(ctx) })
		for _, answer := range answers {
			answer.mustBe(http.StatusOK, http.StatusCreated, http.StatusAccepted)
		}
		if target.asyncBind {
			finished(ctx, func() response { return b.lastOperation(ctx, "") })
		}
		last := b.put(ctx)
		last.mustBe(http.StatusOK)
		for _, answer := range answers {
			if answer.status != http.StatusAccepted {
				Expect(answer.object()["credentials"]).To(Equal(last.object()["credentials"]))
			}
		}
	})

	clause("D1", "deprovisions at once name one operation, or say that the instance is gone", func(ctx SpecContext) {
		i := provisionedInstance(ctx)
		operations := map[string]bool{}
		for _, answer := range parallel(callers, func(int) response { return i.delete(ctx) }) {
			answer.mustBe(http.StatusOK, http.StatusAccepted, http.StatusGone)
			if answer.status == http.StatusAccepted {
				operations[answer.operation()] = true
			}
		}
		Expect(len(operations)).To(BeNumerically("<=", 1), "operations %v", operations)
		i.remove(ctx)
	})
})
