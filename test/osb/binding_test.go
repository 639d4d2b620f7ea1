package osb

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// binding is a service binding that a spec asks for.
type binding struct {
	*instance
	id     string
	planID string
}

// newBinding is an id that nobody has used. What the broker makes of it is deleted
// with the instance.
func (i *instance) newBinding() *binding {
	return i.newBindingOf("osb-conformance-" + rand.Text())
}

func (i *instance) newBindingOf(id string) *binding {
	b := &binding{instance: i, id: id, planID: i.planID}
	i.bindings = append(i.bindings, b)
	return b
}

// bind returns a binding that is ready for use, and its credentials and all.
func (i *instance) bind(ctx context.Context, edits ...edit) (*binding, response) {
	GinkgoHelper()
	b := i.newBinding()
	return b, b.create(ctx, edits...)
}

// create waits, where the broker takes its time, until the binding is ready.
func (b *binding) create(ctx context.Context, edits ...edit) response {
	GinkgoHelper()
	answer := b.put(ctx, edits...)
	answer.mustBe(http.StatusCreated, http.StatusAccepted)
	if answer.status == http.StatusCreated {
		return answer
	}
	last := finished(ctx, func() response { return b.lastOperation(ctx, answer.operation()) })
	Expect(last.object()).To(HaveKeyWithValue("state", succeeded), last.String)
	answer = b.get(ctx)
	answer.mustBe(http.StatusOK)
	return answer
}

// body of a complete and valid PUT.
func (b *binding) body(edits ...edit) object {
	body := object{
		"service_id": b.serviceID, "plan_id": b.planID,
		"bind_resource": object{"app_guid": "app-guid"}, "app_guid": "app-guid",
		"context": object{"platform": "cloudfoundry", "organization_guid": "org-guid", "space_guid": "space-guid"},
	}
	for _, edit := range edits {
		edit(body)
	}
	return body
}

func (b *binding) path(rest ...string) []string {
	return b.instance.path(append([]string{"service_bindings", b.id}, rest...)...)
}

// put asks for the binding, in the background only if the broker is said to do so:
// platforms in the field bind synchronously.
func (b *binding) put(ctx context.Context, edits ...edit) response {
	GinkgoHelper()
	query := url.Values{}
	if target.asyncBind {
		query = async()
	}
	return b.do(ctx, request{method: http.MethodPut, path: b.path(), query: query, body: b.body(edits...)})
}

func (b *binding) get(ctx context.Context) response {
	GinkgoHelper()
	return b.do(ctx, request{method: http.MethodGet, path: b.path()})
}

func (b *binding) delete(ctx context.Context) response {
	GinkgoHelper()
	return b.do(ctx, request{method: http.MethodDelete, path: b.path(), query: b.deletion()})
}

func (b *binding) deletion() url.Values {
	return url.Values{"service_id": {b.serviceID}, "plan_id": {b.planID}, "accepts_incomplete": {"true"}}
}

func (b *binding) lastOperation(ctx context.Context, operation string) response {
	GinkgoHelper()
	query := url.Values{"service_id": {b.serviceID}, "plan_id": {b.planID}}
	if operation != "" {
		query.Set("operation", operation)
	}
	return b.do(ctx, request{method: http.MethodGet, path: b.path("last_operation"), query: query})
}

// unbind waits until the binding is gone.
func (b *binding) unbind(ctx context.Context) {
	GinkgoHelper()
	b.delete(ctx).mustBe(http.StatusOK, http.StatusAccepted)
	b.untilGone(ctx)
}

func (b *binding) untilGone(ctx context.Context) {
	GinkgoHelper()
	untilGone(ctx, fmt.Sprintf("binding %q of instance %q", b.id, b.instance.id), func(planID string) response {
		b.planID = planID
		return b.delete(ctx)
	}, b.planID)
}

// mustNotExist checks that a refused PUT has left nothing behind.
func (b *binding) mustNotExist(ctx context.Context) {
	GinkgoHelper()
	if target.service.BindingsRetrievable {
		b.get(ctx).mustRefuse("", http.StatusNotFound)
	}
	b.delete(ctx).mustBe(http.StatusGone)
}
