//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// linked: the components of one application run on two clusters and reach each other by name where they
// are linked, and only there. One moves to the other cluster, another goes; the rest runs on.
func (w *peeringWorld) linked(t *testing.T) {
	const id = "tour"
	w.sluice("cluster", "add", "far", "--from-kubeconfig", internalKubeconfig(peerInvited), "--driver", "liqo", "--gateway-service", "NodePort", "--region", "region-c")
	tour, moved := w.broker.findPlan(t, "peered-workloads", "tour"), w.broker.findPlan(t, "peered-workloads", "moved")
	began := time.Now()
	w.broker.provision(t, id, tour, nil)
	t.Logf("components on two clusters, peering included: %.1f s", time.Since(began).Seconds())
	on := func(components map[string]string) map[string][2]string {
		t.Helper()
		found := map[string][2]string{}
		for cluster, kind := range map[string]string{"b": peerProvider, "far": peerInvited} {
			list, err := clientset(t, kind).CoreV1().Pods(v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))).List(t.Context(), metav1.ListOptions{})
			must(t, err)
			for i := range list.Items {
				if p := &list.Items[i]; p.DeletionTimestamp == nil {
					name := p.Labels[v1alpha1.LabelComponent]
					found[name] = [2]string{kind, p.Name}
					if components[name] != cluster {
						t.Errorf("%s runs on %s, want %s", name, cluster, components[name])
					}
				}
			}
		}
		if len(found) != len(components) {
			t.Fatalf("there are pods of %v, want %v", found, components)
		}
		return found
	}
	ask := func(pods map[string][2]string, from, target string) func() (string, error) {
		return func() (string, error) {
			return inPod(w.kubectl, pods[from][0], v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id)), pods[from][1], "get", "http://"+target)
		}
	}
	wantAnswers := func(pods map[string][2]string, from, target string) {
		t.Helper()
		name, _, _ := strings.Cut(target, ":")
		eventually(t, patience, from+" asks "+target, func(context.Context) string {
			if answered, err := ask(pods, from, target)(); err != nil || !strings.HasPrefix(answered, name) {
				return fmt.Sprintf("%q %v", answered, err)
			}
			return ""
		})
	}
	pods := on(map[string]string{"web": "far", "api": "b", "worker": "b", "db": "b"})
	for from, targets := range map[string][]string{"web": {"api:8081"}, "api": {"web:80", "db:8082"}, "db": {"api:8081"}} {
		for _, target := range targets {
			wantAnswers(pods, from, target)
		}
	}
	slices := clientset(t, peerInvited).DiscoveryV1().EndpointSlices(v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id)))
	must(t, slices.Delete(t.Context(), "api", metav1.DeleteOptions{}))
	deleted := time.Now()
	eventually(t, time.Minute, "the deleted link is back", func(ctx context.Context) string {
		if _, err := slices.Get(ctx, "api", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if took := time.Since(deleted); took > 2*time.Second {
		t.Errorf("the deleted link was back after %s, want 2 s", took)
	}
	silent(t, "db asks web, to which it is not linked", ask(pods, "db", "web:80"))
	silent(t, "worker asks web, to which it is not linked", ask(pods, "worker", "web:80"))

	w.broker.must(t, "PATCH", "/v2/service_instances/"+id, url.Values{"accepts_incomplete": {"true"}},
		map[string]any{"service_id": moved.service, "plan_id": moved.id}, http.StatusAccepted)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var asked, inARow, longest int
	var failed []string
	load.Go(func() {
		for ; ctx.Err() == nil; asked++ {
			if answered, err := ask(pods, "web", "api:8081")(); err != nil || !strings.HasPrefix(answered, "api") {
				failed = append(failed, fmt.Sprintf("%q %v", answered, err))
				inARow++
				longest = max(longest, inARow)
			} else {
				inARow = 0
			}
		}
	})
	w.broker.await(t, id, "update of the tour")
	stop()
	load.Wait()
	t.Logf("%d requests while api moved, failed: %q", asked, failed)
	if longest > 2 { // network policies let in a new pod's traffic some moments after it is ready
		t.Errorf("%d requests in a row failed while api moved", longest)
	}
	now := on(map[string]string{"web": "far", "api": "far", "db": "b"})
	for _, stays := range []string{"web", "db"} {
		if now[stays] != pods[stays] {
			t.Errorf("the pod of %s was replaced", stays)
		}
	}
	for from, targets := range map[string][]string{"web": {"api:8081"}, "api": {"web:80", "db:8082"}, "db": {"api:8081"}} {
		for _, target := range targets {
			wantAnswers(now, from, target)
		}
	}
	silent(t, "web asks db, to which it is not linked", ask(now, "web", "db:8082"))

	w.broker.deprovision(t, id, moved)
	eventually(t, patience, "the peering has ended", func(ctx context.Context) string {
		var peerings v1alpha1.PeeringList
		if err := w.hub.List(ctx, &peerings, client.InNamespace("sluice")); err != nil {
			return err.Error()
		}
		for i := range peerings.Items {
			if p := &peerings.Items[i]; p.Spec.Consumer == "far" || p.Spec.Provider == "far" {
				return "there is " + p.Name
			}
		}
		return ""
	})
	w.sluice("cluster", "remove", "far")
}
