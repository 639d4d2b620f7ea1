package suitetest

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// defect is one mistake of a broker and the clause whose specs must notice it.
type defect struct {
	clause, does string
	fault        func() fault // anew for each run
}

// yes is the answer of a broker that does not look.
var yes = object{"credentials": object{"user": "u"}, "plan_id": "plan-small"}

func asAnybody(c *call) { c.SetBasicAuth(FirstUsername, FirstPassword) }

func acceptsIncomplete(c *call) {
	c.editQuery(func(query url.Values) { query.Set("accepts_incomplete", "true") })
}

func speaks(version string) func(*call) {
	return func(c *call) { c.Header.Set("X-Broker-API-Version", version) }
}

// forOlderClients shows clients of any supported version what the newest sees.
func forOlderClients(c *call) {
	if strings.HasPrefix(c.Header.Get("X-Broker-API-Version"), "2.1") && c.Header.Get("X-Broker-API-Version") != "2.12" {
		speaks("2.17")(c)
	}
}

// plansOf the first offering in a catalog.
func plansOf(c object) []any { return c["services"].([]any)[0].(object)["plans"].([]any) }

var instanceDefects = []defect{
	{"P1", "needs no ids", provisionsAnyway},
	{"P1", "takes any plan for the service's", misreads(provision, func(body object) {
		if body["plan_id"] == "plan-other" || body["service_id"] == OtherServiceID {
			body["plan_id"], body["service_id"] = "plan-small", ServiceID
		}
	})},
	{"P2", "answers 200 before it is done", instead(provision, 202, 200, object{})},
	{"P2", "answers a repeated PUT with another body", eachTime(provision, 200, "dashboard_url")},
	{"P2", "compares bodies as bytes", before(provision, func(c *call) {
		if strings.HasPrefix(string(c.body), " ") {
			c.editSent(set("space_guid", "elsewhere"))
		}
	})},
	{"P2", "names another operation each time", eachTime(provision, 202, "operation")},
	{"P2", "says of every PUT that it has created the instance", after(provision, func(c *call) {
		if c.status == 200 || c.status == 202 { // identical ones at once get either, by who is faster
			c.reply(201, object{})
		}
	})},
	{"P2", "takes a different PUT for a repeated one", instead(provision, 409, 200, object{})},
	{"P2", "compares no organizations", misreads(provision, set("organization_guid", "any"))},
	{"P2", "compares no parameters", misreads(provision, func(body object) {
		if parameters, there := body["parameters"].(object); there && parameters["size"] != nil {
			delete(body, "parameters")
		}
	})},
	{"P2", "takes a different PUT for a new one", instead(provision, 409, 202, object{"operation": "provision-2"})},
	{"P2", "does not give an id a second time", oneLife},
	{"P2", "keeps instances and bindings in one table", after(bind, func(c *call) {
		if c.instanceID() == c.bindingID() {
			c.reply(409, object{"description": "Taken."})
		}
	})},
	{"P2", "does not tell upper case from lower case", before(anyRoute, func(c *call) {
		if c.URL.RawPath != "" {
			c.URL.Path, c.URL.RawPath = strings.ToLower(c.URL.Path), strings.ToLower(c.URL.RawPath)
		}
	})},
	{"P2", "decodes ids twice", before(anyRoute, func(c *call) {
		if c.URL.RawPath != "" {
			c.URL.RawPath = strings.ReplaceAll(c.URL.RawPath, "%25", "%")
		}
	})},
	{"P2", "has one table of instances for all platforms", oneForAll},
	{"P3", "is asynchronous with everybody", before(provision, acceptsIncomplete)},
	{"P3", "does not look at maintenance_info", misreads(provision, drop("maintenance_info"))},
	{"P3", "does not take maintenance_info", before(provision, func(c *call) {
		if c.sent()["maintenance_info"] != nil {
			c.editSent(set("maintenance_info", object{"version": "0.0.0"}))
		}
	})},
	{"P4", "names operations at length", misreports(provision, set("operation", strings.Repeat("long ", 2_001)))},
	{"P4", "tells of the dashboard later", after(provision, func(c *call) {
		if c.status == 202 {
			c.editAnswered(drop("dashboard_url"))
		}
	})},
	{"P4", "has a list of labels", misreports(provision, set("metadata", object{"labels": []any{"a"}}))},
	{"F1", "shows what there is not", instead(fetch, 404, 200, object{"service_id": ServiceID, "plan_id": "plan-small"})},
	{"F1", "shows another plan", misreports(fetch, set("plan_id", "plan"))},
	{"F1", "shows no parameters", misreports(fetch, drop("parameters"))},
	{"F1", "shows what is being updated", instead(fetch, 422, 200, object{"service_id": ServiceID, "plan_id": "plan-large"})},
	{"F2", "does not show maintenance_info", misreports(fetch, drop("maintenance_info"))},
	{"U1", "changes no plans", misreads(update, drop("plan_id"))},
	{"U1", "changes no parameters", misreads(update, drop("parameters"))},
	{"U1", "forgets parameters when the plan changes", misreads(update, func(body object) {
		if body["parameters"] == nil {
			body["parameters"] = object{}
		}
	})},
	{"U1", "refuses updates that change nothing", instead(update, 200, 422, object{"description": "Nothing to do."})},
	{"U1", "needs no ids", instead(update, 400, 200, object{})},
	{"U1", "updates what there is not", instead(update, 404, 200, object{})},
	{"U1", "is asynchronous with everybody", before(update, acceptsIncomplete)},
	{"U1", "names another operation each time", eachTime(update, 202, "operation")},
	{"U1", "accepts an update during another", instead(update, 422, 202, object{"operation": "update"})},
	{"U2", "needs time for a context", before(update, func(c *call) {
		if sent := c.sent(); sent["context"] != nil && len(sent) == 2 {
			c.editSent(set("parameters", object{"size": 3}))
		}
	})},
	{"U2", "believes previous_values", before(update, func(c *call) {
		if previous, there := c.sent()["previous_values"].(object); there && previous["plan_id"] != "plan-small" {
			c.body = nil
		}
	})},
	{"U2", "does not look at maintenance_info", misreads(update, drop("maintenance_info"))},
	{"U2", "does not take maintenance_info", before(update, func(c *call) {
		if c.sent()["maintenance_info"] != nil {
			c.editSent(set("maintenance_info", object{"version": "0.0.0"}))
		}
	})},
}

var operationDefects = []defect{
	{"L1", "forgets a success once it is told", func() fault {
		told := map[string]bool{}
		return fault{after: func(c *call) {
			if c.route != poll || c.answered()["state"] != "succeeded" {
				return
			}
			if told[c.instanceID()] {
				c.reply(404, object{"description": "Forgotten."})
			}
			told[c.instanceID()] = true
		}}
	}},
	{"L1", "does not say what it waits for", misreports(poll, drop("description"))},
	{"L1", "calls gone what never was", instead(poll, 404, 410, object{"description": "Gone."})},
	{"L1", "calls gone whatever a deletion is said to have been for", after(poll, func(c *call) {
		if c.status == http.StatusNotFound && strings.HasPrefix(c.URL.Query().Get("operation"), "deprovision") {
			c.reply(http.StatusGone, object{"description": "Gone."})
		}
	})},
	{"L1", "polls by the ids", before(poll, func(c *call) {
		if c.URL.Query().Get("service_id") == "" {
			c.URL.Path += "/absent"
		}
	})},
	{"L1", "answers its own operations only", after(poll, func(c *call) {
		if o := c.URL.Query().Get("operation"); c.status == 200 && o != "" && !strings.Contains(o, "-") {
			c.reply(400, object{"description": "What?"})
		}
	})},
	{"L1", "polls by the new plan", func() fault {
		changed := map[string]string{}
		return fault{after: func(c *call) {
			if plan, there := c.sent()["plan_id"].(string); there && c.route == update && c.status == 202 {
				changed[c.instanceID()] = plan
			}
			if plan, there := changed[c.instanceID()]; there && c.route == poll && plan != c.URL.Query().Get("plan_id") {
				c.reply(400, object{"description": "Another plan."})
			}
		}}
	}},
	{"L1", "never ends a deletion", after(poll, func(c *call) {
		if strings.HasPrefix(c.URL.Query().Get("operation"), "deprovision") {
			c.reply(200, object{"state": "in progress"})
		}
	})},
	{"L1", "never is in progress", misreports(poll, set("state", "succeeded"))},
	{"L1", "polls bindings that there are not", instead(pollBind, 404, 200, object{"state": "succeeded"})},
	{"L1", "has states of its own for bindings", misreports(pollBind, set("state", "done"))},
	{"L2", "says soon", after(poll, func(c *call) { c.header.Set("Retry-After", "soon") })},
	{"L2", "does not say when to poll again", after(poll, func(c *call) { c.header.Del("Retry-After") })},
	{"D1", "answers 204 to an unbind", instead(unbind, 200, 204, nil)},
	{"D1", "answers 204 to a deprovision", instead(deprovision, 202, 204, nil)},
	{"D1", "only says that it unbinds", instead(unbind, 410, 200, object{})},
	{"D1", "unbinds all or none", after(unbind, func(c *call) {
		if c.status == 200 {
			path, _, _ := strings.Cut(c.URL.EscapedPath(), "/service_bindings")
			c.also("DELETE", path, c.URL.Query(), nil)
		}
	})},
	{"D1", "gives a binding id its old credentials", misreports(bind, set("credentials", object{"user": "same"}))},
	{"D1", "names another operation each time", eachTime(deprovision, 202, "operation")},
	{"D1", "is asynchronous with everybody", before(deprovision, acceptsIncomplete)},
	{"D1", "updates what is being deleted", instead(update, 422, 200, object{})},
	{"D1", "keeps the instance", func() fault {
		return fault{before: func(c *call) {
			if c.route == deprovision {
				c.Method, c.route = "GET", ""
				c.URL.Path += "/last_operation"
			}
		}}
	}},
	{"D2", "deprovisions what is finished only", finishedOnly(deprovision)},
	{"D2", "unbinds what is finished only", finishedOnly(unbind)},
	{"D2", "resumes a provision when it is polled", after(poll, func(c *call) {
		if c.status == 404 && strings.HasPrefix(c.URL.Query().Get("operation"), "provision") {
			c.reply(200, object{"state": "in progress"})
		}
	})},
	{"O1", "does not find the instances of orphans", instead(deprovision, 410, 404, object{"description": "Not found."})},
	{"O1", "does not find the bindings of orphans", instead(unbind, 410, 404, object{"description": "Not found."})},
}

var bindingDefects = []defect{
	{"B1", "binds without credentials", misreports(bind, drop("credentials"))},
	{"B1", "answers 200 to a first bind", instead(bind, 201, 200, yes)},
	{"B1", "returns credentials before they work", after(bind, func(c *call) {
		if c.status == 202 {
			c.editAnswered(set("credentials", object{"user": "u"}))
		}
	})},
	{"B1", "makes new credentials each time", eachTime(bind, 200, "credentials")},
	{"B1", "takes a different bind for a repeated one", instead(bind, 409, 200, yes)},
	{"B1", "has one set of credentials for all", misreports(bind, set("credentials", object{"user": "same"}))},
	{"B1", "takes every bind for a valid one", instead(bind, 400, 201, yes)},
	{"B1", "binds what is not ready", instead(bind, 422, 201, yes)},
	{"B2", "has ports that are numbers", misreports(bind, set("endpoints", []any{object{"host": "h", "ports": []any{443}}}))},
	{"B2", "has ranges that run backwards", misreports(bind, set("endpoints", []any{object{"host": "h", "ports": []any{"9-1"}}}))},
	{"B2", "has endpoints without a host", misreports(bind, set("endpoints", []any{object{"host": "", "ports": []any{"1"}}}))},
	{"B2", "has protocols of its own", misreports(bind, set("endpoints", []any{object{"host": "h", "ports": []any{"1"}, "protocol": "http"}}))},
	{"B3", "has times without fractions", expiring("2006-01-02T15:04:05Z", time.Hour, time.Hour)},
	{"B3", "has times of some other zone", expiring("2006-01-02T15:04:05.0+02:00", time.Hour, time.Hour)},
	{"B3", "renews after it expires", expiring("2006-01-02T15:04:05.0Z", time.Hour, 2*time.Hour)},
	{"B3", "returns what has expired", expiring("2006-01-02T15:04:05.0Z", -time.Hour, -2*time.Hour)},
	{"B4", "rotates without new credentials", misreports(bind, set("credentials", object{"user": "same"}))},
	{"B4", "revokes the predecessor at once", after(bind, func(c *call) {
		if old, there := c.sent()["predecessor_binding_id"].(string); there && c.status == 201 {
			path := strings.TrimSuffix(c.URL.EscapedPath(), c.bindingID()) + old
			c.also("DELETE", path, url.Values{"service_id": {ServiceID}, "plan_id": {"plan-small"}}, nil)
		}
	})},
	{"B4", "needs the ids of what it rotates", before(bind, func(c *call) {
		if c.sent()["service_id"] == nil {
			c.body = nil
		}
	})},
	{"B4", "takes another rotation for the same", instead(bind, 409, 200, yes)},
	{"B4", "rotates what there is not", misreads(bind, drop("predecessor_binding_id"))},
	{"B5", "returns log drains that nobody permitted", misreports(bind, set("syslog_drain_url", "syslog://example.com"))},
	{"B6", "does not show credentials", misreports(fetchBind, drop("credentials"))},
	{"B6", "shows bindings that there are not", instead(fetchBind, 404, 200, yes)},
}
