package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

func TestErrorsBecomeResponses(t *testing.T) {
	resource := schema.GroupResource{Resource: "serviceinstances"}
	for name, row := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"our own, wrapped":         {fmt.Errorf("doing: %w", errAsyncRequired), 422, "AsyncRequired"},
		"the first of several":     {errors.Join(badRequest("a"), errAsyncRequired), 400, "BadRequest"},
		"malformed JSON":           {&strictjson.Error{Kind: strictjson.Syntax}, 400, "BadRequest"},
		"JSON that is too large":   {&strictjson.Error{Kind: strictjson.TooLarge}, 413, "RequestTooLarge"},
		"an unknown service":       {fmt.Errorf("x: %w", &catalog.UnknownServiceError{}), 400, "BadRequest"},
		"an unknown plan":          {&catalog.UnknownPlanError{}, 400, "BadRequest"},
		"a parameter":              {&catalog.ParameterError{}, 400, "BadRequest"},
		"too large for the hub":    {apierrors.NewRequestEntityTooLargeError("x"), 413, "RequestTooLarge"},
		"the hub is away":          {apierrors.NewServiceUnavailable("x"), 503, "Unavailable"},
		"etcd does not answer":     {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), 503, "Unavailable"},
		"the hub is overloaded":    {apierrors.NewTooManyRequests("x", 1), 503, "Unavailable"},
		"the hub is slow":          {apierrors.NewServerTimeout(resource, "get", 1), 503, "Unavailable"},
		"a conflict that stays":    {apierrors.NewConflict(resource, "a", errors.New("x")), 503, "Unavailable"},
		"a key is not read yet":    {fmt.Errorf("x: %w", seal.ErrUnknownKey), 503, "Unavailable"},
		"the client hung up":       {context.Canceled, 503, "Unavailable"},
		"our patience is over":     {fmt.Errorf("x: %w", context.DeadlineExceeded), 503, "Unavailable"},
		"anything else":            {errors.New("secret detail"), 500, "InternalError"},
		"what the hub finds wrong": {apierrors.NewBadRequest("secret detail"), 500, "InternalError"},
	} {
		t.Run(name, func(t *testing.T) {
			e := response(row.err, "request-7")
			if e.Status != row.status || e.Code != row.code {
				t.Errorf("got %d %s, want %d %s", e.Status, e.Code, row.status, row.code)
			}
			if e.Status == 500 && (strings.Contains(e.Description, "secret") || !strings.Contains(e.Description, "request-7")) {
				t.Errorf("description %q", e.Description)
			}
			if e.Description == "" {
				t.Error("no description")
			}
		})
	}
}

// panickingHub has a defect.
type panickingHub struct{ client.WithWatch }

func (panickingHub) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	panic("a defect")
}

func TestPanicIsAnInternalError(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Client = panickingHub{o.Client} })
	a := f.refused(500, "InternalError", "GET", "/v2/service_instances/i", nil, header(headerRequestIdentity, "the-request"))
	if !strings.Contains(a.body["description"].(string), "the-request") || a.header.Get(headerRequestIdentity) != "the-request" {
		t.Errorf("got %s", a)
	}
	if log := f.log.String(); !strings.Contains(log, "a defect") || !strings.Contains(log, "level=ERROR") {
		t.Errorf("the log does not say what happened:\n%s", log)
	}
}

func TestRequestsAreRecordedWithoutTheirContent(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := newFixture(t, func(o *Options) { o.Registerer = registry })
	f.want(202, "PUT", instancePath("hush-id"), order(planLarge, "parameters", object{"selector": object{"region": "hush-value"}}),
		identity("cloudfoundry", `{"user":"hush-user"}`))
	f.want(400, "PUT", instancePath("other"), order(planLarge, "parameters", object{"hush-name": "hush-value"}))
	f.want(200, "GET", "/v2/service_instances/hush-id/last_operation", nil)
	log := f.log.String()
	for line := range strings.Lines(log) {
		if isPoll := strings.Contains(line, "route=last_operation"); isPoll == strings.Contains(line, "level=INFO") {
			t.Errorf("the level of polls and of nothing else is lower: %s", line)
		}
	}
	for _, want := range []string{"route=provision", "status=202", "platform=cf-eu", "instance=si-", "status=400", "error=BadRequest", "duration="} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	for _, absent := range []string{"note=", "binding="} {
		if strings.Contains(log, absent) {
			t.Errorf("the log has %s where there is none:\n%s", absent, log)
		}
	}
	if strings.Contains(log, "hush") {
		t.Errorf("the log shows what it should not:\n%s", log)
	}
	if n, err := testutil.GatherAndCount(registry, "sluice_broker_request_duration_seconds", "sluice_broker_operations_total"); err != nil || n < 3 {
		t.Errorf("%d metrics, %v", n, err)
	}
	if _, err := newMetrics(registry); err == nil {
		t.Error("metrics registered twice")
	}
}

func TestAcceptedWithoutAnIdentityGetsOne(t *testing.T) {
	f := newFixture(t)
	if id := f.want(http.StatusOK, "GET", "/v2/catalog", nil).header.Get(headerRequestIdentity); len(id) < 16 {
		t.Errorf("request identity %q", id)
	}
}

func TestSame(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{``, `{}`, true},
		{`{"a":1,"b":[{"c":null}]}`, `{ "b":[{"c":null}], "a":1.0 }`, true},
		{`{"a":12345678901234567890}`, `{"a":1.2345678901234567e19}`, true},
		{`{"a":1e2}`, `{"a":100}`, true},
		{`{"a":1.5}`, `{"a":1.25}`, false},
		{`{"a":"1"}`, `{"a":"1"}`, true},
		{`{"a":[1]}`, `{"a":[1,2]}`, false},
		{`{"a":[]}`, `{"a":{}}`, false},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":{}}`, `{"a":null}`, false},
		{`{"a":true}`, `{"a":false}`, false},
	} {
		if got := sameObject([]byte(row.a), []byte(row.b)); got != row.want {
			t.Errorf("%s and %s: %v", row.a, row.b, got)
		}
		if got := sameObject([]byte(row.b), []byte(row.a)); got != row.want {
			t.Errorf("%s and %s: %v", row.b, row.a, got)
		}
	}
}

// Each operation that is accepted is counted once, however often it is asked for.
func TestOperationsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := newFixture(t, func(o *Options) { o.Registerer = registry })
	f.fake.does("failed", fail)
	f.finished("failed", f.want(http.StatusAccepted, "PUT", instancePath("failed"), order(planSmall)).operation())
	f.want(http.StatusAccepted, "PUT", instancePath("failed"), order(planSmall))
	f.provisioned("i", planSmall)
	f.want(http.StatusOK, "PUT", instancePath("i"), order(planSmall))
	f.want(http.StatusCreated, "PUT", bindingPath("i", "b"), binding(planSmall))
	f.want(http.StatusOK, "PUT", bindingPath("i", "b"), binding(planSmall))
	f.want(http.StatusOK, "DELETE", bindingPath("i", "b")+"?"+deletion(planSmall), nil)
	f.finished("i", f.want(http.StatusAccepted, "PATCH", instancePath("i"), patch("plan_id", planLarge)).operation())
	f.fake.does("i", hold)
	for range 2 {
		f.want(http.StatusAccepted, "DELETE", instancePath("i")+"&"+deletion(planLarge), nil)
	}
	families, err := registry.Gather()
	must(t, err)
	var got []string
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() == "sluice_broker_operations_total" {
				got = append(got, fmt.Sprintf("%s of %s: %g", m.Label[0].GetValue(), m.Label[1].GetValue(), m.Counter.GetValue()))
			}
		}
	}
	if want := []string{"bind of small: 1", "deprovision of large: 1", "provision of small: 3", "unbind of small: 1", "update of large: 1"}; !slices.Equal(got, want) {
		t.Errorf("counted are %q, want %q", got, want)
	}
}

// A bind is the same if it asks for the same; what a rotation leaves out is its predecessor's.
func TestSameBinding(t *testing.T) {
	raw := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	stored := v1alpha1.ServiceBindingSpec{
		ServiceID: "s", AppGUID: "app", BindResource: raw(`{"app_guid":"app"}`), Parameters: raw(`{"role":"admin"}`), Context: raw(`{"platform":"cloudfoundry"}`),
	}
	const whole = `{"service_id":"s","app_guid":"app","bind_resource":{"app_guid":"app"},"parameters":{"role":"admin"},"context":{"platform":"cloudfoundry"}`
	for name, row := range map[string]struct {
		predecessor, request string
		want                 bool
	}{
		"all":                               {"", whole + "}", true},
		"with another service":              {"", strings.Replace(whole, `"s"`, `"t"`, 1) + "}", false},
		"without parameters":                {"", strings.Replace(whole, "parameters", "more", 1) + "}", false},
		"as a rotation":                     {"", whole + `,"predecessor_binding_id":"old"}`, false},
		"all of a rotation":                 {"old", whole + `,"predecessor_binding_id":"old"}`, true},
		"the least of a rotation":           {"old", `{"predecessor_binding_id":"old"}`, true},
		"of another predecessor":            {"old", `{"predecessor_binding_id":"older"}`, false},
		"without a predecessor":             {"old", whole + "}", false},
		"a rotation to other parameters":    {"old", `{"predecessor_binding_id":"old","parameters":{"role":"view"}}`, false},
		"a rotation to another resource":    {"old", `{"predecessor_binding_id":"old","bind_resource":{"app_guid":"x"}}`, false},
		"a rotation to another application": {"old", `{"predecessor_binding_id":"old","app_guid":"x"}`, false},
		"a rotation to another platform":    {"old", `{"predecessor_binding_id":"old","context":{"platform":"kubernetes"}}`, false},
	} {
		request := &bindRequest{}
		must(t, json.Unmarshal([]byte(row.request), request))
		b := &v1alpha1.ServiceBinding{Spec: stored}
		b.Spec.PredecessorBindingID = row.predecessor
		if got := isSameBinding(b, rawOf(b.Spec.Parameters), request); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
