//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// figures is set by `make bench`.
var figures = flag.Bool("figures", false, "measure peerings as well; on a machine that does nothing else")

// measure prints how long a request takes by each way, and how long pods take to be ready: on
// the provider itself, in a namespace offloaded by hand as Liqo's users do, and in the one that
// came with a plan. The last two use the same virtual node, so that what differs is Sluice.
func (w *peeringWorld) measure(t *testing.T) {
	if !*figures {
		return
	}
	local := corev1.Pod{}
	must(t, liqoClient(t, peerConsumer).Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "caller"}, &local))
	ways := []struct{ name, address string }{
		{"within the consumer's cluster", local.Status.PodIP + ":8080"},
		{"to the provider, pod", w.endpoints["pod of the provider"]},
		{"to the provider, Service", w.endpoints["Service of the provider"]},
		{"through the hub, pod", w.endpoints["pod behind the hub"]},
	}
	for _, way := range ways {
		out, err := w.from(peerConsumer, "time", "http://"+way.address, "500")
		if err != nil {
			t.Errorf("%s: %v %s", way.name, err, out)
			continue
		}
		t.Logf("a request %-32s %s ms (median of 500)", way.name, out)
	}
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", "node"))
	byHand := offloadByHand(t, peerConsumer)
	for _, n := range []int32{5, 10, 20} {
		w.timePods(t, "on the provider itself", w.provider, metav1.NamespaceDefault, n)
		w.timePods(t, "offloaded by hand", w.consumer, byHand, n)
		w.timePods(t, "in the plan's namespace", w.consumer, namespace, n)
	}
}

// offloadByHand offloads a namespace of a cluster as Liqo's documentation says, until the test ends.
func offloadByHand(t *testing.T, cluster string) string {
	t.Helper()
	const name = "by-hand"
	c := liqoClient(t, cluster)
	must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	offloading := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "offloading"},
		Spec: offloadingv1beta1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloadingv1beta1.DefaultNameMappingStrategyType,
			PodOffloadingStrategy:    offloadingv1beta1.RemotePodOffloadingStrategyType,
			ClusterSelector:          corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}}, // all of them
		},
	}
	must(t, c.Create(t.Context(), offloading))
	t.Cleanup(func() { sweepNamespace(t, c, name) })
	eventually(t, patience, "the namespace is extended", func(ctx context.Context) string {
		if err := c.Get(ctx, client.ObjectKeyFromObject(offloading), offloading); err != nil || offloading.Status.OffloadingPhase != offloadingv1beta1.ReadyOffloadingPhaseType {
			return fmt.Sprint(offloading.Status.OffloadingPhase, err)
		}
		// Liqo's webhook, which sends pods to virtual nodes, may come to know of it a moment later.
		probe := pod("probe", "10m")
		probe.Namespace = name
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(probe.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == consts.VirtualNodeTolerationKey }) {
			return "pods would stay on this cluster"
		}
		return ""
	})
	return name
}

// sweepNamespace ends the offloading of a namespace, and then the namespace.
func sweepNamespace(t *testing.T, c client.Client, name string) {
	t.Helper()
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "offloading"}}
	ctx := context.WithoutCancel(t.Context())
	for range 300 {
		if err := c.Delete(ctx, o); apierrors.IsNotFound(err) {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	_ = c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// timePods prints how long it takes until a Deployment of n pods is ready.
func (w *peeringWorld) timePods(t *testing.T, where string, c kubernetes.Interface, namespace string, n int32) {
	t.Helper()
	labels := map[string]string{"app": "many"}
	p := pod("many", "15m")
	p.Labels = labels
	deployments := c.AppsV1().Deployments(namespace)
	began := time.Now()
	_, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "many"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, patience, fmt.Sprintf("%d pods are ready %s", n, where), func(ctx context.Context) string {
		d, err := deployments.Get(ctx, "many", metav1.GetOptions{})
		if err != nil || d.Status.ReadyReplicas != n {
			return fmt.Sprintf("%d %v", d.Status.ReadyReplicas, err)
		}
		return ""
	})
	t.Logf("%2d pods ready %-26s %5.1f s", n, where, time.Since(began).Seconds())
	now := metav1.DeletePropagationForeground
	must(t, deployments.Delete(t.Context(), "many", metav1.DeleteOptions{PropagationPolicy: &now}))
	eventually(t, patience, "the pods are gone again", func(ctx context.Context) string {
		if _, err := deployments.Get(ctx, "many", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("not yet ", err)
		}
		return ""
	})
}

// TestPeeringTime prints how long it takes to peer a cluster with several at once, for
// `make bench`.
func TestPeeringTime(t *testing.T) {
	if !*figures {
		t.Skip("prints figures, asked for by -figures")
	}
	clusters := []string{peerConsumer, peerProvider, peerInvited, peerSmall, "sluice-e"}
	liqoClusters(t, clusters...)
	s := serve(t)
	for _, name := range clusters {
		s.sluice("cluster", "add", name, "--from-kubeconfig", internalKubeconfig(name), "--driver", "liqo", "--gateway-service", "NodePort")
	}
	hub := s.hub(t)
	count := func(ctx context.Context) (all, ready int) {
		var peerings v1alpha1.PeeringList
		if hub.List(ctx, &peerings) != nil {
			return -1, -1
		}
		for i := range peerings.Items {
			if meta.IsStatusConditionTrue(peerings.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return len(peerings.Items), ready
	}
	for _, n := range []int{1, 2, 4} {
		providers := clusters[1 : n+1]
		began := time.Now()
		for _, provider := range providers {
			s.sluice("peering", "add", peerConsumer, provider, "--wait", "0")
		}
		eventually(t, patience, "they are peered", func(ctx context.Context) string {
			if _, ready := count(ctx); ready != n {
				return fmt.Sprintf("%d of %d", ready, n)
			}
			return ""
		})
		t.Logf("%d providers peered at once %5.1f s", n, time.Since(began).Seconds())
		began = time.Now()
		for _, provider := range providers {
			s.sluice("peering", "remove", peerConsumer, provider, "--wait", "0")
		}
		eventually(t, patience, "nothing is left of them", func(ctx context.Context) string {
			if all, _ := count(ctx); all != 0 {
				return fmt.Sprintf("%d left", all)
			}
			return ""
		})
		t.Logf("%d peerings ended at once   %5.1f s", n, time.Since(began).Seconds())
	}
}
