//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// doomed is the kind cluster that is killed.
const doomed = "sluice-doomed"

// TestLostCluster kills a member cluster under two bound instances and two workloads, twice: paused, it
// comes back and finds them elsewhere, one because its operator restored its data; removed, it never does.
func TestLostCluster(t *testing.T) {
	needMembers(t)
	t.Cleanup(func() {
		if err := run("test/kind/down.sh", doomed); err != nil {
			t.Error(err)
		}
	})
	must(t, run("test/kind/up.sh", "--out", kubeconfigs, doomed))
	s := serve(t, "--probe-every", "1s", "--backup-target", newBackups(t).file)
	for _, name := range slices.Concat(members, []string{doomed}) {
		s.sluice("cluster", "add", name, "--from-kubeconfig", kubeconfig(name))
	}
	images := loadImages(t, services()[:1])
	for _, file := range []string{"lost.yaml", filepath.Join(root, "charts/services/postgresql.yaml")} {
		s.sluice("catalog", "apply", "-f", images.in(t, file))
	}
	w := &lostWorld{server: s, hub: s.hub(t), plan: s.broker.findPlan(t, "resilient", "small")}

	bound := []string{"lost-1", "lost-2"}
	running := w.workloadsOnDoomed(t, images)
	w.provisionOnDoomed(t, bound...)
	docker(t, "pause", doomed+"-control-plane")
	paused := time.Now()
	t.Cleanup(func() { _ = exec.Command("docker", "unpause", doomed+"-control-plane").Run() })
	for _, id := range bound {
		w.awaitElsewhere(t, id, paused)
		w.bindingFollows(t, id)
	}
	running.answersElsewhere(t)
	running.waitsAndIsRestored(t)
	docker(t, "unpause", doomed+"-control-plane")
	eventually(t, 2*time.Minute, "the cluster that is back is clean", func(context.Context) string {
		for _, id := range append(bound, lostWeb, lostStore) {
			if left := w.instanceOf(t, id).Status.Left; len(left) > 0 {
				return fmt.Sprintf("%s has left %v", id, left)
			}
		}
		return ""
	})
	for _, id := range append(bound, lostWeb, lostStore) {
		w.wantOnce(t, id)
	}
	running.end(t)

	w.provisionOnDoomed(t, "lost-3")
	docker(t, "rm", "--force", "--volumes", doomed+"-control-plane")
	w.awaitElsewhere(t, "lost-3", time.Now())
	w.bindingFollows(t, "lost-3")
	s.sluice("cluster", "remove", doomed)
	for _, id := range append(bound, "lost-3") {
		w.wantOnce(t, id)
		w.broker.must(t, "DELETE", bindingPath(id), w.plan.query(), nil, http.StatusOK, http.StatusAccepted)
		w.broker.deprovision(t, id, w.plan)
	}
	for _, name := range members {
		nothingLeft(t, name)
	}
}

// lostWorld holds the state that the steps of TestLostCluster share.
type lostWorld struct {
	server
	hub  client.Client
	plan plan
}

func docker(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
		t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
}

// provisionOnDoomed provisions and binds instances on the cluster that is killed.
func (w *lostWorld) provisionOnDoomed(t *testing.T, ids ...string) {
	t.Helper()
	w.only(t, doomed, func() {
		for _, id := range ids {
			w.broker.provision(t, id, w.plan, nil)
			w.broker.must(t, "PUT", bindingPath(id), nil, map[string]any{"service_id": w.plan.service, "plan_id": w.plan.id}, http.StatusCreated)
		}
	}, ids...)
}

// only calls a function that places instances while no other cluster takes any.
func (w *lostWorld) only(t *testing.T, cluster string, place func(), ids ...string) {
	t.Helper()
	for _, command := range []string{"cordon", "uncordon"} {
		for _, name := range slices.Concat(members, []string{doomed}) {
			if name != cluster {
				w.sluice("cluster", command, name)
			}
		}
		if command == "cordon" {
			place()
		}
	}
	for _, id := range ids {
		if on := w.placedOn(t, id); on != cluster {
			t.Fatalf("%s is on %s", id, on)
		}
	}
}

// placedOn returns the clusters of an instance, as the platform reads them.
func (w *lostWorld) placedOn(t *testing.T, id string) string {
	t.Helper()
	a := w.broker.must(t, "GET", "/v2/service_instances/"+id, nil, nil, http.StatusOK)
	metadata, _ := a.body["metadata"].(map[string]any)
	attributes, _ := metadata["attributes"].(map[string]any)
	on, _ := attributes["clusters"].(string)
	return on
}

// awaitElsewhere waits until an instance is on another cluster, and prints how long each
// part of that took.
func (w *lostWorld) awaitElsewhere(t *testing.T, id string, killed time.Time) {
	t.Helper()
	eventually(t, 2*time.Minute, id+" is elsewhere", func(context.Context) string {
		if on := w.placedOn(t, id); on == doomed {
			return fmt.Sprintf("it is on %s: %v", on, w.instanceOf(t, id).Status.Conditions)
		}
		return ""
	})
	instance := w.instanceOf(t, id)
	var cluster v1alpha1.MemberCluster
	must(t, w.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: doomed}, &cluster))
	noticed := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReachable).LastTransitionTime.Time
	moved := instance.Status.Moved
	t.Logf("%s: lost after %s, decided %s later (five of them tolerated), delivered within %s: %s",
		id, noticed.Sub(killed.Truncate(time.Second)), moved.DecidedAt.Sub(noticed), moved.DeliveredAt.Sub(moved.DecidedAt.Time), moved.Reason)
	if !meta.IsStatusConditionTrue(instance.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("%s is not ready: %v", id, instance.Status.Conditions)
	}
}

// bindingFollows waits until the binding has credentials that work where the instance is.
func (w *lostWorld) bindingFollows(t *testing.T, id string) {
	t.Helper()
	on := w.placedOn(t, id)
	eventually(t, time.Minute, id+": its binding works on "+on, func(ctx context.Context) string {
		a := w.broker.must(t, "GET", bindingPath(id), nil, nil, http.StatusOK)
		credentials, _ := a.body["credentials"].(map[string]any)
		clusters, _ := credentials["clusters"].([]any)
		if len(clusters) != 1 || clusters[0].(map[string]any)["name"] != on {
			return fmt.Sprintf("it is for %d clusters", len(clusters))
		}
		c := consume(t, a)
		if _, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// wantOnce checks that an instance's namespace is on its cluster and nowhere else.
func (w *lostWorld) wantOnce(t *testing.T, id string) {
	t.Helper()
	instance := w.instanceOf(t, id)
	on := instance.Status.Delivered.Decision.Placements[0].Cluster
	for _, name := range slices.Concat(members, []string{doomed}) {
		admin, _ := administrator(t, name)
		_, err := admin.CoreV1().Namespaces().Get(t.Context(), v1alpha1.MemberNamespace(instance.Name), metav1.GetOptions{})
		switch {
		case name == on && err != nil:
			t.Errorf("%s is not on %s: %v", id, name, err)
		case name != on && err == nil:
			t.Errorf("%s is on %s, and on %s too", id, on, name)
		case name != on && !apierrors.IsNotFound(err) && name != doomed: // which may be gone
			t.Errorf("%s: look for %s: %v", name, id, err)
		}
	}
}
