package workload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// exposure of the cluster in these tests.
var exposure = &v1alpha1.ClusterExposure{
	Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public", Listener: "https", PodNamespace: "traefik"},
	Domain:  "apps.eu.example", Port: 8443, TLS: &v1alpha1.ExposureTLS{Listener: "tls", Port: 5433},
	TCP:     &v1alpha1.ExposureTCP{First: 30500, Last: 30509},
	Domains: []v1alpha1.ExposureDomain{{Name: "acme.example", Consumers: []v1alpha1.ConsumerReference{{Platform: "cf"}}, Listener: "acme"}},
}

func TestPublicAddressesInCredentials(t *testing.T) {
	o := order(t, "testdata/render/public.yaml")
	o.Plan = o.Plan.DeepCopy()
	o.Plan.Credentials = &runtime.RawExtension{Raw: []byte(`{"url": "${components.web.public.url}/x", "images": "${components.images.public.host}"}`)}
	at, err := o.Addresses(inside, o.Share.exposure(exposure))
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.Credentials(at, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"images":"images-6a1415fee8d446cb.apps.eu.example","url":"https://shop.apps.eu.example:8443/x"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestURLsOfGateways(t *testing.T) {
	for want, e := range map[string]v1alpha1.ClusterExposure{
		"https://a":      {},
		"https://a:8443": {Port: 8443, Protocol: v1alpha1.ExposureHTTPS},
		"http://a":       {Protocol: v1alpha1.ExposureHTTP},
		"http://a:443":   {Protocol: v1alpha1.ExposureHTTP, Port: 443},
	} {
		if got := e.URL("a"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNoPublicPortWithoutAGateway(t *testing.T) {
	const port = "components: [{name: a, ports: [{name: p, port: 80, reach: public, %s}], container: {image: i, resources: {cpu: 1, memory: 1Gi}}}]"
	domain := v1alpha1.ClusterExposure{Domain: "apps.example"}
	granted := domain
	granted.Domains = []v1alpha1.ExposureDomain{{Name: "acme.example", Consumers: []v1alpha1.ConsumerReference{{Platform: "another"}}}}
	for _, row := range []struct {
		asks, want string
		exposure   *v1alpha1.ClusterExposure
	}{
		{"appProtocol: tls", ": the cluster has no Gateway for public ports", nil},
		{"appProtocol: tls", ": the cluster's Gateway passes no TLS through", &domain},
		{"appProtocol: tcp", ": the cluster's Gateway has no ports of plain TCP", &domain},
		{"host: www.acme.example", ".host: www.acme.example is in no domain that is yours on the chosen cluster", &domain},
		{"host: www.acme.example", ".host: www.acme.example is in no domain that is yours on the chosen cluster", &granted},
		{"host: www.acme..example", `.host: "www.acme..example" is not a valid host: `, &domain},
		{`host: "*.acme.example"`, `.host: "*.acme.example" is not a valid host: `, &domain},
	} {
		_, err := planOrder(t, fmt.Sprintf(port, row.asks)).Render(nil, Cluster{Exposure: row.exposure}, "n")
		if want := "components[a].ports[p]" + row.want; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", row.asks, err, want)
		}
	}
}

// A port with a name of Sluice's own would have a NetworkPolicy of that name, for instance of the one that denies all
// traffic.
func TestNoExposedPortHasANameOfSluicesOwn(t *testing.T) {
	ports := []v1alpha1.ExposedPort{{Name: "web", Port: 80}, {Name: "sluice-deny", Port: 81}}
	_, err := sampleBound(Exposing(ports), map[string]any{}).Render(nil, Cluster{Exposure: exposure}, "n")
	if err == nil || err.Error() != "expose[sluice-deny]: names that start with sluice are Sluice's own" {
		t.Errorf("got %v", err)
	}
	if got := PlanOf(&v1alpha1.Decision{Exposed: ports}); len(got.Components) != 1 || got.Components[0].Name != "web" {
		t.Errorf("of a decision of an earlier version, %v is applied", got.Components)
	}
	if got := PlanOf(&v1alpha1.Decision{Exposed: ports[1:]}); got != nil {
		t.Errorf("of a decision of an earlier version, %v is applied", got.Components)
	}
}

// The records lead to the addresses or the name that the operator gives.
func TestRecordsOfHosts(t *testing.T) {
	record := func(kind string, targets ...any) any {
		return map[string]any{"dnsName": "a.example", "recordType": kind, "targets": targets}
	}
	for _, row := range []struct {
		targets []string
		want    []any
	}{
		{[]string{"203.0.113.7"}, []any{record("A", "203.0.113.7")}},
		{[]string{"2001:db8::1", "203.0.113.7", "203.0.113.8"}, []any{record("A", "203.0.113.7", "203.0.113.8"), record("AAAA", "2001:db8::1")}},
		{[]string{"lb.example.org"}, []any{record("CNAME", "lb.example.org")}},
	} {
		if diff := cmp.Diff(row.want, recordsOf("a.example", row.targets)); diff != "" {
			t.Errorf("%v: -want +got\n%s", row.targets, diff)
		}
	}
}

func planOrder(t *testing.T, document string) *Order {
	return sampleBound(planOf(t, document), map[string]any{})
}

func TestHostsAsked(t *testing.T) {
	f, err := FootprintOf(order(t, "testdata/render/public.yaml").Plan, nil, []byte(`{"name": "mine"}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"mine": "components[web].ports[http].host"}, f.Hosts); diff != "" {
		t.Error(diff)
	}
}

func TestRouteProblem(t *testing.T) {
	const (
		spec     = "metadata: {generation: 2}\nspec: {parentRefs: [{namespace: infra, name: public, sectionName: https}]}\n"
		ref      = "{namespace: infra, name: public, sectionName: https}"
		accepted = "{type: Accepted, status: 'True', observedGeneration: 2}"
		resolved = "{type: ResolvedRefs, status: 'True', observedGeneration: 2}"
	)
	status := func(ref string, conditions ...string) string {
		return spec + "status: {parents: [{parentRef: " + ref + ", conditions: [" + strings.Join(conditions, ", ") + "]}]}"
	}
	const silent = "it has not answered yet"
	for _, test := range []struct{ name, route, reason, message string }{
		{"no status", spec, silent, ""},
		{"accepted only", status(ref, accepted), silent, ""},
		{"accepted and resolved", status(ref, accepted, resolved), "", ""},
		{"by another Gateway", status("{namespace: infra, name: private}", accepted, resolved), silent, ""},
		{"by another listener", status("{namespace: infra, name: public, sectionName: http}", accepted, resolved), silent, ""},
		{"of a former spec", status(ref, "{type: Accepted, status: 'True', observedGeneration: 1}", resolved), silent, ""},
		{"refused", status(ref, "{type: Accepted, status: 'False', observedGeneration: 2, reason: NotAllowedByListeners, message: not allowed}", resolved), "Accepted is False (NotAllowedByListeners)", "not allowed"},
		{"unresolved", status(ref, accepted, "{type: ResolvedRefs, status: 'False', observedGeneration: 2, reason: BackendNotFound, message: no web}"), "ResolvedRefs is False (BackendNotFound)", "no web"},
	} {
		t.Run(test.name, func(t *testing.T) {
			route := &unstructured.Unstructured{}
			document, err := yaml.YAMLToJSON([]byte(test.route))
			if err != nil {
				t.Fatal(err)
			}
			if err := decode(document, &route.Object); err != nil {
				t.Fatal(err)
			}
			reason, message := RouteProblem(route)
			if reason != test.reason || message != test.message {
				t.Errorf("got %q, %q; want %q, %q", reason, message, test.reason, test.message)
			}
		})
	}
}
