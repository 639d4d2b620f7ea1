package suitetest

import (
	"net/http"
	"time"
)

// checkPlan of a body that must name service and plan.
func (q *request) checkPlan() (planOf, answer, bool) {
	p, known := q.plan(q.text("service_id"), q.text("plan_id"))
	if !known {
		return p, badRequest("There is no such service with such a plan."), false
	}
	if info := q.object("maintenance_info"); len(info) > 0 && info["version"] != maintenanceVersion {
		return p, maintenanceInfoConflict(), false
	}
	if !validParameters(q.object("parameters")) {
		return p, badRequest("The plan does not take these parameters."), false
	}
	return p, answer{}, true
}

func maintenanceInfoConflict() answer {
	return refusal(http.StatusUnprocessableEntity, "MaintenanceInfoConflict", "The plan's maintenance_info has version "+maintenanceVersion+".")
}

func (b *Broker) provision(q request) answer {
	if q.text("organization_guid") == "" || q.text("space_guid") == "" {
		return badRequest("organization_guid and space_guid are required.")
	}
	p, a, ok := q.checkPlan()
	if !ok {
		return a
	}
	wanted := instance{
		service: p.service, plan: p.id, organization: q.text("organization_guid"), space: q.text("space_guid"),
		parameters: q.object("parameters"),
	}
	if i := b.instance(q); i != nil {
		return i.provisionAgain(q, wanted)
	}
	if !q.asynchronous() {
		return asyncRequired()
	}
	takes := provisionTakes
	if wanted.parameters["pending"] != nil {
		takes = 0
	}
	wanted.operation = b.start("provision", takes, func() { b.instance(q).present = true })
	wanted.bindings = map[string]*binding{}
	if b.instances == nil {
		b.instances = map[instanceKey]*instance{}
	}
	b.instances[q.key()] = &wanted
	return wanted.operation.accepted(q.provisioned())
}

func (i *instance) provisionAgain(q request, wanted instance) answer {
	switch {
	case i.operation.kind == "deprovision":
		return concurrencyError()
	case i.service != wanted.service || i.plan != wanted.plan || i.organization != wanted.organization || i.space != wanted.space ||
		!same(i.parameters, wanted.parameters):
		return refusal(http.StatusConflict, "", "The instance exists and is different.")
	case i.operation.inProgress() && i.operation.kind == "provision":
		return i.operation.accepted(q.provisioned())
	}
	return answer{status: http.StatusOK, body: q.provisioned()}
}

// provisioned returns the fields of an instance that the answer to a provision has.
func (q *request) provisioned() object {
	body := object{"dashboard_url": "https://dashboard.example.com/instance"}
	if q.version >= 16 {
		body["metadata"] = object{"labels": object{"kind": "fake"}}
	}
	if q.version >= 17 {
		body["metadata"].(object)["attributes"] = object{"color": "blue"}
	}
	return body
}

func (b *Broker) fetch(q request) answer {
	i := b.instance(q)
	switch {
	case i == nil || !i.present:
		return notFound()
	case i.operation.inProgress():
		return concurrencyError()
	}
	body := object{"service_id": i.service, "plan_id": i.plan, "dashboard_url": "https://dashboard.example.com/instance"}
	if i.parameters != nil {
		body["parameters"] = i.parameters
	}
	if q.version >= 17 {
		body["metadata"] = q.provisioned()["metadata"]
		body["maintenance_info"] = object{"version": maintenanceVersion}
	}
	return answer{status: http.StatusOK, body: body}
}

func (b *Broker) update(q request) answer {
	i := b.instance(q)
	if i == nil {
		return notFound()
	}
	plan, _ := q.plan(i.service, i.plan)
	_, changesPlan := q.body["plan_id"]
	if !changesPlan {
		q.body["plan_id"] = i.plan
	}
	p, a, ok := q.checkPlan()
	switch {
	case !ok:
		return a
	case p.service != i.service:
		return badRequest("The instance is of another service.")
	case p.id != i.plan && !plan.updateable:
		return badRequest("The plan cannot be changed.")
	}
	parameters, changesParameters := q.body["parameters"]
	if !changesParameters {
		parameters = i.parameters
	}
	wanted := object{"plan": p.id, "parameters": parameters}
	if i.operation.inProgress() {
		if i.operation.kind == "update" && same(i.operation.fields["wanted"], wanted) {
			return i.operation.accepted(nil)
		}
		return concurrencyError()
	}
	if p.id == i.plan && same(parameters, any(i.parameters)) {
		return answer{status: http.StatusOK, body: object{}}
	}
	if !q.asynchronous() {
		return asyncRequired()
	}
	i.operation = b.start("update", updateTakes, func() {
		if o := &i.operation; q.object("parameters")["fails"] != nil {
			o.state = "failed"
			o.fields = object{"instance_usable": true, "update_repeatable": true, "description": "It was meant to fail."}
			return
		}
		i.plan, i.parameters = p.id, parameters.(object)
	})
	i.operation.fields = object{"wanted": wanted}
	return i.operation.accepted(nil)
}

// deletable checks what both deletions must name.
func (q *request) deletable(i *instance) (answer, bool) {
	service, plan := q.URL.Query().Get("service_id"), q.URL.Query().Get("plan_id")
	if service == "" || plan == "" || i != nil && service != i.service {
		return badRequest("service_id and plan_id of the instance are required."), false
	}
	return answer{}, true
}

func (b *Broker) deprovision(q request) answer {
	i := b.instance(q)
	if a, ok := q.deletable(i); !ok {
		return a
	}
	switch {
	case i == nil:
		return gone()
	case !q.asynchronous():
		return asyncRequired()
	case i.operation.kind != "deprovision":
		i.operation = b.start("deprovision", deprovisionTakes, func() { delete(b.instances, q.key()) })
	}
	return i.operation.accepted(nil)
}

func (b *Broker) lastOperation(q request) answer {
	i := b.instance(q)
	if i == nil {
		if b.deletions[q.URL.Query().Get("operation")] {
			return gone()
		}
		return notFound()
	}
	return i.operation.answer(q)
}

func (o *operation) answer(q request) answer {
	body := object{"state": o.state, "description": "The " + o.kind + " is " + o.state + "."}
	for name, value := range o.fields {
		if name == "description" || q.version >= 16 && name != "wanted" {
			body[name] = value
		}
	}
	a := answer{status: http.StatusOK, body: body}
	if o.inProgress() && q.version >= 15 {
		a.header = http.Header{"Retry-After": {number(int(time.Second.Seconds()))}}
	}
	return a
}
