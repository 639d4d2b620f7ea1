package suitetest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

var headerDefects = []defect{
	{"H1", "answers each platform once", func() fault {
		var n int
		return fault{before: func(c *call) {
			if n++; n > 1 {
				speaks("2.1")(c)
			}
		}}
	}},
	{"H1", "shows every client all fields", before(anyRoute, forOlderClients)},
	{"H1", "takes any version", before(anyRoute, speaks("2.17"))},
	{"H1", "refuses versions later than its own", before(anyRoute, func(c *call) {
		if c.Header.Get("X-Broker-API-Version") > "2.17" {
			speaks("2.1")(c)
		}
	})},
	{"H2", "refuses to know the originating identity", before(anyRoute, func(c *call) {
		if c.Header.Get("X-Broker-API-Originating-Identity") != "" {
			c.body = nil
		}
	})},
	{"H2", "does not look at the originating identity", before(anyRoute, func(c *call) { c.Header.Del("X-Broker-API-Originating-Identity") })},
	{"H3", "forgets the request identity of errors", after(anyRoute, func(c *call) {
		if c.status >= 400 {
			c.header.Del("X-Broker-API-Request-Identity")
		}
	})},
	{"H3", "forgets the request identity of successes", after(catalog, func(c *call) { c.header.Del("X-Broker-API-Request-Identity") })},
	{"H4", "lets anybody in", before(anyRoute, asAnybody)},
	{"H4", "lets anybody poll", before(poll, asAnybody)},
	{"H4", "lets anybody unbind", before(unbind, asAnybody)},
	{"H4", "refuses without a challenge", after(anyRoute, func(c *call) { c.header.Del("WWW-Authenticate") })},
	{"H4", "answers 403 to strangers", instead(anyRoute, 401, 403, object{"description": "No."})},
	{"H4", "knows one password only", before(anyRoute, func(c *call) {
		if _, password, _ := c.BasicAuth(); password == FirstPreviousPassword {
			c.Header.Del("Authorization")
		}
	})},
	{"H4", "takes the bearer of a token for another platform", before(anyRoute, func(c *call) {
		if strings.HasPrefix(c.Header.Get("Authorization"), "Bearer first") {
			c.SetBasicAuth(SecondUsername, SecondPassword)
		}
	})},
	{"H4", "takes every body for a valid one", provisionsAnyway},
	{"H4", "halts at fields it does not know", before(provision, func(c *call) {
		if strings.Contains(string(c.body), `"x-`) {
			c.body = nil
		}
	})},
	{"H4", "mixes up the platforms", oneForAll},
	{"H5", "explains errors in plain text", after(anyRoute, func(c *call) {
		if c.status >= 400 {
			c.answer = []byte("error")
			c.header.Set("Content-Type", "text/plain")
		}
	})},
	{"H5", "does not explain errors", after(anyRoute, func(c *call) {
		if c.status >= 400 {
			c.reply(c.status, object{"description": ""})
		}
	})},
	{"H5", "does not say which methods a URL has", after(anyRoute, func(c *call) {
		if c.status == http.StatusMethodNotAllowed {
			c.header.Del("Allow")
		}
	})},
	{"H5", "does not know HEAD", after(anyRoute, func(c *call) {
		if c.Method == http.MethodHead {
			c.reply(http.StatusMethodNotAllowed, object{"description": "Method not allowed."})
		}
	})},
	{"H5", "redirects unclean paths", after(anyRoute, func(c *call) {
		if strings.Contains(c.URL.Path, "//") {
			c.reply(http.StatusMovedPermanently, object{})
		}
	})},
	{"H5", "explains coded errors in its own words", after(anyRoute, func(c *call) {
		if c.status == 422 {
			c.editAnswered(set("description", "Unprocessable."))
		}
	})},
	{"H6", "says only that an update failed", misreports(poll, drop("instance_usable", "update_repeatable", "description"))},
	{"H6", "sees a failed update as done", misreports(poll, func(state object) {
		if state["state"] == "failed" {
			state["state"] = "succeeded"
		}
	})},
	{"H6", "cannot bind what it calls usable", onceFailed(bind)},
	{"H6", "does not repeat what it calls repeatable", onceFailed(update)},
	{"H6", "calls every instance usable", misreports(poll, set("instance_usable", true))},
	{"H6", "tells old clients of usable instances", before(poll, forOlderClients)},
	{"H7", "takes every update for a valid one", instead(update, 400, 200, object{})},
	{"H7", "takes every bind for a valid one", instead(bind, 400, 201, yes)},
	{"H7", "takes all parameters", misreads(provision, drop("parameters"))},
	{"H7", "applies what it refuses", after(update, func(c *call) {
		if c.status >= 400 {
			service := url.Values{"accepts_incomplete": {"true"}}
			c.also("PATCH", c.URL.EscapedPath(), service, object{"service_id": ServiceID, "plan_id": "plan-large"})
		}
	})},
	{"H7", "deletes without the ids", before(deprovision, withAnyIDs)},
	{"H7", "unbinds without the ids", before(unbind, withAnyIDs)},
}

var catalogDefects = []defect{
	{"C1", "gives two plans one id", misreportsPlan(set("id", "plan-large"))},
	{"C1", "does not describe a plan", misreportsPlan(set("description", ""))},
	{"C1", "offers a service without plans", misreportsOffering(set("plans", []any{}))},
	{"C1", "requires what there is not", misreportsOffering(set("requires", []any{"sudo"}))},
	{"C1", "does not say what is bindable", misreportsOffering(drop("bindable"))},
	{"C1", "has null for what is absent", misreportsPlan(set("metadata", nil))},
	{"C1", "lists plans in any order", func() fault {
		var n int
		return fault{after: func(c *call) {
			if n++; c.route == catalog && n%2 == 0 {
				c.editAnswered(func(body object) { slices.Reverse(plansOf(body)) })
			}
		}}
	}},
	{"C1", "provisions what it does not show", misreads(provision, func(body object) {
		if body["plan_id"] == "plan-hidden" {
			body["plan_id"] = "plan-small"
		}
	})},
	{"C2", "does not know conditional requests", before(catalog, func(c *call) { c.Header.Del("If-None-Match") })},
	{"C2", "knows strong comparison only", before(catalog, func(c *call) {
		if strings.HasPrefix(c.Header.Get("If-None-Match"), "W/") {
			c.Header.Del("If-None-Match")
		}
	})},
	{"C2", "takes every entity tag for its own", before(catalog, func(c *call) {
		if c.Header.Get("If-None-Match") != "" {
			c.Header.Set("If-None-Match", "*")
		}
	})},
	{"C2", "has one entity tag for all versions", after(catalog, func(c *call) { c.header.Set("ETag", `"one"`) })},
	{"C2", "compares entity tags before it authenticates", after(catalog, func(c *call) {
		if c.status == 401 && c.Header.Get("If-None-Match") != "" {
			c.reply(304, nil)
		}
	})},
	{"C3", "does not name the dialect of a schema", misreportsSchema(drop("$schema"))},
	{"C3", "refers to schemas elsewhere", misreportsSchema(set("properties", object{"a": object{"$ref": "https://example.com/schema"}}))},
	{"C3", "has schemas of any size", misreportsSchema(set("title", strings.Repeat("long ", 13_000)))},
	{"C4", "says yes for true", misreportsPlan(set("binding_rotatable", "yes"))},
	{"C5", "lets platforms poll for no time", misreportsPlan(set("maximum_polling_duration", 0))},
	{"C5", "has a maintenance version of two numbers", misreportsPlan(set("maintenance_info", object{"version": "1.2"}))},
	{"C5", "cannot retrieve what it calls retrievable", instead(fetchBind, 200, 404, object{"description": "No."})},
}
