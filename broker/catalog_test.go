package broker

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// names are the names in a catalog: "offering/plan".
func names(a answer) (out []string) {
	for _, s := range a.body["services"].([]any) {
		for _, p := range s.(object)["plans"].([]any) {
			out = append(out, s.(object)["name"].(string)+"/"+p.(object)["name"].(string))
		}
	}
	return out
}

func TestCatalog(t *testing.T) {
	f := newFixture(t)
	full := f.want(http.StatusOK, "GET", "/v2/catalog", nil)

	t.Run("a platform sees what is open to it", func(t *testing.T) {
		if got, want := names(full), []string{"other/other", "resources/small", "resources/large", "resources/fixed", "resources/app"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := names(f.in(t).want(http.StatusOK, "GET", "/v2/catalog", nil, asK8s)); !slices.Contains(got, "resources/secret") {
			t.Errorf("k8s sees %v", got)
		}
	})

	t.Run("a plan says all that OSB lets it say", func(t *testing.T) {
		resources := full.body["services"].([]any)[1].(object)
		for field, want := range map[string]any{
			"id": service, "bindable": true, "plan_updateable": true, "instances_retrievable": true, "bindings_retrievable": true, "allow_context_updates": true,
		} {
			if resources[field] != want {
				t.Errorf("%s is %v", field, resources[field])
			}
		}
		small := resources["plans"].([]any)[0].(object)
		delete(small, "schemas")
		want := object{
			"id": planSmall, "name": "small", "description": "test", "free": true, "plan_updateable": true, "binding_rotatable": true,
			"maximum_polling_duration": 3600.0, "maintenance_info": object{"version": "1.0.0"},
			"metadata": object{
				"displayName": "Small", "bullets": []any{"1 CPU"}, "costs": []any{object{"amount": object{"eur": 4.5}, "unit": "MONTHLY"}}, "sluice": object{"hub": hubID, "depth": 1.0},
			},
		}
		if !reflect.DeepEqual(small, want) {
			t.Errorf("got  %v\nwant %v", small, want)
		}
		fixed := resources["plans"].([]any)[2].(object)
		if fixed["bindable"] != false || fixed["plan_updateable"] != false || fixed["binding_rotatable"] != false {
			t.Errorf("fixed: %v", fixed)
		}
		large := resources["plans"].([]any)[1].(object)["schemas"].(object)["service_instance"].(object)["create"].(object)["parameters"].(object)
		if large["$schema"] != "http://json-schema.org/draft-04/schema#" || large["properties"].(object)["clusters"].(object)["maximum"] != 3.0 {
			t.Errorf("schema %v", large)
		}
	})

	for version, unknown := range map[string][]string{
		"2.13": {"instances_retrievable", "bindings_retrievable", "allow_context_updates", "maximum_polling_duration", "maintenance_info", "binding_rotatable"},
		"2.14": {"allow_context_updates", "maximum_polling_duration", "maintenance_info", "binding_rotatable"},
		"2.15": {"binding_rotatable"},
		"2.16": {"binding_rotatable"},
		"2.99": nil,
	} {
		t.Run(version+" shows no field that came later", func(t *testing.T) {
			text := string(f.in(t).want(http.StatusOK, "GET", "/v2/catalog", nil, header(headerVersion, version)).raw)
			for _, field := range []string{
				"instances_retrievable", "bindings_retrievable", "allow_context_updates", "maximum_polling_duration", "maintenance_info", "binding_rotatable",
			} {
				if got, want := strings.Contains(text, `"`+field+`"`), !slices.Contains(unknown, field); got != want {
					t.Errorf("has %s: %v", field, got)
				}
			}
		})
	}
}

func TestCatalogIsFetchedConditionally(t *testing.T) {
	f := newFixture(t)
	first := f.want(http.StatusOK, "GET", "/v2/catalog", nil)
	tag, modified := first.header.Get("ETag"), first.header.Get("Last-Modified")

	for name, row := range map[string]struct {
		header, value string
		status        int
	}{
		"its ETag":                 {"If-None-Match", tag, 304},
		"its ETag, weak":           {"If-None-Match", "W/" + tag, 304},
		"its ETag in a list":       {"If-None-Match", `"x", ` + tag, 304},
		"any ETag":                 {"If-None-Match", "*", 304},
		"another ETag":             {"If-None-Match", `"x"`, 200},
		"its date":                 {"If-Modified-Since", modified, 304},
		"a later date":             {"If-Modified-Since", "Fri, 31 Dec 2100 23:59:59 GMT", 200},
		"the ETag of what is sold": {"If-None-Match", f.want(http.StatusOK, "GET", "/v2/catalog", nil, asK8s).header.Get("ETag"), 200},
	} {
		t.Run(name, func(t *testing.T) {
			a := f.in(t).want(row.status, "GET", "/v2/catalog", nil, header(row.header, row.value))
			if a.header.Get("ETag") != tag || (row.status == 304) != (len(a.raw) == 0) {
				t.Errorf("ETag %s, %d bytes", a.header.Get("ETag"), len(a.raw))
			}
		})
	}

	t.Run("an ETag outranks a date", func(t *testing.T) {
		f.in(t).want(http.StatusOK, "GET", "/v2/catalog", nil, header("If-None-Match", `"x"`), header("If-Modified-Since", modified))
	})

	t.Run("a change of the catalog changes both", func(t *testing.T) {
		f := f.in(t)
		f.sell(offerings()[:1]...)
		second := f.want(http.StatusOK, "GET", "/v2/catalog", nil, header("If-None-Match", tag))
		if second.header.Get("ETag") == tag || second.header.Get("Last-Modified") == modified {
			t.Errorf("ETag %s, Last-Modified %s", second.header.Get("ETag"), second.header.Get("Last-Modified"))
		}
	})
}

func TestHealthNeedsNoCredentials(t *testing.T) {
	f := newFixture(t)
	none := header("Authorization", "")
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := f.want(http.StatusOK, "GET", path, nil, none); string(a.raw) != "{}" {
			t.Errorf("%s: %s", path, a)
		}
	}
	f.want(http.StatusUnauthorized, "POST", "/healthz", nil, none)
	empty := newFixture(t, func(o *Options) { o.Catalog = &catalog.Catalog{} })
	empty.want(http.StatusServiceUnavailable, "GET", "/readyz", nil, none)
}

// BenchmarkCatalog measures GET /v2/catalog through the whole handler.
func BenchmarkCatalog(b *testing.B) {
	f := newFixture(b)
	for _, row := range []struct{ name, tag string }{
		{"full", ""}, {"not modified", f.want(http.StatusOK, "GET", "/v2/catalog", nil).header.Get("ETag")},
	} {
		b.Run(row.name, func(b *testing.B) {
			request := httptest.NewRequest("GET", "/v2/catalog", nil)
			request.SetBasicAuth("cf", "password-in-use")
			request.Header.Set(headerVersion, "2.17")
			request.Header.Set("If-None-Match", row.tag)
			b.ReportAllocs()
			for b.Loop() {
				f.handler.ServeHTTP(httptest.NewRecorder(), request)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// TestPlanMetadataSaysWhatIsProven: proven facts, and which Sluices orders come to, come only from the broker.
func TestPlanMetadataSaysWhatIsProven(t *testing.T) {
	forged := &runtime.RawExtension{Raw: []byte(`{"selfDescriptions": ["L3"], "proven": {"everyCluster": true}, "sluice": {"hub": "x", "depth": 1}, "color": "blue"}`)}
	plan := &catalog.Plan{Plan: v1alpha1.Plan{Metadata: forged}, Withdrawn: true, Behind: catalog.Behind{Hubs: []string{"i"}, Depth: 1}}
	for name, row := range map[string]struct {
		facts *catalog.Facts
		want  string
	}{
		"nothing": {nil, `{"color":"blue","sluice":{"hub":"h","behind":["i"],"depth":2},"withdrawn":true}`},
		"something": {
			&catalog.Facts{
				SelfDescriptions: []catalog.SelfDescription{{
					Type: "ComputeServiceOffering", Href: "/selfdescriptions/3f", MediaType: "application/vc+jwt", DigestSRI: "sha256-Pw==",
					Issuer: "did:web:provider.example", ValidUntil: "2027-02-01T00:00:00Z", Verification: "verified", Countries: []string{"DE"}, LabelLevel: "L1",
				}},
				Countries: []string{"DE", "US"}, LabelLevels: []string{"L1"},
			},
			`{"color":"blue","proven":{"everyCluster":false,"countries":["DE","US"],"labelLevels":["L1"]},` +
				`"selfDescriptions":[{"type":"ComputeServiceOffering","href":"/selfdescriptions/3f","mediaType":"application/vc+jwt","digestSRI":"sha256-Pw==",` +
				`"issuer":"did:web:provider.example","validUntil":"2027-02-01T00:00:00Z","verification":"verified","countries":["DE"],"labelLevel":"L1"}],"sluice":{"hub":"h","behind":["i"],"depth":2},"withdrawn":true}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(planMetadata(plan, row.facts, "h"))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// An offering says all that OSB lets it say.
func TestCatalogOfAnOffering(t *testing.T) {
	o := offerings()[1]
	spec := o.Status.Accepted
	spec.Tags, spec.Requires, spec.Metadata = []string{"a", "b"}, []string{"syslog_drain", "route_forwarding"}, &runtime.RawExtension{Raw: []byte(`{"color":"blue"}`)}
	spec.DashboardClient = &v1alpha1.DashboardClient{ID: "id", Secret: "secret", RedirectURI: "https://dashboard.example.com"}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{o}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := catalogResponse(snapshot, "h", "cf-eu", v17)
	body.Services[0].Plans = nil
	got, err := json.Marshal(body)
	const want = `{"services":[{"id":"service-other","name":"other","description":"test","bindable":true,"instances_retrievable":true,"bindings_retrievable":true,"tags":["a","b"],` +
		`"plan_updateable":true,"requires":["syslog_drain","route_forwarding"],"dashboard_client":{"id":"id","secret":"secret","redirect_uri":"https://dashboard.example.com"},` +
		`"allow_context_updates":true,"metadata":{"color":"blue"},"plans":null}]}`
	if err != nil || !sameObject(got, []byte(want)) {
		t.Errorf("%v, got  %s\nwant %s", err, got, want)
	}
	if empty, err := json.Marshal(catalogResponse(snapshot, "h", "cf-eu", v17).Services[0].Plans[0].Schemas); err != nil || !strings.Contains(string(empty), `"service_binding"`) {
		t.Errorf("%v, schemas of a plan that can be bound: %s", err, empty)
	}
	o.Status.Accepted.Bindable = false
	if snapshot, err = catalog.Build([]v1alpha1.ServiceOffering{o}, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if none, err := json.Marshal(catalogResponse(snapshot, "h", "cf-eu", v17).Services[0].Plans[0].Schemas); err != nil || strings.Contains(string(none), `"service_binding"`) {
		t.Errorf("%v, schemas of a plan that cannot: %s", err, none)
	}
}

// Two revisions of the catalog never have the same date, and the date of one never changes.
func TestDatesOfTheCatalog(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 500, time.UTC)
	now := func() time.Time { return at }
	var documents catalogDocuments
	modified := func(offerings ...v1alpha1.ServiceOffering) string {
		t.Helper()
		snapshot, err := catalog.Build(offerings, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []version{v17, v16} {
			if _, err := documents.get(snapshot, "h", "cf-eu", v, now); err != nil {
				t.Fatal(err)
			}
		}
		document, err := documents.get(snapshot, "h", "cf-eu", v17, now)
		if err != nil {
			t.Fatal(err)
		}
		return document.modified
	}
	both := offerings()
	for _, row := range []struct {
		offerings []v1alpha1.ServiceOffering
		after     time.Duration
		want      string
	}{
		{both, 0, "Fri, 20 Nov 2026 12:00:00 GMT"},
		{both, time.Minute, "Fri, 20 Nov 2026 12:00:00 GMT"},
		{both[:1], 0, "Fri, 20 Nov 2026 12:01:00 GMT"},
		{both[1:], 0, "Fri, 20 Nov 2026 12:01:01 GMT"},
		{both, -time.Hour, "Fri, 20 Nov 2026 12:01:02 GMT"},
	} {
		at = at.Add(row.after)
		if got := modified(row.offerings...); got != row.want {
			t.Errorf("at %s: modified %s, want %s", at, got, row.want)
		}
	}
}
