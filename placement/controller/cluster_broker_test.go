package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/osbclient/osbtest"
	"github.com/sluice-dev/sluice/placement"
)

// TestBrokersCatalog: what a broker answers decides whether it takes orders. A catalog that is not valid
// replaces none; plans that vanish are named; what may not be ordered is left out.
func TestBrokersCatalog(t *testing.T) {
	var status int
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster, credentials := osbtest.Broker("eu", server.URL)
	cluster.Spec.Broker.Allow, cluster.Spec.Broker.Deny = []string{"a", "b/large"}, []string{"a/free"}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, credentials).Build()
	connections := &member.Connections{Reader: hub, Namespace: "sluice"}
	r := newClusterReconciler(hub, hub, Options{Namespace: "sluice", Connections: connections, Brokers: &osbclient.Brokers{Members: connections}}.complete(), nil)
	w := r.watchOf("eu")
	look := func(code int, answer string) {
		t.Helper()
		status, body = code, answer
		w.nextProbe = time.Time{}
		w.refresh(t.Context(), r, cluster, time.Now())
		w.report(t.Context(), cluster, nil, nil)
	}
	ready := func(want metav1.ConditionStatus, says string) {
		t.Helper()
		c := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != want || !strings.Contains(c.Message, says) {
			t.Errorf("ready is %+v, want %s: %s", c, want, says)
		}
	}
	offers := func(plans, vanished string) {
		t.Helper()
		if has := strings.Join(namesOf(cluster.Status.Broker.Plans), " "); has != plans || strings.Join(cluster.Status.Broker.Vanished, " ") != vanished {
			t.Errorf("it offers %q without %q, want %q without %q", has, cluster.Status.Broker.Vanished, plans, vanished)
		}
	}
	services := func(plans string) string {
		return `{"services": [{"id": "1", "name": "a", "plans": [` + plans + `]}, {"id": "2", "name": "b", "plans": [{"id": "3", "name": "small"}, {"id": "4", "name": "large"}]}]}`
	}
	small, free, extra := `{"id": "5", "name": "small"}`, `{"id": "6", "name": "free"}`, `{"id": "7", "name": "extra"}`

	look(200, services(small+","+free+","+extra))
	ready(metav1.ConditionTrue, "takes placements")
	offers("a/extra a/small b/large", "")
	if cluster.Status.Broker.LeftOut != 2 || !cluster.Status.Allocatable.Name(v1alpha1.ResourceInstances, resource.DecimalSI).Equal(*resource.NewQuantity(unbounded, resource.DecimalSI)) {
		t.Errorf("the status is %+v", cluster.Status)
	}
	look(401, ``)
	ready(metav1.ConditionFalse, "order from it: read the catalog: 401 Unauthorized (its credentials are not accepted: give it others with `sluice broker add`)")
	look(200, `{"services": [{"id": "1", "name": "a", "plans": []}]}`)
	ready(metav1.ConditionFalse, "with a body that is not OSB: services[0]: has no plans")
	offers("a/extra a/small b/large", "")
	look(200, services(small+","+free))
	ready(metav1.ConditionTrue, "takes placements")
	offers("a/small b/large", "a/extra")
	for range toleratedFailures {
		look(503, ``)
	}
	ready(metav1.ConditionFalse, "503 Service Unavailable")
	offers("a/small b/large", "a/extra")
	for range steadyAnswers {
		look(200, services(small+","+extra))
	}
	ready(metav1.ConditionTrue, "takes placements")
	offers("a/extra a/small b/large", "")
	const schema, no, long = `{"type": "object"}`, `{"type": "what"}`, `{"$ref": "https://example.org/schema"}`
	w.ordered = map[string]bool{"a/small": true}
	look(200, services(`{"id": "5", "name": "small", "bindable": true, "schemas": {"service_instance": {"create": {"parameters": `+schema+`}, "update": {"parameters": `+no+`}}, "service_binding": {"create": {"parameters": `+long+`}}}},
		{"id": "7", "name": "extra", "schemas": {"service_instance": {"create": {"parameters": `+schema+`}}}}`))
	if s := cluster.Status.Broker.Schemas; len(s) != 1 || s[0].Plan != "a/small" || string(s[0].InstanceCreate.Raw) != schema || s[0].InstanceUpdate != nil || s[0].BindingCreate != nil {
		t.Errorf("the schemas are %+v", s)
	}
	if p := cluster.Status.Broker.Plans; p[0].Plan != "extra" || !p[0].NotBindable || p[1].NotBindable || !p[1].NotUpdateable {
		t.Errorf("the plans are %+v", p)
	}
	cluster.Status.Broker.Schemas[0].InstanceCreate.Raw = []byte(`{ "type":"object" }`) // as the hub writes it
	kept := &cluster.Status.Broker.Schemas[0]
	w.report(t.Context(), cluster, nil, nil)
	if &cluster.Status.Broker.Schemas[0] != kept {
		t.Error("the same schemas are written again")
	}
	w.ordered = nil
	w.report(t.Context(), cluster, nil, nil)
	if len(cluster.Status.Broker.Schemas) > 0 {
		t.Error("schemas stay that nothing orders by")
	}
	c := placement.ClusterOf(cluster, time.Now())
	if c.Offers["a/small"].PlanID != "5" || !c.Ready || c.Driver != v1alpha1.DriverOSB {
		t.Errorf("the inventory has %+v", c)
	}
}

// Of more plans than the status holds, those that offerings order are kept, wherever the catalog has them.
func TestOrderedPlansOfALongCatalog(t *testing.T) {
	service := osbclient.Service{ID: "s", Name: "s"}
	for i := range maxOffered + 2 {
		service.Plans = append(service.Plans, osbclient.Plan{ID: fmt.Sprint(i), Name: fmt.Sprintf("p%05d", i)})
	}
	last := service.Plans[maxOffered+1].Name
	now := offeredBy(&v1alpha1.UpstreamBroker{}, &osbclient.Catalog{Services: []osbclient.Service{service}}, map[string]bool{"s/" + last: true}, nil)
	names := namesOf(now.Plans)
	if len(names) != maxOffered || now.LeftOut != 2 || !slices.Contains(names, "s/"+last) || !slices.IsSorted(names) {
		t.Errorf("%d plans, %d left out, the last is %s", len(names), now.LeftOut, names[len(names)-1])
	}
}
