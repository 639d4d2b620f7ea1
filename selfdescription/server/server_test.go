package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheDescriptionHasEveryRouteAndNoOther(t *testing.T) {
	var described struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(openAPI, &described); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, route := range routes {
		want = append(want, route.method+" "+route.path)
	}
	for path, methods := range described.Paths {
		for method := range methods {
			if method != "parameters" {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-served +described:\n%s", diff)
	}
}

func TestWhatIsNotOursIsHandedOnAsItWasSent(t *testing.T) {
	var got string
	handler := New(Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Method + " " + r.URL.EscapedPath() }))
	for _, sent := range []string{
		"GET /v2/catalog", "GET /v2/service_instances//last_operation", "PUT /v2/service_instances/a%2Fb%2F",
		"GET /v2/../v2/catalog", "DELETE /selfdescriptions", "GET /selfdescriptions/a/b/c",
	} {
		method, path, _ := strings.Cut(sent, " ")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
		if got != sent || recorder.Code != http.StatusOK {
			t.Errorf("%s arrives as %q, answered %d", sent, got, recorder.Code)
		}
	}
}

func TestWhatAnswersGetAnswersHead(t *testing.T) {
	for _, route := range routes {
		if route.method != http.MethodGet {
			continue
		}
		handedOn := false
		handler := New(Options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handedOn = true }))
		func() {
			defer func() { _ = recover() }() // a handler may need the hub, which this test has not
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, strings.NewReplacer("{", "", "}", "").Replace(route.path), nil))
		}()
		if handedOn {
			t.Errorf("HEAD %s is handed on", route.path)
		}
	}
}
