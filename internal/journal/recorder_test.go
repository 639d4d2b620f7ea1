package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
)

// TestRecorder: an event is counted and logged once the hub has it, whatever becomes of the answer.
func TestRecorder(t *testing.T) {
	t.Parallel()
	lost := errors.New("the connection broke")
	conflict := apierrors.NewConflict(schema.GroupResource{}, "si-1", errors.New("somebody wrote"))
	gone := apierrors.NewNotFound(schema.GroupResource{}, "si-1")
	at := func(uid types.UID, events ...v1alpha1.EventType) *v1alpha1.ServiceInstance {
		i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-1", UID: uid}, Spec: v1alpha1.ServiceInstanceSpec{InstanceID: "one", ServiceID: "s"}}
		for _, e := range events {
			v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: e, PlanID: "p", Operation: v1alpha1.OperationProvision, After: &metav1.Duration{Duration: 2 * time.Second}})
		}
		return i
	}
	const ordered, placed, removed = v1alpha1.EventOrdered, v1alpha1.EventPlaced, v1alpha1.EventRemoved
	for name, row := range map[string]struct {
		does func(context.Context, *journal.Recorder)
		want string
	}{
		"written": {func(ctx context.Context, r *journal.Recorder) {
			r.Read(ctx, at("1", ordered))
			r.Written(ctx, at("1", ordered, placed), nil)
			r.Written(ctx, at("1", ordered, placed, placed), nil)
		}, "Placed Placed"},
		"as it was before the start": {func(ctx context.Context, r *journal.Recorder) { r.Read(ctx, at("1", ordered, placed)) }, ""},
		"refused, and written at the next try": {func(ctx context.Context, r *journal.Recorder) {
			r.Read(ctx, at("1", ordered))
			r.Written(ctx, at("1", ordered, placed), conflict)
			r.Done(at("1"))
			r.Read(ctx, at("1", ordered))
			r.Written(ctx, at("1", ordered, placed), nil)
		}, "Placed"},
		"lost after the write": {func(ctx context.Context, r *journal.Recorder) {
			r.Read(ctx, at("1", ordered))
			r.Written(ctx, at("1", ordered, placed), lost)
			r.Done(at("1"))
			r.Read(ctx, at("1", ordered)) // a cache that is behind
			r.Written(ctx, at("1", ordered, placed), conflict)
			r.Done(at("1"))
			r.Read(ctx, at("1", ordered, placed))
			r.Done(at("1"))
			r.Read(ctx, at("1", ordered, placed))
		}, "Placed"},
		"lost before the write": {func(ctx context.Context, r *journal.Recorder) {
			r.Read(ctx, at("1", ordered))
			r.Written(ctx, at("1", ordered, placed), lost)
			r.Done(at("1"))
			r.Read(ctx, at("1", ordered))
			r.Written(ctx, at("1", ordered, placed), nil)
		}, "Placed"},
		"removed": {func(ctx context.Context, r *journal.Recorder) {
			r.Read(ctx, at("1", ordered))
			r.Removed(ctx, at("1", ordered, removed), nil)
			r.Read(ctx, at("1", ordered)) // a cache that is behind
			r.Removed(ctx, at("1", ordered, removed), gone)
		}, "Removed"},
		"removed, and the answer lost": {func(ctx context.Context, r *journal.Recorder) {
			r.Read(ctx, at("1", ordered))
			r.Removed(ctx, at("1", ordered, removed), lost)
			r.Done(at("1"))
			r.Gone(ctx, v1alpha1.KindServiceInstance, client.ObjectKey{Name: "si-1"})
			r.Gone(ctx, v1alpha1.KindServiceInstance, client.ObjectKey{Name: "si-1"})
		}, "Removed"},
		"removed, and ordered again": {func(ctx context.Context, r *journal.Recorder) {
			r.Read(ctx, at("1", ordered))
			r.Removed(ctx, at("1", ordered, removed), lost)
			r.Done(at("1"))
			r.Read(ctx, at("2"))
			r.Written(ctx, at("2", ordered, placed), nil)
		}, "Removed Placed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
			r := journal.NewRecorder(func(serviceID, planID string) (string, string) { return "name of " + serviceID, "name of " + planID })
			row.does(ctx, r)
			var logged []string
			for _, line := range lines {
				_, rest, _ := strings.Cut(line, `"msg"="`)
				what, _, _ := strings.Cut(rest, `"`)
				logged = append(logged, what)
			}
			if got := strings.Join(logged, " "); got != row.want {
				t.Errorf("logged %q, want %q", got, row.want)
			}
			metrics := map[string]int{}
			if name == "removed, and ordered again" {
				metrics["Ordered"] = 1 // it is not logged
			}
			for _, e := range strings.Fields(row.want) {
				metrics[e]++
			}
			if n := testutil.CollectAndCount(r, "sluice_operation_duration_seconds"); n != metrics["Removed"] {
				t.Errorf("%d operations ended, want %d", n, metrics["Removed"])
			}
			var want strings.Builder
			want.WriteString("# HELP sluice_events_total Events of instances, bindings, member clusters and peerings, by kind of resource, type of event, and service offering and plan if there are.\n# TYPE sluice_events_total counter\n")
			for e, n := range metrics {
				fmt.Fprintf(&want, "sluice_events_total{kind=\"ServiceInstance\",plan=\"name of p\",service=\"name of s\",type=%q} %d\n", e, n)
			}
			if err := testutil.CollectAndCompare(r, strings.NewReader(want.String()), "sluice_events_total"); len(metrics) > 0 && err != nil {
				t.Error(err)
			}
			if problems, err := testutil.CollectAndLint(r); err != nil || len(problems) > 0 {
				t.Errorf("%v %v", problems, err)
			}
		})
	}
}

// TestRecorderOfClusters: an event of a member cluster is counted without a service, and logged with its name, once.
func TestRecorderOfClusters(t *testing.T) {
	t.Parallel()
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	r := journal.NewRecorder(func(string, string) (string, string) { return "", "" })
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu"}}
	for _, e := range []v1alpha1.EventType{v1alpha1.EventReady, v1alpha1.EventLost} {
		after := v1alpha1.LastSequence(cluster.Status.Events)
		v1alpha1.AddEvent(&cluster.Status.Events, v1alpha1.Event{Type: e, Clusters: []string{"eu"}, Message: "as it is"})
		r.Wrote(ctx, cluster, after)
	}
	if len(lines) != 2 || !strings.Contains(lines[1], `"msg"="Lost" "kind"="MemberCluster" "name"="eu" "clusters"="eu" "why"="as it is"`) {
		t.Errorf("logged %q", lines)
	}
	want := `# HELP sluice_events_total Events of instances, bindings, member clusters and peerings, by kind of resource, type of event, and service offering and plan if there are.
# TYPE sluice_events_total counter
sluice_events_total{kind="MemberCluster",plan="",service="",type="Lost"} 1
sluice_events_total{kind="MemberCluster",plan="",service="",type="Ready"} 1
`
	if err := testutil.CollectAndCompare(r, strings.NewReader(want), "sluice_events_total"); err != nil {
		t.Error(err)
	}
	(*journal.Recorder)(nil).Wrote(ctx, cluster, 0)
}
