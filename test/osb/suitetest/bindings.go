package suitetest

import (
	"maps"
	"net/http"
	"time"
)

func (b *Broker) bind(q request) answer {
	i := b.instance(q)
	predecessor := q.text("predecessor_binding_id")
	if i == nil {
		return badRequest("There is no such instance.")
	}
	if predecessor != "" && q.body["service_id"] == nil && q.body["plan_id"] == nil {
		q.body["service_id"], q.body["plan_id"] = i.service, i.plan
	}
	p, a, ok := q.checkPlan()
	switch {
	case !ok:
		return a
	case p.service != i.service || p.id != i.plan:
		return badRequest("The instance is of another plan.")
	case !p.bindable:
		return badRequest("The plan cannot be bound.")
	}
	wanted := object{"parameters": q.body["parameters"], "bind_resource": q.body["bind_resource"], "app": q.body["app_guid"], "predecessor": predecessor}
	bound := i.bindings[q.bindingID]
	switch {
	case i.operation.inProgress():
		return concurrencyError()
	case bound != nil && !same(bound.request, wanted):
		return refusal(http.StatusConflict, "", "The binding exists and is different.")
	case bound != nil && bound.operation.inProgress():
		return bound.operation.accepted(nil)
	case bound != nil:
		return answer{status: http.StatusOK, body: q.bound(bound)}
	case predecessor != "" && i.bindings[predecessor] == nil:
		return badRequest("The instance has no such predecessor.")
	}
	return b.bindAnew(q, i, wanted)
}

func (b *Broker) bindAnew(q request, i *instance, wanted object) answer {
	b.sequence++
	expires := time.Now().UTC().Add(time.Hour).Truncate(time.Second)
	bound := &binding{request: wanted, answer: object{
		"credentials": object{"user": "user-" + number(b.sequence), "password": "secret-" + number(b.sequence)},
		"endpoints": []any{
			object{"host": "service.example.com", "ports": []any{"443", "8000-8010"}, "protocol": "tcp"},
		},
		"metadata": object{
			"expires_at":   expires.Format("2006-01-02T15:04:05.0Z"),
			"renew_before": expires.Add(-10 * time.Minute).Format("2006-01-02T15:04:05.0Z"),
		},
	}}
	i.bindings[q.bindingID] = bound
	bound.operation = b.start("bind", bindTakes, func() {})
	if b.AsyncBind && q.asynchronous() {
		return bound.operation.accepted(nil)
	}
	bound.operation.state = "succeeded"
	return answer{status: http.StatusCreated, body: q.bound(bound)}
}

// bound returns the fields of a binding that the client's version may see.
func (q *request) bound(bound *binding) object {
	body := maps.Clone(bound.answer)
	if q.version < 15 {
		delete(body, "endpoints")
	}
	if q.version < 16 {
		delete(body, "metadata")
	}
	if q.version == 16 {
		body["metadata"] = object{"expires_at": bound.answer["metadata"].(object)["expires_at"]}
	}
	return body
}

func (b *Broker) binding(q request) *binding {
	if i := b.instance(q); i != nil {
		return i.bindings[q.bindingID]
	}
	return nil
}

func (b *Broker) fetchBinding(q request) answer {
	bound := b.binding(q)
	if bound == nil || bound.operation.inProgress() {
		return notFound()
	}
	return answer{status: http.StatusOK, body: q.bound(bound)}
}

func (b *Broker) unbind(q request) answer {
	if a, ok := q.deletable(b.instance(q)); !ok {
		return a
	}
	if b.binding(q) == nil {
		return gone()
	}
	delete(b.instance(q).bindings, q.bindingID)
	return answer{status: http.StatusOK, body: object{}}
}

func (b *Broker) lastBindingOperation(q request) answer {
	bound := b.binding(q)
	if bound == nil {
		return notFound()
	}
	return bound.operation.answer(q)
}
