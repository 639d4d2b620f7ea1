package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
	"github.com/sluice-dev/sluice/internal/workload"
)

// archives stand for a folder of charts.
type archives struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (a *archives) Archive(_ context.Context, name string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if archive, ok := a.files[name]; ok {
		return archive, nil
	}
	return nil, errors.New("there is no chart " + name)
}

func (a *archives) put(files map[string][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.files = files
}

// site is a plan of a chart, of which consumers may set two values.
func site(digest string) string {
	return strings.ReplaceAll(`
workload:
  components:
  - name: web
    ports: [{name: http, port: 8080}]
    chart: {from: web.tgz, digest: "DIGEST", values: {password: "${secrets.password}"}, parameters: [owner, replicas]}
  secrets: [{name: password}]
  credentials: {uri: "http://${components.web.host}:${components.web.ports.http}"}
`, "DIGEST", digest)
}

func (r *running) chart(digest string) *v1alpha1.Chart {
	r.t.Helper()
	kept := &v1alpha1.Chart{}
	err := r.hub.Get(context.Background(), client.ObjectKey{Namespace: r.namespace, Name: v1alpha1.ChartName(digest)}, kept)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return kept
}

func TestPlansOfCharts(t *testing.T) {
	r := run(t)
	archive := chartstest.Pack(t, chartstest.Web(t, nil))
	digest := charts.Digest(archive)
	o := offering("a", sells(t, site(digest)))
	r.create(&o)
	contains(t, r.judged("a", ReasonInvalid), "plan a-small: workload: component web: chart web.tgz: there is no chart web.tgz; not served")

	another := chartstest.Pack(t, chartstest.Web(t, map[string]string{"web/README.md": "another"}))
	r.archives.put(map[string][]byte{"web.tgz": another})
	r.change("a", func(o *v1alpha1.ServiceOffering) { o.Spec.Description = "again" })
	contains(t, r.judged("a", ReasonInvalid), "chart web.tgz: its digest is "+charts.Digest(another)+", the plan names "+digest)
	if r.chart(digest) != nil {
		t.Error("a chart of another digest was kept")
	}

	r.archives.put(map[string][]byte{"web.tgz": archive})
	r.change("a", func(o *v1alpha1.ServiceOffering) { o.Spec.Description = "once more" })
	r.judged("a", v1alpha1.ReasonReady)
	if kept := r.chart(digest); kept == nil || kept.Spec.Chart != "web" || kept.Spec.Version != "1.2.3" {
		t.Errorf("the hub keeps %v", kept)
	}
	r.eventually("the catalog to sell it", func() bool { return r.sells("a-id", "a-small") })
	plan, err := r.catalog.Snapshot().Plan("a-id", "a-small")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ parameters, because, cpu string }{
		{`{"owner": "ann"}`, "", "200m"},
		{`{"owner": "ann", "replicas": 4}`, "", "500m"},
		{`{}`, "parameters: missing property 'owner'", ""},
		{`{"owner": "ann", "replicas": 6}`, "parameters/replicas: maximum: got 6, want 5", ""},
		{`{"owner": "ann", "title": "Hello"}`, "parameters/title: the plan takes no such parameter", ""},
	} {
		if err := plan.ValidateCreate(json.RawMessage(row.parameters)); row.because != "" {
			if err == nil || err.Error() != row.because {
				t.Errorf("%s: got %v, want %s", row.parameters, err, row.because)
			}
			continue
		}
		footprint, err := plan.Footprint(json.RawMessage(row.parameters))
		if err != nil {
			t.Fatal(err)
		}
		if cpu := footprint.Takes.Cpu().String(); cpu != row.cpu {
			t.Errorf("%s: takes %s cpu, want %s", row.parameters, cpu, row.cpu)
		}
	}

	// The hub keeps the chart: the folder is not needed any more.
	r.archives.put(nil)
	r.change("a", func(o *v1alpha1.ServiceOffering) { o.Spec.Description = "without the folder" })
	r.judged("a", v1alpha1.ReasonReady)
}

// A chart stays while a plan or an instance uses it, and an hour longer.
func TestUnusedCharts(t *testing.T) {
	r := run(t)
	first := chartstest.Pack(t, chartstest.Web(t, nil))
	second := chartstest.Pack(t, chartstest.Web(t, map[string]string{"web/README.md": "the second"}))
	r.archives.put(map[string][]byte{"web.tgz": first})
	o := offering("a", sells(t, site(charts.Digest(first))))
	r.create(&o)
	r.judged("a", v1alpha1.ReasonReady)

	runs := r.order("a-small")
	runs.Status.Decision = &v1alpha1.Decision{Workload: r.get("a").Status.Accepted.Plans[0].Workload}
	if err := r.hub.Status().Update(t.Context(), runs); err != nil {
		t.Fatal(err)
	}
	r.archives.put(map[string][]byte{"web.tgz": second})
	step := 0
	judge := func() {
		step++
		r.change("a", func(o *v1alpha1.ServiceOffering) { o.Spec.Description = strings.Repeat("x", step) })
		r.judged("a", v1alpha1.ReasonReady)
	}
	r.change("a", func(o *v1alpha1.ServiceOffering) {
		o.Spec.Plans[0].Workload.Components[0].Chart.Digest = charts.Digest(second)
	})
	judge()
	if kept := r.chart(charts.Digest(first)); kept == nil || kept.Annotations[v1alpha1.AnnotationUnusedSince] != "" {
		t.Fatalf("an instance runs the first chart: %v", kept)
	}

	if err := r.hub.Delete(t.Context(), runs); err != nil {
		t.Fatal(err)
	}
	r.eventually("the first chart to be unused", func() bool {
		return r.chart(charts.Digest(first)).Annotations[v1alpha1.AnnotationUnusedSince] != ""
	})
	r.clock.SetTime(r.clock.Now().Add(unusedFor - time.Minute))
	judge()
	if r.chart(charts.Digest(first)) == nil {
		t.Fatal("the first chart is gone too soon")
	}
	r.clock.SetTime(r.clock.Now().Add(2 * time.Minute))
	r.eventually("the first chart to be gone", func() bool {
		judge()
		return r.chart(charts.Digest(first)) == nil
	})
	if kept := r.chart(charts.Digest(second)); kept == nil || kept.Annotations[v1alpha1.AnnotationUnusedSince] != "" {
		t.Errorf("a plan uses the second chart: %v", kept)
	}
}

func BenchmarkAcceptChart(b *testing.B) {
	archive := chartstest.Pack(b, chartstest.Web(b, nil))
	o := offering("a", sells(b, site(charts.Digest(archive))))
	known := chartstest.Of(b, archive)
	for b.Loop() {
		if _, err := judge([]v1alpha1.ServiceOffering{o}, workload.Charts(known), nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}
