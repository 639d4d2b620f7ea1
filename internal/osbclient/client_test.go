package osbclient

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

var first = Credentials{Username: suitetest.FirstUsername, Password: suitetest.FirstPassword}

// open returns a client of a broker that is served on this machine.
func open(t *testing.T, broker http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(broker)
	t.Cleanup(server.Close)
	c, err := New(Config{URL: server.URL, Addresses: loopback, Credentials: first})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var order = Order{ServiceID: suitetest.ServiceID, PlanID: "plan-small", OrganizationGUID: "o", SpaceGUID: "s"}

// done polls until an operation has ended.
func done(t *testing.T, c *Client, accepted Accepted) Operation {
	t.Helper()
	for {
		polled, err := c.LastOperation(t.Context(), "one", order.ServiceID, order.PlanID, accepted.Operation)
		if err != nil {
			t.Fatal(err)
		}
		if polled.State != InProgress {
			return polled
		}
		if polled.RetryAfter != time.Second {
			t.Fatalf("Retry-After is %v, want the broker's second", polled.RetryAfter)
		}
	}
}

// TestLife: an instance and a binding are ordered, changed, fetched and deleted, and each request may be
// repeated.
func TestLife(t *testing.T) {
	c := open(t, &suitetest.Broker{AsyncBind: true})
	ctx := t.Context()
	catalog, err := c.Catalog(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Catalog(ctx); err != nil || again != catalog {
		t.Errorf("the unchanged catalog is transferred again: %v", err)
	}
	plan := catalog.Services[0].Plans[0]
	if plan.Name != "small" || plan.MaximumPollingDuration != 600 || plan.MaintenanceInfo.Version != "1.2.0" || !plan.BindingRotatable || !catalog.Services[0].BindingsRetrievable {
		t.Errorf("the plan is read as %+v of %+v", plan, catalog.Services[0])
	}
	accepted, err := c.Provision(ctx, "one", order)
	again, errAgain := c.Provision(ctx, "one", order)
	if err != nil || errAgain != nil || accepted.Done || !again.Done && again.Operation != accepted.Operation {
		t.Fatalf("provision: %+v, %v; again %+v, %v", accepted, err, again, errAgain)
	}
	if polled := done(t, c, accepted); polled.State != Succeeded {
		t.Fatalf("the provision is %+v", polled)
	}
	if exists, err := c.Exists(ctx, "one", order.ServiceID, order.PlanID); !exists || err != nil {
		t.Errorf("the instance is not there: %v", err)
	}
	accepted, err = c.Update(ctx, "one", Change{ServiceID: order.ServiceID, Parameters: json.RawMessage(`{"fails": true}`)})
	if err != nil {
		t.Fatal(err)
	}
	if polled := done(t, c, accepted); polled.State != Failed || !*polled.UpdateRepeatable || !*polled.InstanceUsable || polled.Description != "It was meant to fail." {
		t.Errorf("the failed update is %+v", polled)
	}

	bindOrder := BindOrder{ServiceID: order.ServiceID, PlanID: order.PlanID}
	bound, accepted, err := c.Bind(ctx, "one", "b", bindOrder, true)
	if err != nil || bound != nil || accepted.Done {
		t.Fatalf("bind: %+v, %+v, %v", bound, accepted, err)
	}
	for polled := (Operation{State: InProgress}); polled.State == InProgress; {
		if polled, err = c.BindingLastOperation(ctx, "one", "b", order.ServiceID, order.PlanID, accepted.Operation); err != nil {
			t.Fatal(err)
		}
	}
	bound, err = c.FetchBinding(ctx, "one", "b", order.ServiceID, order.PlanID)
	if err != nil || !strings.HasPrefix(string(bound.Credentials.Reveal()), "{") || strings.Contains(fmt.Sprintf("%+v", bound), "user") {
		t.Errorf("the binding is %+v, %v", bound, err)
	}
	for accepted.Done = false; !accepted.Done; {
		if accepted, err = c.Unbind(ctx, "one", "b", order.ServiceID, order.PlanID, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	for accepted.Done = false; !accepted.Done; {
		if accepted, err = c.Deprovision(ctx, "one", order.ServiceID, order.PlanID, nil); err != nil {
			t.Fatal(err)
		}
	}
	if exists, err := c.Exists(ctx, "one", order.ServiceID, order.PlanID); exists || err != nil {
		t.Errorf("the instance is still there, %v", err)
	}
}

// answers is a broker that gives the same answer to everything.
func answers(status int, header, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

// TestIDsThatNoURLCanHave: a request whose URL would be that of something else is not sent. Without its id, an unbind is
// the deletion of the instance.
func TestIDsThatNoURLCanHave(t *testing.T) {
	c := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s %s", r.Method, r.URL) }))
	for _, id := range []string{"", ".", ".."} {
		_, unbind := c.Unbind(t.Context(), "one", id, order.ServiceID, order.PlanID, nil, true)
		_, ofBinding := c.Unbind(t.Context(), id, "b", order.ServiceID, order.PlanID, nil, true)
		_, deprovision := c.Deprovision(t.Context(), id, order.ServiceID, order.PlanID, nil)
		_, poll := c.LastOperation(t.Context(), id, order.ServiceID, order.PlanID, "")
		for _, err := range []error{unbind, ofBinding, deprovision, poll} {
			failed := (*Error)(nil)
			if !errors.As(err, &failed) || failed.Status != http.StatusBadRequest || failed.Orphan() || !strings.Contains(err.Error(), fmt.Sprintf("%q is no id that a URL can have", id)) {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	for _, id := range []string{"...", "../x", "%2E%2E"} {
		sent := ""
		c := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = r.URL.Path
			_, _ = w.Write([]byte("{}"))
		}))
		if _, err := c.Unbind(t.Context(), "one", id, order.ServiceID, order.PlanID, nil, true); err != nil || sent != "/v2/service_instances/one/service_bindings/"+id {
			t.Errorf("%q: sent %s, %v", id, sent, err)
		}
	}
}

// TestOrphanMitigation: each answer to a provision means what the table of OSB 2.17, "Orphan Mitigation", says.
func TestOrphanMitigation(t *testing.T) {
	for _, row := range []struct {
		status             int
		header, body, says string
		orphan, repeatable bool
	}{
		{201, "", `[]`, "provision: 201 Created, with a body that is not OSB: wrong type of value: want an object", true, false},
		{202, "", `{"operation": 7}`, "provision: 202 Accepted, with a body that is not OSB", true, false},
		{200, "", `<html>`, "provision: 200 OK, with a body that is not OSB", false, false},
		{204, "", ``, "provision: 204 No Content", true, false},
		{206, "", `{}`, "provision: 206 Partial Content", true, false},
		{302, "Location: http://127.0.0.1:1/", ``, "it redirects, and redirects are not followed", false, false},
		{400, "", `{"description": "size is` + "\\n\\u001b[31m" + ` wrong"}`, "provision: 400 Bad Request: size is [31m wrong", false, false},
		{401, "", ``, "provision: 401 Unauthorized", false, false},
		{401, "", `{"error": "Unauthorized", "description": "wrong"}`, "provision: 401 Unauthorized: wrong", false, false},
		{400, "", `{"error": "BadRequest", "description": "wrong"}`, "provision: 400 Bad Request: wrong", false, false},
		{404, "", `not here`, "provision: 404 Not Found", false, false},
		{408, "", ``, "provision: 408 Request Timeout", false, true},
		{409, "", `{}`, "provision: 409 Conflict", false, false},
		{422, "", `{"error": "ConcurrencyError", "description": "busy"}`, "provision: 422 Unprocessable Entity ConcurrencyError: busy", false, true},
		{422, "", `{"error": "MaintenanceInfoConflict"}`, "MaintenanceInfoConflict", false, false},
		{429, "Retry-After: 7", ``, "provision: 429 Too Many Requests", false, true},
		{500, "", `{"description": "` + strings.Repeat("long ", 1000) + `"}`, "long long…", true, false},
		{503, "Retry-After: 7", `{}`, "provision: 503 Service Unavailable", true, true},
	} {
		_, err := open(t, answers(row.status, row.header, row.body)).Provision(t.Context(), "one", order)
		failed := (*Error)(nil)
		if !errors.As(err, &failed) {
			t.Errorf("%d %s: %v", row.status, row.body, err)
			continue
		}
		if !strings.Contains(err.Error(), row.says) || failed.Orphan() != row.orphan || failed.Repeatable() != row.repeatable {
			t.Errorf("%d %.40s: %v\norphan %t, repeatable %t", row.status, row.body, err, failed.Orphan(), failed.Repeatable())
		}
		if wants := strings.HasPrefix(row.header, "Retry-After"); wants && failed.RetryAfter != 7*time.Second {
			t.Errorf("%d: Retry-After is %v", row.status, failed.RetryAfter)
		}
	}
}

// TestHostileAnswers: an answer that is too long, too deep, of the wrong type, or no answer, is refused in
// bounded time and space, and named.
func TestHostileAnswers(t *testing.T) {
	plan := `"plans": [{"id": "p", "name": "p"}]`
	for name, row := range map[string]struct {
		handler http.Handler
		says    string
	}{
		"endless": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
					return
				}
			}
		}), "longer than 8388608 bytes"},
		"deep":         {answers(200, "", `{"services":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`), "nested more than 64 levels"},
		"an array":     {answers(200, "", `[]`), "want an object"},
		"services":     {answers(200, "", `{"services": {}}`), "services"},
		"a number":     {answers(200, "", `{"services": [{"id": 7}]}`), "id"},
		"twice":        {answers(200, "", `{"services": [], "services": []}`), "services"},
		"trailing":     {answers(200, "", `{"services": []} {}`), "more data"},
		"no plans":     {answers(200, "", `{"services": [{"id": "s", "name": "s", "plans": []}]}`), "services[0]: has no plans"},
		"no id":        {answers(200, "", `{"services": [{"name": "s", `+plan+`}]}`), "services[0]: has no id or no name"},
		"ids twice":    {answers(200, "", `{"services": [{"id": "p", "name": "s", `+plan+`}]}`), `the id "p" is there twice`},
		"names twice":  {answers(200, "", `{"services": [{"id": "s", "name": "s", `+plan+`}, {"id": "t", "name": "s", `+plan+`}]}`), `the name "s" is there twice`},
		"a slash":      {answers(200, "", `{"services": [{"id": "s", "name": "s/t", `+plan+`}]}`), "has a slash"},
		"an escape":    {answers(200, "", `{"services": [{"id": "s", "name": "s`+"\\u001b"+`", `+plan+`}]}`), "is not printable"},
		"a redirect":   {answers(307, "Location: http://169.254.169.254/", ""), "redirects are not followed"},
		"not modified": {answers(304, "", ""), "304 Not Modified"},
		"a cut connection": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"services"`))
			panic(http.ErrAbortHandler)
		}), "no answer"},
	} {
		if _, err := open(t, row.handler).Catalog(t.Context()); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want %q", name, err, row.says)
		}
	}
	hangs := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client has gone
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	failed := (*Error)(nil)
	if _, err := hangs.Provision(ctx, "one", order); !errors.As(err, &failed) || !failed.Orphan() || !failed.Repeatable() {
		t.Errorf("a broker that hangs: %v", err)
	}
	for name, body := range map[string]string{
		"credentials":  `{"credentials": "secret"}`,
		"an endpoint":  `{"endpoints": [{"host": "h", "ports": [80]}]}`,
		"no ports":     `{"endpoints": [{"host": "h"}]}`,
		"a protocol":   `{"endpoints": [{"host": "h", "ports": ["1"], "protocol": "sctp"}]}`,
		"expires_at":   `{"metadata": {"expires_at": "tomorrow"}}`,
		"a long state": `{"operation": "` + strings.Repeat("x", 10_001) + `"}`,
	} {
		_, _, err := open(t, answers(201, "", body)).Bind(t.Context(), "one", "b", BindOrder{}, false)
		if !errors.As(err, &failed) || !failed.Malformed || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOnlyWhereAllowed: private addresses are reached only if the operator allows them, and a certificate has
// to be signed by the operator's authorities. Errors have no credentials.
func TestOnlyWhereAllowed(t *testing.T) {
	server := httptest.NewTLSServer(&suitetest.Broker{})
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, row := range map[string]struct {
		config Config
		says   string // "" if it is reached
	}{
		"private":           {Config{CABundle: bundle}, "address 127.0.0.1 is not public"},
		"another authority": {Config{Addresses: loopback}, "certificate"},
		"allowed":           {Config{Addresses: loopback, CABundle: bundle}, ""},
	} {
		row.config.URL, row.config.Credentials = server.URL, first
		c, err := New(row.config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Catalog(t.Context())
		if (err == nil) != (row.says == "") || err != nil && (!strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), first.Password)) {
			t.Errorf("%s: %v, want %q", name, err, row.says)
		}
	}
}

// TestCredentials: basic, bearer, and what gets a token by the client credentials grant.
func TestCredentials(t *testing.T) {
	broker := httptest.NewServer(&suitetest.Broker{})
	defer broker.Close()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if r.FormValue("grant_type") != "client_credentials" || id != "sluice" || secret != "hush" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`hush is wrong`))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token": "` + suitetest.FirstToken + `", "token_type": "bearer", "expires_in": 60}`))
	}))
	defer tokens.Close()
	oauth := func(secret string) string {
		return fmt.Sprintf(`{"oauth": {"tokenURL": %q, "clientID": "sluice", "clientSecret": %q}}`, tokens.URL, secret)
	}
	for document, says := range map[string]string{
		`{"username": "first", "password": "first-password"}`: "",
		`{"username": "first", "password": "wrong"}`:          "401 Unauthorized",
		`{"token": "first-token"}`:                            "",
		oauth("hush"):                                         "",
		oauth("hush not"):                                     "the token server answers 401 Unauthorized",
	} {
		credentials, err := ParseCredentials([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{URL: broker.URL, Addresses: loopback, Credentials: credentials})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Catalog(t.Context())
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: %v, want %q", document, err, says)
		}
	}
	for _, document := range []string{`{}`, `[]`, `{"username": "a", "token": "b"}`, `{"oauth": {"clientID": "a"}}`, `{"user": "a"}`} {
		if _, err := ParseCredentials([]byte(document)); err == nil {
			t.Errorf("%s are credentials", document)
		}
	}
}
