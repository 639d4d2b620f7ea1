package suitetest

import (
	"encoding/json"
	"net/url"
	"time"
)

func misreportsOffering(edit func(object)) func() fault {
	return misreports(catalog, func(c object) { edit(c["services"].([]any)[0].(object)) })
}

func misreportsPlan(edit func(object)) func() fault {
	return misreports(catalog, func(c object) { edit(plansOf(c)[0].(object)) })
}

func misreportsSchema(edit func(object)) func() fault {
	return misreportsPlan(func(plan object) {
		edit(plan["schemas"].(object)["service_instance"].(object)["update"].(object)["parameters"].(object))
	})
}

// provisionsAnyway repairs a provision that was refused.
var provisionsAnyway = after(provision, func(c *call) {
	if c.status == 400 || c.status == 413 {
		c.body, _ = json.Marshal(object{
			"service_id": ServiceID, "plan_id": "plan-small", "organization_guid": "org-guid", "space_guid": "space-guid",
		})
		c.send()
	}
})

// oneForAll takes every platform for the first.
var oneForAll = before(anyRoute, func(c *call) {
	if username, _, _ := c.BasicAuth(); username == SecondUsername {
		asAnybody(c)
	}
})

// withAnyIDs supplies what a deletion did not name.
func withAnyIDs(c *call) {
	c.editQuery(func(query url.Values) { query.Set("service_id", ServiceID); query.Set("plan_id", "plan-small") })
}

// onceFailed refuses requests of the route after an update has failed.
func onceFailed(route string) func() fault {
	return func() fault {
		failed := map[string]bool{}
		return fault{after: func(c *call) {
			if c.answered()["state"] == "failed" {
				failed[c.instanceID()] = true
			} else if failed[c.instanceID()] && c.route == route {
				c.reply(422, object{"description": "The last update failed."})
			}
		}}
	}
}

// finishedOnly refuses to delete what is in progress.
func finishedOnly(route string) func() fault {
	return before(route, func(c *call) {
		probe := &call{Request: c.Clone(c.Context()), broker: c.broker}
		probe.Method, probe.URL.Path = "GET", c.URL.Path+"/last_operation"
		probe.send()
		if description, _ := probe.answered()["description"].(string); description == "The provision is in progress." ||
			description == "The bind is in progress." {
			c.URL.RawQuery = ""
		}
	})
}

// oneLife refuses to provision an id whose instance was deleted.
func oneLife() fault {
	deleted := map[string]bool{}
	return fault{after: func(c *call) {
		switch {
		case c.route == deprovision && c.status == 410:
			deleted[c.instanceID()] = true
		case c.route == provision && deleted[c.instanceID()]:
			c.reply(409, object{"description": "It was deleted."})
		}
	}}
}

// expiring gives bindings times in the format.
func expiring(format string, expires, renew time.Duration) func() fault {
	return misreports(bind, func(body object) {
		now := time.Now().UTC()
		body["metadata"] = object{"expires_at": now.Add(expires).Format(format), "renew_before": now.Add(renew).Format(format)}
	})
}
