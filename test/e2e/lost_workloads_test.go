//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// lostWorkloads are two workloads on the cluster that is killed: one without state, and a PostgreSQL that came
// there from another cluster, by a backup.
type lostWorkloads struct {
	*lostWorld
	web, store plan
	user       map[string]any
}

const lostWeb, lostStore = "lost-web", "lost-store"

func (w *lostWorld) workloadsOnDoomed(t *testing.T, images images) *lostWorkloads {
	t.Helper()
	must(t, loadEcho(doomed))
	for _, name := range []string{members[1], doomed} {
		must(t, run("test/kind/load.sh", append([]string{name}, images.archives...)...))
		volumeFor(t, name, "e2e-lost")
	}
	volumeFor(t, members[0], "e2e-lost-first")
	both := &lostWorkloads{lostWorld: w, web: w.broker.findPlan(t, "resilient", "web"), store: w.broker.findPlan(t, "postgresql", "small")}
	w.only(t, members[0], func() { w.broker.provision(t, lostStore, both.store, nil) }, lostStore)
	both.user = w.broker.bind(t, lostStore, "first", both.store, nil)
	both.asks(t, [][2]string{{"CREATE TABLE orders (n int)", "CREATE TABLE"}, {"INSERT INTO orders VALUES (42)", "INSERT 0 1"}})
	w.only(t, doomed, func() {
		w.sluice("cluster", "drain", members[0], "--wait", "10m")
		w.broker.provision(t, lostWeb, both.web, nil)
	}, lostStore, lostWeb)
	both.asks(t, [][2]string{{"SELECT n FROM orders", "42"}})
	volumeFor(t, members[0], "e2e-lost") // the first one had another's data
	return both
}

// asks asks the PostgreSQL, wherever it is.
func (w *lostWorkloads) asks(t *testing.T, all [][2]string) {
	t.Helper()
	services()[0].asks(t, instance{w.placedOn(t, lostStore), v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", lostStore))}, w.user, all)
}

// answersElsewhere: what has no state answers again within half a minute after the time that its plan
// tolerates.
func (w *lostWorkloads) answersElsewhere(t *testing.T) {
	t.Helper()
	kubectl, err := buildKubectl()
	must(t, err)
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", lostWeb))
	eventually(t, 2*time.Minute, lostWeb+" answers again", func(context.Context) string {
		on := w.placedOn(t, lostWeb)
		if on == doomed {
			return "it is on " + on
		}
		if answer, err := inPod(kubectl, on, namespace, "deployment/web", "get", "http://web"); err != nil {
			return fmt.Sprintf("%s (%v)", answer, err)
		}
		return ""
	})
	const tolerated, most = 5 * time.Second, 30 * time.Second
	var cluster v1alpha1.MemberCluster
	must(t, w.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: doomed}, &cluster))
	noticed := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReachable).LastTransitionTime.Time
	took := time.Since(noticed) - tolerated
	t.Logf("%s answers %s after the time that it tolerates", lostWeb, took.Round(time.Second))
	if took > most {
		t.Errorf("want it within %s", most)
	}
}

// waitsAndIsRestored: what has a volume starts nowhere else, and says which command does that with its data.
func (w *lostWorkloads) waitsAndIsRestored(t *testing.T) {
	t.Helper()
	backup := w.instanceOf(t, lostStore).Status.LastBackup().ID
	eventually(t, time.Minute, lostStore+" says what it waits for", func(context.Context) string {
		instance := w.instanceOf(t, lostStore)
		ready := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || !strings.HasPrefix(ready.Message, "waiting for the cluster that has its volumes: "+doomed+" does not answer") ||
			!strings.Contains(ready.Message, "`sluice instance restore "+instance.Name+" --from "+backup+"`") {
			return fmt.Sprint(ready)
		}
		return ""
	})
	if on := w.placedOn(t, lostStore); on != doomed {
		t.Errorf("%s is on %s, without its volume", lostStore, on)
	}
	if out, err := w.restore(lostStore, backup); err != nil {
		t.Fatalf("restore: %v: %s", err, out)
	}
	w.asks(t, [][2]string{{"SELECT n FROM orders", "42"}})
}

// end gives both back.
func (w *lostWorkloads) end(t *testing.T) {
	t.Helper()
	w.broker.deprovision(t, lostWeb, w.web)
	w.broker.deprovision(t, lostStore, w.store)
}
