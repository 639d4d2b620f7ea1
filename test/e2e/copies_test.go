//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// copies orders a copy of a workload in every region. Regions come, go and change their names: copies
// follow, those that stay run on without a request that fails, and one that is deleted is back within two
// seconds.
func copies(t *testing.T, s server) {
	const id = "e2e-copies"
	p := s.broker.findPlan(t, "workloads", "copies")
	s.broker.provision(t, id, p, nil)
	hub, namespace := s.hub(t), v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))
	// podsOn are the ready pods of the copy on a cluster.
	podsOn := func(ctx context.Context, cluster string) ([]corev1.Pod, error) {
		admin, _ := administrator(t, cluster)
		list, err := admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	wantCopies := func(what string, on ...string) {
		t.Helper()
		eventually(t, time.Minute, what, func(ctx context.Context) string {
			for _, name := range members {
				pods, err := podsOn(ctx, name)
				if err != nil {
					return err.Error()
				}
				if want := strings.Contains(strings.Join(on, " "), name); want != (len(pods) == 1) {
					return fmt.Sprintf("%s has %d pods", name, len(pods))
				}
			}
			return ""
		})
	}
	move := func(cluster, region string) {
		t.Helper()
		must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			c := &v1alpha1.MemberCluster{}
			if err := hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: cluster}, c); err != nil {
				return err
			}
			c.Spec.Region = region
			return hub.Update(t.Context(), c)
		}))
	}
	home := func(cluster string) string { return "region-of-" + cluster }
	a, b := members[0], members[1]
	wantCopies("there is a copy in each region", a, b)
	before, err := podsOn(t.Context(), b)
	must(t, err)

	kubectl, err := buildKubectl()
	must(t, err)
	ask := func() (string, error) { return inPod(kubectl, b, namespace, "deployment/web", "get", "http://web") }
	answers(t, "the copy asks itself", ask)
	move(b, "region-new")
	for i := range 8 { // the inventory learns of it while the first is on its way
		if got, err := ask(); err != nil || !strings.HasPrefix(got, "web") {
			t.Errorf("request %d while the region changes: %q %v", i, got, err)
		}
	}
	after, err := podsOn(t.Context(), b)
	must(t, err)
	if len(after) != 1 || after[0].UID != before[0].UID {
		t.Error("the copy was replaced when its region got another name")
	}

	move(b, home(a))
	eventually(t, time.Minute, "two clusters of one region have one copy", func(ctx context.Context) string {
		onA, err := podsOn(ctx, a)
		must(t, err)
		onB, err := podsOn(ctx, b)
		must(t, err)
		if len(onA)+len(onB) != 1 {
			return fmt.Sprintf("%d and %d pods", len(onA), len(onB))
		}
		return ""
	})
	move(b, home(b))
	wantCopies("the region that came back has its copy", a, b)

	admin, _ := administrator(t, a)
	old, err := admin.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	must(t, admin.AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	deleted := time.Now()
	eventually(t, 30*time.Second, "the deleted copy is back", func(ctx context.Context) string {
		now, err := admin.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil || now.UID == old.UID {
			return fmt.Sprint(err)
		}
		return ""
	})
	t.Logf("the deleted copy was back after %s: by the watch, because Sluice looks by itself every five minutes", time.Since(deleted))
	s.broker.deprovision(t, id, p)
}
