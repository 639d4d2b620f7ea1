package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	hubtest.Main(m)
}

// What the fixture's catalog sells.
const (
	service      = "service-resources"
	otherService = "service-other"
	planSmall    = "plan-small" // changeable, bindable, rotatable, maintenance 1.0.0
	planLarge    = "plan-large" // takes parameters, maintenance 2.0.0
	planFixed    = "plan-fixed" // neither bindable nor changeable
	planApp      = "plan-app"   // binds applications only, not rotatable
	planSecret   = "plan-secret"
	planOther    = "plan-other" // of the other service
)

// hubID of the fixture's broker.
const hubID = "4b1a3f5e-0000-4000-8000-000000000000"

const platformsDocument = `
platforms:
- name: cf-eu
  basic:
  - {username: cf, password: password-in-use}
  - {username: cf, password: password-before}
  bearer: [token-of-cf]
  clientCertificateNames: [cf.example.com]
- name: k8s
  basic: [{username: k8s, password: password-of-k8s}]
  deletedLastOperation: succeeded
- name: small
  bearer: [token-of-small]
  limits: {instances: 2, bytes: 32Ki}
`

// fixture is a broker on a real hub, with a fake controller that carries out what
// the broker commits.
type fixture struct {
	t         testing.TB
	handler   http.Handler
	hub       client.WithWatch
	namespace string
	keys      *seal.Keyset
	catalog   *catalog.Catalog
	fake      *fakeController
	log       *syncBuffer
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	hub, err := client.NewWithWatch(hubtest.Start(t).Config, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := platformsOf(t, platformsDocument)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, hub: hub, namespace: hubtest.Namespace(t), keys: keys, catalog: &catalog.Catalog{}, log: &syncBuffer{}}
	f.sell(offerings()...)
	options := Options{
		Client: hub, Namespace: f.namespace, Hub: hubID, Catalog: f.catalog, Platforms: platforms, Keys: keys,
		BindWait: 20 * time.Second, BindTimeout: 20 * time.Second, Clock: clock.RealClock{},
		Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&options)
	}
	if f.handler, err = New(options); err != nil {
		t.Fatal(err)
	}
	f.fake = startFakeController(t, f, options.Clock)
	return f
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// in returns the fixture for a subtest, so that failures are reported there.
func (f *fixture) in(t testing.TB) *fixture {
	t.Helper()
	inner := *f
	inner.t = t
	return &inner
}

// sell replaces the catalog.
func (f *fixture) sell(offerings ...v1alpha1.ServiceOffering) {
	f.t.Helper()
	snapshot, err := catalog.Build(offerings, nil, nil, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.catalog.Replace(snapshot)
}

func offerings() []v1alpha1.ServiceOffering {
	yes, no := true, false
	limits := func(cpu string) *v1alpha1.ResourcesPlan {
		return &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}, Clusters: 1}
	}
	plan := func(id, cpu, maintenance string) v1alpha1.Plan {
		return v1alpha1.Plan{
			ID: id, Name: strings.TrimPrefix(id, "plan-"), Description: "test", Kind: v1alpha1.PlanKindResources, Resources: limits(cpu),
			MaximumPollingDurationSeconds: 3600, Free: &yes, MaintenanceInfo: &v1alpha1.MaintenanceInfo{Version: maintenance},
			DashboardURL: "https://dashboard.example.com/{platform}/{instance_id}/{instance}",
			Credentials:  v1alpha1.CredentialsPolicy{LifetimeSeconds: 3600, RenewBeforeSeconds: 300, Role: "edit"},
		}
	}
	small, large, fixed, app, secret := plan(planSmall, "1", "1.0.0"), plan(planLarge, "4", "2.0.0"), plan(planFixed, "1", "1.0.0"), plan(planApp, "1", "1.0.0"), plan(planSecret, "1", "1.0.0")
	small.DisplayName, small.Bullets = "Small", []string{"1 CPU"}
	small.Costs = []v1alpha1.Cost{{Amount: map[string]resource.Quantity{"eur": resource.MustParse("4.5")}, Unit: "MONTHLY"}}
	large.MaintenanceInfo.Description = "The second edition"
	large.Resources.MaxClusters, large.Resources.Selectable = 3, []string{"region"}
	fixed.Bindable, fixed.PlanUpdateable = &no, &no
	app.Credentials.RequiresApp, app.BindingRotatable = true, &no
	app.Schemas = &v1alpha1.PlanSchemas{BindingCreate: &runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"role":{"enum":["admin"]}}}`)}}
	secret.Platforms = []string{"k8s"}
	spec := func(id, name string, plans ...v1alpha1.Plan) v1alpha1.ServiceOffering {
		return v1alpha1.ServiceOffering{Status: v1alpha1.ServiceOfferingStatus{Accepted: &v1alpha1.ServiceOfferingSpec{
			ID: id, Name: name, Description: "test", Bindable: true, PlanUpdateable: true, BindingRotatable: true, AllowContextUpdates: true, Plans: plans,
		}}}
	}
	return []v1alpha1.ServiceOffering{
		spec(service, "resources", small, large, fixed, app, secret),
		spec(otherService, "other", plan(planOther, "1", "1.0.0")),
	}
}

// object is a JSON object.
type object = map[string]any

// answer is a response with its decoded body.
type answer struct {
	status int
	header http.Header
	body   object
	raw    []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.raw) }

func (a answer) operation() string {
	operation, _ := a.body["operation"].(string)
	return operation
}

// sending changes how a request is sent: asK8s, header, bearer.
type sending func(*http.Request)

func asK8s(r *http.Request) { r.SetBasicAuth("k8s", "password-of-k8s") }

func header(name, value string) sending {
	return func(r *http.Request) {
		if value == "" {
			r.Header.Del(name)
			return
		}
		r.Header.Set(name, value)
	}
}

// do sends a request; body is JSON text, or something to encode.
func (f *fixture) do(method, path string, body any, how ...sending) answer {
	f.t.Helper()
	return f.doWith(context.Background(), method, path, body, how...)
}

func (f *fixture) doWith(ctx context.Context, method, path string, body any, how ...sending) answer {
	f.t.Helper()
	var document []byte
	switch body := body.(type) {
	case nil:
	case string:
		document = []byte(body)
	default:
		var err error
		if document, err = json.Marshal(body); err != nil {
			f.t.Fatal(err)
		}
	}
	request := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(document))
	request.SetBasicAuth("cf", "password-in-use")
	request.Header.Set(headerVersion, "2.17")
	for _, h := range how {
		h(request)
	}
	recorder := httptest.NewRecorder()
	f.handler.ServeHTTP(recorder, request)
	a := answer{status: recorder.Code, header: recorder.Header(), raw: recorder.Body.Bytes()}
	if strings.Contains(recorder.Body.String(), "10.0.0.7") || strings.Contains(recorder.Body.String(), "cpu free") {
		f.t.Errorf("%s %s shows a platform what is for operators: %s", method, path, a.raw)
	}
	if len(a.raw) > 0 {
		if err := json.Unmarshal(a.raw, &a.body); err != nil {
			f.t.Fatalf("%s %s: %d with a body that is no JSON object: %s", method, path, a.status, a.raw)
		}
	}
	return a
}

// want sends a request and fails the test unless the status is as wanted.
func (f *fixture) want(status int, method, path string, body any, how ...sending) answer {
	f.t.Helper()
	a := f.do(method, path, body, how...)
	if a.status != status {
		f.t.Fatalf("%s %s: %s, want status %d", method, path, a, status)
	}
	return a
}

// refused sends a request and fails the test unless it gets this status and code.
func (f *fixture) refused(status int, code, method, path string, body any, how ...sending) answer {
	f.t.Helper()
	a := f.want(status, method, path, body, how...)
	if a.body["error"] != code || a.body["description"] == "" {
		f.t.Fatalf("%s %s: %s, want error %s with a description", method, path, a, code)
	}
	return a
}

// with changes a valid body.
func with(body object, fields ...any) object {
	out := object{}
	for k, v := range body {
		out[k] = v
	}
	for i := 0; i < len(fields); i += 2 {
		if name := fields[i].(string); fields[i+1] == absent {
			delete(out, name)
		} else {
			out[name] = fields[i+1]
		}
	}
	return out
}

// absent, as a value given to with, removes the field.
var absent = &struct{}{}

// order is the body of a valid provision.
func order(plan string, fields ...any) object {
	return with(object{"service_id": service, "plan_id": plan, "organization_guid": "org", "space_guid": "space"}, fields...)
}

// binding is the body of a valid bind.
func binding(plan string, fields ...any) object {
	return with(object{"service_id": service, "plan_id": plan}, fields...)
}

func instancePath(id string) string {
	return "/v2/service_instances/" + id + "?accepts_incomplete=true"
}

func bindingPath(id, bindingID string) string {
	return "/v2/service_instances/" + id + "/service_bindings/" + bindingID
}

func deletion(plan string) string { return "service_id=" + service + "&plan_id=" + plan }

// provisioned makes an instance that is ready.
func (f *fixture) provisioned(id, plan string, fields ...any) {
	f.t.Helper()
	a := f.want(http.StatusAccepted, "PUT", instancePath(id), order(plan, fields...))
	f.finished(id, a.operation())
}

// finished waits until an operation is over and returns the answer to that poll.
func (f *fixture) finished(id, operation string, how ...sending) answer {
	f.t.Helper()
	return f.eventually("the end of "+operation+" of "+id, func() (answer, bool) {
		a := f.do("GET", "/v2/service_instances/"+id+"/last_operation?operation="+operation, nil, how...)
		return a, a.status != http.StatusOK || a.body["state"] != "in progress"
	})
}

// eventually repeats a request until the answer is as wanted.
func (f *fixture) eventually(what string, ask func() (answer, bool)) answer {
	f.t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		a, ok := ask()
		if ok {
			return a
		}
		select {
		case <-deadline.C:
			f.t.Fatalf("waited in vain for %s: %s", what, a)
		case <-tick.C:
		}
	}
}

// listing is every resource of the namespace with its version: equal listings mean
// that nothing was changed.
func (f *fixture) listing() string {
	f.t.Helper()
	var out strings.Builder
	var instances v1alpha1.ServiceInstanceList
	var bindings v1alpha1.ServiceBindingList
	for _, list := range []client.ObjectList{&instances, &bindings} {
		if err := f.hub.List(context.Background(), list, client.InNamespace(f.namespace)); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, i := range instances.Items {
		fmt.Fprintf(&out, "%s %s\n", i.Name, i.ResourceVersion)
	}
	for _, b := range bindings.Items {
		fmt.Fprintf(&out, "%s %s\n", b.Name, b.ResourceVersion)
	}
	return out.String()
}

// syncBuffer is a log that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*syncBuffer)(nil)

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
