//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// offeringWithEcho returns a copy of an offering's file, with the image of the tests.
func offeringWithEcho(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	here := filepath.Join(t.TempDir(), filepath.Base(file))
	must(t, os.WriteFile(here, []byte(strings.ReplaceAll(string(text), "ECHO", echoImage)), 0o600))
	return here
}

// lostWorkloads are two workloads on the cluster that is killed: one without state, and one with a volume.
type lostWorkloads struct {
	*lostWorld
	web, store plan
}

const lostWeb, lostStore = "lost-web", "lost-store"

func (w *lostWorld) workloadsOnDoomed(t *testing.T) lostWorkloads {
	t.Helper()
	must(t, loadEcho(doomed))
	volumeFor(t, doomed, "e2e-lost")
	both := lostWorkloads{w, w.broker.findPlan(t, "resilient", "web"), w.broker.findPlan(t, "resilient", "store")}
	w.onDoomed(t, func() {
		w.broker.provision(t, lostWeb, both.web, nil)
		w.broker.provision(t, lostStore, both.store, nil)
	}, lostWeb, lostStore)
	return both
}

// answersElsewhere: what has no state answers again within half a minute after the time that its plan
// tolerates.
func (w lostWorkloads) answersElsewhere(t *testing.T) {
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

// waitsForItsVolume: what has a volume starts nowhere else.
func (w lostWorkloads) waitsForItsVolume(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, lostStore+" says what it waits for", func(context.Context) string {
		ready := meta.FindStatusCondition(w.instance(t, lostStore).Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || !strings.HasPrefix(ready.Message, "waiting for the cluster that has its volumes: "+doomed+" does not answer") {
			return fmt.Sprint(ready)
		}
		return ""
	})
	if on := w.placedOn(t, lostStore); on != doomed {
		t.Errorf("%s is on %s, without its volume", lostStore, on)
	}
}

// worksAgain waits for the one with the volume, once its cluster is back and clean of the other, and gives
// both back.
func (w lostWorkloads) worksAgain(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, lostStore+" works again", func(context.Context) string {
		conditions := w.instance(t, lostStore).Status.Conditions
		if !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
			return fmt.Sprint(conditions)
		}
		if left := w.instance(t, lostWeb).Status.Left; len(left) > 0 {
			return fmt.Sprintf("%s has left %v", lostWeb, left)
		}
		return ""
	})
	w.wantOnce(t, lostWeb)
	w.broker.deprovision(t, lostWeb, w.web)
	w.broker.deprovision(t, lostStore, w.store)
}
