package broker

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func identity(platform, value string) sending {
	return header(headerOriginatingIdentity, platform+" "+base64.StdEncoding.EncodeToString([]byte(value)))
}

func encoded(body object) string {
	document, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(document)
}

// TestRefusedRequestsChangeNothing sends malformed and forbidden requests, about instances
// in every state, and compares everything that is stored before and after.
func TestRefusedRequestsChangeNothing(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.BindWait = 0 })
	f.provisioned("ready", planSmall)
	f.want(http.StatusCreated, "PUT", bindingPath("ready", "bound"), binding(planSmall))
	f.fake.does("young", hold)
	f.want(http.StatusAccepted, "PUT", instancePath("young"), order(planSmall))
	f.fake.does("half", hold)
	f.want(http.StatusAccepted, "PUT", bindingPath("ready", "half")+"?accepts_incomplete=true", binding(planSmall))

	const (
		fresh = "/v2/service_instances/fresh?accepts_incomplete=true"
		ready = "/v2/service_instances/ready?accepts_incomplete=true"
		bound = "/v2/service_instances/ready/service_bindings/fresh"
	)
	valid, change, bind := encoded(order(planSmall)), encoded(patch("plan_id", planLarge)), encoded(binding(planSmall))
	deep := `{"parameters":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100) + `,` + valid[1:]
	long := `{"more":"` + strings.Repeat("x", 300<<10) + `",` + valid[1:]
	put := func(fields ...any) string { return encoded(order(planSmall, fields...)) }

	for name, row := range map[string]struct {
		method, path string
		body         string
		how          sending
		status       int
		code         string
	}{
		// Headers.
		"no credentials":                {"PUT", fresh, valid, header("Authorization", ""), 401, "Unauthorized"},
		"a wrong password":              {"PUT", fresh, valid, func(r *http.Request) { r.SetBasicAuth("cf", "wrong") }, 401, "Unauthorized"},
		"an empty password":             {"PUT", fresh, valid, func(r *http.Request) { r.SetBasicAuth("cf", "") }, 401, "Unauthorized"},
		"another platform's password":   {"PUT", fresh, valid, func(r *http.Request) { r.SetBasicAuth("cf", "password-of-k8s") }, 401, "Unauthorized"},
		"the password as a token":       {"PUT", fresh, valid, header("Authorization", "Bearer password-in-use"), 401, "Unauthorized"},
		"an unknown scheme":             {"PUT", fresh, valid, header("Authorization", "Digest x"), 401, "Unauthorized"},
		"basic, not Base64":             {"PUT", fresh, valid, header("Authorization", "Basic %%%"), 401, "Unauthorized"},
		"no version":                    {"PUT", fresh, valid, header(headerVersion, ""), 412, "UnsupportedVersion"},
		"an old version":                {"PUT", fresh, valid, header(headerVersion, "2.12"), 412, "UnsupportedVersion"},
		"another major version":         {"PUT", fresh, valid, header(headerVersion, "3.0"), 412, "UnsupportedVersion"},
		"a version that is none":        {"PUT", fresh, valid, header(headerVersion, "2.seventeen"), 412, "UnsupportedVersion"},
		"a version with a patch":        {"PUT", fresh, valid, header(headerVersion, "2.17.0"), 412, "UnsupportedVersion"},
		"an identity without a value":   {"PUT", fresh, valid, header(headerOriginatingIdentity, "cloudfoundry"), 400, "BadRequest"},
		"an identity not in Base64":     {"PUT", fresh, valid, header(headerOriginatingIdentity, "cloudfoundry {}"), 400, "BadRequest"},
		"an identity of three parts":    {"PUT", fresh, valid, header(headerOriginatingIdentity, "cloudfoundry e30= more"), 400, "BadRequest"},
		"an identity that is an array":  {"PUT", fresh, valid, identity("cloudfoundry", `[]`), 400, "BadRequest"},
		"an identity with a tail":       {"PUT", fresh, valid, identity("cloudfoundry", `{} {}`), 400, "BadRequest"},
		"an identity of no end":         {"PUT", fresh, valid, identity("cloudfoundry", `{"user":1e400}`), 400, "BadRequest"},
		"an identity of another":        {"PUT", fresh, put("context", object{"platform": "kubernetes"}), identity("cloudfoundry", `{}`), 400, "BadRequest"},
		"an identity of another, patch": {"PATCH", ready, encoded(patch("context", object{"platform": "kubernetes"})), identity("cloudfoundry", `{}`), 400, "BadRequest"},
		"an order that comes back":      {"PUT", fresh, valid, header("Via", "1.1 proxy, OSB/2.17 other (Sluice), OSB/2.17 "+hubID), 422, "LoopDetected"},
		"an order via nine":             {"PUT", fresh, valid, header("Via", strings.Repeat("OSB/2.17 other, ", 9)), 422, "LoopDetected"},
		"an order via a long id":        {"PUT", fresh, valid, header("Via", "OSB/2.17 "+strings.Repeat("x", 65)), 400, "BadRequest"},

		// URLs.
		"no such URL":                  {"PUT", "/v2/services/fresh", valid, nil, 404, "NotFound"},
		"no such URL below an id":      {"PUT", "/v2/service_instances/fresh/more", valid, nil, 404, "NotFound"},
		"no such method":               {"POST", fresh, valid, nil, 405, "MethodNotAllowed"},
		"a PUT of the catalog":         {"PUT", "/v2/catalog", valid, nil, 405, "MethodNotAllowed"},
		"an empty id":                  {"PUT", "/v2/service_instances/?accepts_incomplete=true", valid, nil, 404, "NotFound"},
		"an empty id in between":       {"PUT", "/v2/service_instances//service_bindings/b", bind, nil, 404, "NotFound"},
		"an empty binding id":          {"PUT", "/v2/service_instances/ready/service_bindings/", bind, nil, 404, "NotFound"},
		"an id not UTF-8":              {"PUT", "/v2/service_instances/%ff?accepts_incomplete=true", valid, nil, 400, "BadRequest"},
		"an id too long":               {"PUT", "/v2/service_instances/" + strings.Repeat("a", 513) + "?accepts_incomplete=true", valid, nil, 400, "BadRequest"},
		"an id of one dot":             {"PUT", "/v2/service_instances/.?accepts_incomplete=true", valid, nil, 400, "BadRequest"},
		"an id of two dots":            {"PUT", "/v2/service_instances/..?accepts_incomplete=true", valid, nil, 400, "BadRequest"},
		"an id of two encoded dots":    {"PUT", "/v2/service_instances/%2E%2e?accepts_incomplete=true", valid, nil, 400, "BadRequest"},
		"a bind of two dots":           {"PUT", "/v2/service_instances/ready/service_bindings/..", bind, nil, 400, "BadRequest"},
		"an unbind of two dots":        {"DELETE", "/v2/service_instances/ready/service_bindings/%2e%2e?service_id=s&plan_id=p", "", nil, 400, "BadRequest"},
		"a poll of two dots":           {"GET", "/v2/service_instances/../last_operation", "", nil, 400, "BadRequest"},
		"a query that is malformed":    {"PUT", "/v2/service_instances/fresh?accepts_incomplete=%zz", valid, nil, 400, "BadRequest"},
		"accepts_incomplete=1":         {"PUT", "/v2/service_instances/fresh?accepts_incomplete=1", valid, nil, 400, "BadRequest"},
		"accepts_incomplete=TRUE":      {"PUT", "/v2/service_instances/fresh?accepts_incomplete=TRUE", valid, nil, 400, "BadRequest"},
		"accepts_incomplete empty":     {"PUT", "/v2/service_instances/fresh?accepts_incomplete=", valid, nil, 400, "BadRequest"},
		"accepts_incomplete twice":     {"PUT", fresh + "&accepts_incomplete=true", valid, nil, 400, "BadRequest"},
		"accepts_incomplete=yes, bind": {"PUT", bound + "?accepts_incomplete=yes", bind, nil, 400, "BadRequest"},
		"accepts_incomplete=no, patch": {"PATCH", "/v2/service_instances/ready?accepts_incomplete=no", change, nil, 400, "BadRequest"},

		// Bodies.
		"no body":                  {"PUT", fresh, "", nil, 400, "BadRequest"},
		"not JSON":                 {"PUT", fresh, "service_id=a", nil, 400, "BadRequest"},
		"null":                     {"PUT", fresh, "null", nil, 400, "BadRequest"},
		"an array":                 {"PUT", fresh, "[" + valid + "]", nil, 400, "BadRequest"},
		"an open object":           {"PUT", fresh, valid[:len(valid)-1], nil, 400, "BadRequest"},
		"garbage at the end":       {"PUT", fresh, valid + "x", nil, 400, "BadRequest"},
		"a second object":          {"PUT", fresh, valid + valid, nil, 400, "BadRequest"},
		"a member twice":           {"PUT", fresh, `{"service_id":"x",` + valid[1:], nil, 400, "BadRequest"},
		"a member twice, escaped":  {"PUT", fresh, `{"servic\u0065_id":"x",` + valid[1:], nil, 400, "BadRequest"},
		"another case":             {"PUT", fresh, strings.Replace(valid, "service_id", "Service_ID", 1), nil, 400, "BadRequest"},
		"not UTF-8":                {"PUT", fresh, "{\"more\":\"\xff\"," + valid[1:], nil, 400, "BadRequest"},
		"too deep":                 {"PUT", fresh, deep, nil, 400, "BadRequest"},
		"too long":                 {"PUT", fresh, long, nil, 413, "RequestTooLarge"},
		"no service_id":            {"PUT", fresh, put("service_id", absent), nil, 400, "BadRequest"},
		"no plan_id":               {"PUT", fresh, put("plan_id", absent), nil, 400, "BadRequest"},
		"no organization_guid":     {"PUT", fresh, put("organization_guid", absent), nil, 400, "BadRequest"},
		"no space_guid":            {"PUT", fresh, put("space_guid", absent), nil, 400, "BadRequest"},
		"an empty service_id":      {"PUT", fresh, put("service_id", ""), nil, 400, "BadRequest"},
		"an empty plan_id":         {"PUT", fresh, put("plan_id", ""), nil, 400, "BadRequest"},
		"an empty space_guid":      {"PUT", fresh, put("space_guid", ""), nil, 400, "BadRequest"},
		"service_id null":          {"PUT", fresh, put("service_id", nil), nil, 400, "BadRequest"},
		"service_id a number":      {"PUT", fresh, put("service_id", 1), nil, 400, "BadRequest"},
		"plan_id a list":           {"PUT", fresh, put("plan_id", []string{planSmall}), nil, 400, "BadRequest"},
		"parameters a string":      {"PUT", fresh, put("parameters", "{}"), nil, 400, "BadRequest"},
		"parameters an array":      {"PUT", fresh, put("parameters", []int{1}), nil, 400, "BadRequest"},
		"context a string":         {"PUT", fresh, put("context", "cloudfoundry"), nil, 400, "BadRequest"},
		"context.platform is 1":    {"PUT", fresh, put("context", object{"platform": 1}), nil, 400, "BadRequest"},
		"context.platform a list":  {"PATCH", ready, encoded(patch("context", object{"platform": []string{"cloudfoundry"}})), nil, 400, "BadRequest"},
		"maintenance_info a text":  {"PUT", fresh, put("maintenance_info", "1.0.0"), nil, 400, "BadRequest"},
		"an unknown service":       {"PUT", fresh, put("service_id", "nothing"), nil, 400, "BadRequest"},
		"an unknown plan":          {"PUT", fresh, put("plan_id", "nothing"), nil, 400, "BadRequest"},
		"another service's plan":   {"PUT", fresh, put("plan_id", planOther), nil, 400, "BadRequest"},
		"a plan for others":        {"PUT", fresh, put("plan_id", planSecret), nil, 400, "BadRequest"},
		"an unknown parameter":     {"PUT", fresh, put("parameters", object{"x": 1}), nil, 400, "BadRequest"},
		"a parameter out of range": {"PUT", fresh, put("plan_id", planLarge, "parameters", object{"clusters": 4}), nil, 400, "BadRequest"},
		"a parameter of a type":    {"PUT", fresh, put("plan_id", planLarge, "parameters", object{"clusters": "2"}), nil, 400, "BadRequest"},
		"an unknown label":         {"PUT", fresh, put("plan_id", planLarge, "parameters", object{"selector": object{"zone": "a"}}), nil, 400, "BadRequest"},
		"other maintenance_info":   {"PUT", fresh, put("maintenance_info", object{"version": "9.0.0"}), nil, 422, "MaintenanceInfoConflict"},
		"synchronously":            {"PUT", "/v2/service_instances/fresh", valid, nil, 422, "AsyncRequired"},
		"accepts_incomplete=false": {"PUT", "/v2/service_instances/fresh?accepts_incomplete=false", valid, nil, 422, "AsyncRequired"},

		"patch: no body":                   {"PATCH", ready, "", nil, 400, "BadRequest"},
		"patch: no service_id":             {"PATCH", ready, `{"plan_id":"` + planLarge + `"}`, nil, 400, "BadRequest"},
		"patch: an empty plan_id":          {"PATCH", ready, encoded(patch("plan_id", "")), nil, 400, "BadRequest"},
		"patch: plan_id a number":          {"PATCH", ready, encoded(patch("plan_id", 1)), nil, 400, "BadRequest"},
		"patch: parameters a list":         {"PATCH", ready, encoded(patch("parameters", []int{})), nil, 400, "BadRequest"},
		"patch: previous_values a list":    {"PATCH", ready, encoded(patch("previous_values", []int{})), nil, 400, "BadRequest"},
		"patch: garbage at the end":        {"PATCH", ready, change + "]", nil, 400, "BadRequest"},
		"patch: synchronously":             {"PATCH", "/v2/service_instances/ready", change, nil, 422, "AsyncRequired"},
		"bind: no body":                    {"PUT", bound, "", nil, 400, "BadRequest"},
		"bind: no service_id":              {"PUT", bound, encoded(binding(planSmall, "service_id", absent)), nil, 400, "BadRequest"},
		"bind: no plan_id":                 {"PUT", bound, encoded(binding(planSmall, "plan_id", absent)), nil, 400, "BadRequest"},
		"bind: an empty predecessor":       {"PUT", bound, encoded(binding(planSmall, "predecessor_binding_id", "")), nil, 400, "BadRequest"},
		"bind: bind_resource a text":       {"PUT", bound, encoded(binding(planSmall, "bind_resource", "app")), nil, 400, "BadRequest"},
		"bind: bind_resource with numbers": {"PUT", bound, encoded(binding(planSmall, "bind_resource", object{"app_guid": 1})), nil, 400, "BadRequest"},
		"bind: app_guid a number":          {"PUT", bound, encoded(binding(planSmall, "app_guid", 1)), nil, 400, "BadRequest"},

		// Numbers that no hub can store.
		"a context of no end":              {"PUT", fresh, `{"context":{"a":[1e400]},` + valid[1:], nil, 400, "BadRequest"},
		"parameters of no end":             {"PUT", fresh, `{"parameters":{"a":-1e400},` + valid[1:], nil, 400, "BadRequest"},
		"a latitude of no size":            {"PUT", fresh, `{"parameters":{"location":{"latitude":1e-2000000,"longitude":1}},` + valid[1:], nil, 400, "BadRequest"},
		"patch: a context of no end":       {"PATCH", ready, `{"context":{"a":1e400},` + change[1:], nil, 400, "BadRequest"},
		"patch: previous_values so":        {"PATCH", ready, `{"previous_values":{"a":1e400},` + change[1:], nil, 400, "BadRequest"},
		"bind: a bind_resource of no end":  {"PUT", bound, `{"bind_resource":{"a":1e400},` + bind[1:], nil, 400, "BadRequest"},
		"bind: a context of no end":        {"PUT", bound, `{"context":{"a":1e400},` + bind[1:], nil, 400, "BadRequest"},
		"bind: a number with 1,000 digits": {"PUT", bound, `{"context":{"a":1` + strings.Repeat("0", 1000) + `},` + bind[1:], nil, 400, "BadRequest"},

		// Deletions.
		"delete: no ids":                {"DELETE", ready, "", nil, 400, "BadRequest"},
		"delete: no plan_id":            {"DELETE", ready + "&service_id=" + service, "", nil, 400, "BadRequest"},
		"delete: empty ids":             {"DELETE", ready + "&service_id=&plan_id=", "", nil, 400, "BadRequest"},
		"delete: ids twice":             {"DELETE", ready + "&plan_id=a&" + deletion(planSmall), "", nil, 400, "BadRequest"},
		"delete: another service":       {"DELETE", ready + "&service_id=x&plan_id=" + planSmall, "", nil, 400, "BadRequest"},
		"delete: synchronously":         {"DELETE", "/v2/service_instances/ready?" + deletion(planSmall), "", nil, 422, "AsyncRequired"},
		"delete: a young one, so":       {"DELETE", "/v2/service_instances/young?" + deletion(planSmall), "", nil, 422, "AsyncRequired"},
		"unbind: no ids":                {"DELETE", bindingPath("ready", "bound"), "", nil, 400, "BadRequest"},
		"unbind: another service":       {"DELETE", bindingPath("ready", "bound") + "?service_id=x&plan_id=" + planSmall, "", nil, 400, "BadRequest"},
		"unbind: accepts_incomplete=0":  {"DELETE", bindingPath("ready", "bound") + "?accepts_incomplete=0&" + deletion(planSmall), "", nil, 400, "BadRequest"},
		"a different PUT of a half one": {"PUT", bindingPath("ready", "half"), encoded(binding(planSmall, "app_guid", "x")), nil, 409, "Conflict"},
		"a different PUT of a young":    {"PUT", instancePath("young"), put("space_guid", "x"), nil, 409, "Conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			f := f.in(t)
			before := f.listing()
			how := row.how
			if how == nil {
				how = func(*http.Request) {}
			}
			a := f.refused(row.status, row.code, row.method, row.path, row.body, how, header(headerRequestIdentity, "an-id"))
			if got := a.header.Get(headerRequestIdentity); got != "an-id" {
				t.Errorf("request identity %q", got)
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("content type %q", got)
			}
			if got := a.header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("content type options %q", got)
			}
			if challenges := a.header.Values("WWW-Authenticate"); (len(challenges) > 0) != (row.status == 401) {
				t.Errorf("challenges %v with %d", challenges, row.status)
			}
			if f.listing() != before {
				t.Error("something was changed")
			}
		})
	}
}

func TestDescriptionsNameTheField(t *testing.T) {
	f := newFixture(t)
	for field, body := range map[string]object{
		"space_guid":           order(planSmall, "space_guid", ""),
		"/service_id":          order(planSmall, "service_id", 1),
		"plan_id":              order("nothing"),
		"/parameters/clusters": order(planLarge, "parameters", object{"clusters": 9}),
		"/x~1y":                order(planLarge, "parameters", object{"x/y": 9}),
		"context.platform":     order(planLarge, "context", object{"platform": 5}),
		"/context/a/0":         order(planLarge, "context", object{"a": []any{json.Number("1e400")}}),
	} {
		got := f.refused(400, "BadRequest", "PUT", instancePath("a"), body).body["description"].(string)
		if !strings.Contains(strings.ReplaceAll(got, "parameters/", "/parameters/"), field) {
			t.Errorf("description %q does not name %s", got, field)
		}
	}
	for method, path := range map[string]string{"PUT": instancePath("a"), "PATCH": instancePath("b"), "PUT ": bindingPath("a", "b")} {
		if got := f.refused(400, "BadRequest", strings.TrimSpace(method), path, "{").body["description"].(string); !strings.HasPrefix(got, "The body is malformed: ") {
			t.Errorf("%s %s: description %q does not say that the body is malformed", method, path, got)
		}
	}
}

// Who has ordered last is kept with an instance, and with a binding.
func TestIdentitiesAreKept(t *testing.T) {
	f := newFixture(t)
	as := func(user string) sending { return identity("cloudfoundry", `{"user":"`+user+`"}`) }
	of := func(spec *v1alpha1.OriginatingIdentity) string {
		if spec == nil || spec.Platform != "cloudfoundry" {
			return "nobody"
		}
		return string(spec.Value.Raw)
	}
	kept := func(user string) {
		t.Helper()
		if got := of(f.instance("cf-eu", "i").Spec.OriginatingIdentity); got != `{"user":"`+user+`"}` {
			t.Errorf("kept is %s, want %s", got, user)
		}
	}
	f.fake.does("i", fail)
	f.finished("i", f.want(http.StatusAccepted, "PUT", instancePath("i"), order(planSmall, "context", object{"platform": "cloudfoundry"}), as("ann")).operation())
	kept("ann")
	f.fake.does("i", succeed)
	f.finished("i", f.want(http.StatusAccepted, "PUT", instancePath("i"), order(planSmall, "context", object{"platform": "cloudfoundry"}), as("bob")).operation())
	kept("bob")
	f.finished("i", f.want(http.StatusAccepted, "PATCH", instancePath("i"), patch("plan_id", planLarge), as("eve")).operation())
	kept("eve")
	f.want(http.StatusCreated, "PUT", bindingPath("i", "b"), binding(planLarge, "context", object{}), as("joe"))
	if got := of(f.bindingOf("i", "b").Spec.OriginatingIdentity); got != `{"user":"joe"}` {
		t.Errorf("kept with the binding is %s", got)
	}
}

func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		encoded(order(planSmall)), encoded(patch("plan_id", planLarge, "context", object{})), `{"predecessor_binding_id":"a"}`, `{"service_id":"a","plan_id":""}`,
		encoded(binding(planSmall, "bind_resource", object{"app_guid": "a"}, "maintenance_info", object{})), `{"parameters":null}`, `[`, `{"a":1e999}`,
	} {
		f.Add(body)
	}
	s := &server{Options: Options{MaxBodyBytes: defaultBodyBytes}}
	f.Fuzz(func(t *testing.T, body string) {
		call := func() *call {
			r, _ := http.NewRequest("PUT", "/", strings.NewReader(body))
			identity, _ := parseOriginatingIdentity("cloudfoundry e30=")
			return &call{Request: r, identity: identity}
		}
		if request, err := s.decodeProvision(call()); err == nil {
			if request.ServiceID == "" || request.PlanID == "" || request.OrganizationGUID == "" || request.SpaceGUID == "" {
				t.Errorf("accepted without an id: %q", body)
			}
			if !sameObject(request.RawParameters, request.RawParameters) || !json.Valid([]byte(body)) {
				t.Errorf("accepted: %q", body)
			}
		} else if e := response(err, "r"); e.Status >= 500 {
			t.Errorf("%q: %v", body, e)
		}
		if request, err := s.decodeUpdate(call()); err == nil && (request.ServiceID == "" || request.PlanID != nil && *request.PlanID == "") {
			t.Errorf("accepted without an id: %q", body)
		}
		if request, err := s.decodeBind(call()); err == nil && request.PredecessorBindingID == nil && (request.ServiceID == "" || request.PlanID == "") {
			t.Errorf("accepted without an id: %q", body)
		}
	})
}

func FuzzHeadersAndQueries(f *testing.F) {
	f.Add("2.17", "cloudfoundry e30=", "accepts_incomplete=true&service_id=a&plan_id=b&operation=provision-1", "a%2Fb")
	f.Add("2.", "a b c", "%", "%zz")
	f.Fuzz(func(t *testing.T, versionHeader, identityHeader, rawQuery, id string) {
		if v, err := parseVersion(versionHeader); err == nil && (v < oldest || v > newest) {
			t.Errorf("version %q is %d", versionHeader, v)
		}
		if identity, err := parseOriginatingIdentity(identityHeader); err == nil && identity != nil && (identity.Platform == "" || !json.Valid(identity.Value.Raw)) {
			t.Errorf("identity %q is %+v", identityHeader, identity)
		}
		if decoded, err := parseID("instance_id", id); err == nil && (decoded == "" || len(decoded) > maxIDBytes) {
			t.Errorf("id %q is %q", id, decoded)
		}
		query, err := url.ParseQuery(rawQuery)
		if err != nil {
			return
		}
		c := &call{query: query}
		if async, err := c.acceptsIncomplete(); err == nil && async != (query.Get("accepts_incomplete") == "true") {
			t.Errorf("accepts_incomplete of %q is %v", rawQuery, async)
		}
		if serviceID, planID, err := c.ids(); err == nil && (serviceID == "" || planID == "") {
			t.Errorf("ids of %q are empty", rawQuery)
		}
	})
}

func TestIDsOfURLs(t *testing.T) {
	longest := strings.Repeat("ä", maxIDBytes/2)
	for encoded, want := range map[string]string{
		"a": "a", "a%2Fb": "a/b", "%2525": "%25", longest: longest, longest + "a": "", "": "", "%zz": "", "%": "", "%ff": "",
		".": "", "..": "", "%2e%2E": "", "...": "...",
	} {
		if got, err := parseID("instance_id", encoded); got != want || (err == nil) != (want != "") {
			t.Errorf("%.20q became %.20q, %v", encoded, got, err)
		}
	}
}
