package broker

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestMethodsAndSlashes(t *testing.T) {
	f := newFixture(t)
	f.provisioned("i", planSmall)
	f.provisioned("a%2Fb", planSmall)
	f.want(http.StatusCreated, "PUT", bindingPath("i", "b"), binding(planSmall))
	server := httptest.NewServer(f.handler)
	t.Cleanup(server.Close)
	const one = "/v2/service_instances/i"
	for name, row := range map[string]struct {
		method, path string
		status       int
		allow        string
	}{
		"POST of the catalog":      {"POST", "/v2/catalog", 405, "GET, HEAD"},
		"POST of an instance":      {"POST", one, 405, "PUT, GET, HEAD, PATCH, DELETE"},
		"PATCH of a binding":       {"PATCH", one + "/service_bindings/b", 405, "PUT, GET, HEAD, DELETE"},
		"PUT of an operation":      {"PUT", one + "/last_operation", 405, "GET, HEAD"},
		"HEAD of the catalog":      {"HEAD", "/v2/catalog", 200, ""},
		"HEAD of an instance":      {"HEAD", one, 200, ""},
		"HEAD of no instance":      {"HEAD", one + "x", 404, ""},
		"HEAD of an operation":     {"HEAD", one + "/last_operation", 200, ""},
		"HEAD of a binding":        {"HEAD", one + "/service_bindings/b", 200, ""},
		"HEAD of its operation":    {"HEAD", one + "/service_bindings/b/last_operation", 200, ""},
		"HEAD of /healthz":         {"HEAD", "/healthz", 200, ""},
		"HEAD of /readyz":          {"HEAD", "/readyz", 200, ""},
		"two slashes in front":     {"GET", "//v2/catalog", 200, ""},
		"two in front of an id":    {"GET", "//v2/service_instances/%69", 200, ""},
		"an encoded one in front":  {"GET", "/%2Fv2/catalog", 404, ""},
		"two in front of a slash":  {"GET", "//v2/service_instances/a%2Fb", 200, ""},
		"a slash at the end":       {"GET", "/v2/catalog/", 404, ""},
		"an instance with a slash": {"GET", one + "/", 404, ""},
		"two slashes in between":   {"GET", "/v2//catalog", 404, ""},
		"an id that is a slash":    {"GET", "/v2/service_instances/%2F", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), row.method, server.URL+row.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.SetBasicAuth("cf", "password-in-use")
			request.Header.Set(headerVersion, "2.17")
			got, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close()
			if got.StatusCode != row.status || got.Header.Get("Allow") != row.allow {
				t.Errorf("got %s, Allow %q; want %d, %q", got.Status, got.Header.Get("Allow"), row.status, row.allow)
			}
		})
	}
}

// TestHiddenAndUnknownServices get the same answer, so that nobody learns what others can
// order.
func TestHiddenAndUnknownServices(t *testing.T) {
	f := newFixture(t)
	hidden := offerings()[1]
	hidden.Status.Accepted.Platforms = []string{"k8s"}
	f.sell(offerings()[0], hidden)
	f.provisioned("mine", planSmall)
	for name, body := range map[string]object{
		"a plan of it":           {"service_id": otherService, "plan_id": planOther},
		"no plan of it":          {"service_id": otherService, "plan_id": "nothing"},
		"another service's plan": {"service_id": otherService, "plan_id": planSmall},
	} {
		t.Run(name, func(t *testing.T) {
			f := f.in(t)
			unknown := with(body, "service_id", "service-nobody")
			for _, method := range []string{"PUT", "PATCH"} {
				got := f.do(method, instancePath("hidden"), with(order(planSmall), "service_id", body["service_id"], "plan_id", body["plan_id"]))
				want := f.do(method, instancePath("hidden"), with(order(planSmall), "service_id", unknown["service_id"], "plan_id", unknown["plan_id"]))
				if got.status != want.status || described(got, otherService) != described(want, "service-nobody") {
					t.Errorf("%s: got %s, want %s", method, got, want)
				}
			}
		})
	}
}

// described returns the description of an answer, without the requested id.
func described(a answer, id string) string {
	text, _ := a.body["description"].(string)
	return strings.ReplaceAll(text, id, "ID")
}

// A broker needs a hub, a catalog, platforms and keys; everything else has a default.
func TestNew(t *testing.T) {
	platforms, err := platformsOf(t, platformsDocument)
	must(t, err)
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	must(t, err)
	sold := &catalog.Catalog{}
	snapshot, err := catalog.Build(offerings(), nil, nil, nil)
	must(t, err)
	sold.Replace(snapshot)
	least := Options{Client: interceptor.NewClient(nil, interceptor.Funcs{}), Namespace: "hub", Catalog: sold, Platforms: platforms, Keys: keys}
	for name, without := range map[string]func(*Options){
		"client":    func(o *Options) { o.Client = nil },
		"namespace": func(o *Options) { o.Namespace = "" },
		"catalog":   func(o *Options) { o.Catalog = nil },
		"platforms": func(o *Options) { o.Platforms = nil },
		"keys":      func(o *Options) { o.Keys = nil },
	} {
		options := least
		without(&options)
		if _, err := New(options); err == nil {
			t.Errorf("made without %s", name)
		}
	}
	registry := prometheus.NewRegistry()
	twice := least
	twice.Registerer = registry
	for _, ok := range []bool{true, false} {
		if _, err := New(twice); (err == nil) != ok {
			t.Errorf("metrics are registered for the first time is %t: %v", ok, err)
		}
	}

	var log syncBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	handler, err := New(least)
	must(t, err)
	f := &fixture{t: t, handler: handler}
	f.want(http.StatusOK, "GET", "/v2/catalog", nil)
	f.refused(http.StatusRequestEntityTooLarge, "RequestTooLarge", "PUT", instancePath("i"), order(planSmall, "more", strings.Repeat("x", defaultBodyBytes)))
	if !strings.Contains(log.String(), "route=catalog") {
		t.Errorf("logged is %s", &log)
	}
}
