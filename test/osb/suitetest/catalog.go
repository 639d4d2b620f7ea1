package suitetest

import (
	"net/http"
	"slices"
)

// ServiceID is the offering that the suite is to use; OtherServiceID the other one.
const (
	ServiceID      = "service"
	OtherServiceID = "other-service"
)

const maintenanceVersion = "1.2.0"

// planOf describes a plan to the handlers.
type planOf struct {
	service, id, name              string
	bindable, updateable, isHidden bool // hidden from the second platform
}

var plans = []planOf{
	{ServiceID, "plan-small", "small", true, true, false},
	{ServiceID, "plan-large", "large", true, true, false},
	{ServiceID, "plan-fixed", "fixed", true, false, false},
	{ServiceID, "plan-unbindable", "unbindable", false, true, false},
	{ServiceID, "plan-hidden", "hidden", true, true, true},
	{OtherServiceID, "plan-other", "other", true, true, false},
}

func (q *request) plan(service, id string) (planOf, bool) {
	i := slices.IndexFunc(plans, func(p planOf) bool {
		return p.service == service && p.id == id && (!p.isHidden || q.platform == FirstUsername)
	})
	if i < 0 {
		return planOf{}, false
	}
	return plans[i], true
}

func schema() object {
	return object{"parameters": object{
		"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "additionalProperties": false,
		"definitions": object{"size": object{"type": "integer"}},
		"properties":  object{"size": object{"$ref": "#/definitions/size"}, "pending": object{}, "fails": object{}},
	}}
}

func validParameters(parameters object) bool {
	for name := range parameters {
		if name != "size" && name != "pending" && name != "fails" {
			return false
		}
	}
	return true
}

func (b *Broker) catalog(q request) answer {
	byService := map[string][]any{}
	for _, p := range plans {
		if _, visible := q.plan(p.service, p.id); !visible {
			continue
		}
		plan := object{
			"id": p.id, "name": p.name, "description": "A plan", "free": false, "bindable": p.bindable,
			"schemas": object{
				"service_instance": object{"create": schema(), "update": schema()},
				"service_binding":  object{"create": schema()},
			},
		}
		if q.version >= 15 {
			plan["plan_updateable"] = p.updateable
			plan["maximum_polling_duration"] = 600
			plan["maintenance_info"] = object{"version": maintenanceVersion, "description": "First edition"}
		}
		if q.version >= 17 {
			plan["binding_rotatable"] = true
		}
		byService[p.service] = append(byService[p.service], plan)
	}
	var services []any
	for _, id := range []string{ServiceID, OtherServiceID} {
		service := object{
			"id": id, "name": "name-of-" + id, "description": "An offering", "bindable": true, "plan_updateable": true,
			"tags": []any{"fake"}, "requires": []any{}, "plans": byService[id],
		}
		if q.version >= 14 {
			service["instances_retrievable"], service["bindings_retrievable"] = true, true
		}
		if q.version >= 15 {
			service["allow_context_updates"] = true
		}
		services = append(services, service)
	}
	body := object{"services": services}
	tag := entityTag(body)
	header := http.Header{"Etag": {tag}}
	if sent := q.Header.Get("If-None-Match"); sent != "" && matches(sent, tag) {
		return answer{status: http.StatusNotModified, header: header}
	}
	return answer{status: http.StatusOK, header: header, body: body}
}
