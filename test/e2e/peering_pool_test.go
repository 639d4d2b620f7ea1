//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// poolMembers are the clusters of two small providers, by the names that no consumer may learn.
var poolMembers = map[string]string{"acme-hosting-7": peerInvited, "zenith-cloud-9": peerSmall}

// poolOrder is an order from a pool, of which each member has room for four replicas.
const (
	poolOrder    = "pooled"
	poolReplicas = 6
)

// pool: two small providers are sold as one. An order of one and a half times what either has runs on both, is reached by the
// consumer's cluster, and shows nothing of them. When one is lost, the pool shrinks, and the order moves to the other.
func (w *peeringWorld) pool(t *testing.T) {
	for name, kind := range poolMembers {
		w.sluice("cluster", "add", name, "--from-kubeconfig", internalKubeconfig(kind), "--driver", "liqo", "--gateway-service", "NodePort",
			"--provider", name+"-ltd", "--region", "region-"+name, "--label", "pool=eu", "--sell", "cpu=720m", "--taint", v1alpha1.TaintPool+"=eu-pool:NoSchedule")
	}
	w.sluice("pool", "add", "eu-pool", "--front", "b", "--members", "pool=eu", "--provider", "exchange", "--region", "eu")
	p := w.broker.findPlan(t, "from-pools", "many")
	began := time.Now()
	w.broker.provision(t, poolOrder, p, map[string]any{"replicas": poolReplicas})
	t.Logf("an order from a pool, on two members: %.1f s", time.Since(began).Seconds())
	outer := w.instanceOf(t, poolOrder).Status.Delivered.Decision.Placements
	inner := w.orderedByPool(t)
	if on := inner.Status.Delivered.Decision.Clusters(); len(outer) != 1 || outer[0].Cluster != "eu-pool" || len(on) != len(poolMembers) {
		t.Fatalf("the order is on %+v, and the pool's on %v", outer, on)
	}
	w.sluice("pool", "describe", "eu-pool") // for the log
	bound := w.bind(t, poolOrder, p)
	c := consume(t, bound)
	deployMany(t, c, c.namespace, "pooled", poolReplicas)
	runsOn := map[string]bool{}
	eventually(t, patience, "pods run on both members", func(ctx context.Context) string {
		pods, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		clear(runsOn)
		for i := range pods.Items {
			if pods.Items[i].Status.Phase != corev1.PodRunning {
				return pods.Items[i].Name + " is " + string(pods.Items[i].Status.Phase)
			}
			runsOn[pods.Items[i].Spec.NodeName] = true
		}
		if len(pods.Items) != poolReplicas || len(runsOn) != len(poolMembers) {
			return fmt.Sprintf("%d pods on %v", len(pods.Items), runsOn)
		}
		return ""
	})
	found := w.awaitEndpoints(t, peerConsumer, poolOrder, "pooled", "8080", "80")
	t.Run("shows nothing of its members", func(t *testing.T) { w.opaque(t, bound) })
	w.measurePool(t, found["8080"])
	t.Run("loses a member", func(t *testing.T) { w.losesMember(t, found["80"]) })

	w.broker.must(t, "DELETE", bindingPath(poolOrder), p.query(), nil, http.StatusOK, http.StatusAccepted)
	w.broker.deprovision(t, poolOrder, p)
	w.sluice("pool", "remove", "eu-pool")
	for name := range poolMembers {
		w.sluice("cluster", "remove", name)
	}
}

// orderedByPool returns the instance that the pool has ordered.
func (w *peeringWorld) orderedByPool(t *testing.T) *v1alpha1.ServiceInstance {
	t.Helper()
	inner := &v1alpha1.ServiceInstance{}
	name := v1alpha1.PoolInstanceName("eu-pool", v1alpha1.InstanceName("first", poolOrder))
	must(t, w.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: name}, inner))
	return inner
}

// deployMany deploys echo pods that leave a node soon after it is lost, with a Service in front.
func deployMany(t *testing.T, c kubernetes.Interface, namespace, name string, replicas int32) {
	t.Helper()
	deployEcho(t, c, namespace, name, 80)
	soon := int64(5)
	eventually(t, patience, name+" is scaled", func(ctx context.Context) string {
		d, err := c.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		d.Spec.Replicas = &replicas
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		pod := &d.Spec.Template.Spec
		pod.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("120m") // so that they do not fit on one node
		pod.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("120m")
		for _, lost := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
			pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: lost, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon})
		}
		if _, err := c.AppsV1().Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// opaque checks every byte that the consumer can read: over OSB, in its credentials, and in its namespace with
// the rights of the binding.
func (w *peeringWorld) opaque(t *testing.T, bound answer) {
	read := map[string]string{"the bind": bound.String()}
	for _, path := range []string{"/v2/catalog", "/v2/service_instances/" + poolOrder, "/v2/service_instances/" + poolOrder + "/last_operation", bindingPath(poolOrder)} {
		a, err := w.broker.do(t.Context(), "GET", path, nil, nil)
		if must(t, err); a.status != http.StatusOK {
			t.Errorf("GET %s: %d", path, a.status)
		}
		read["GET "+path] = a.String()
	}
	credentials := bound.body["credentials"].(map[string]any)
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(credentials["kubeconfig"].(string)))
	must(t, err)
	namespace, _ := credentials["namespace"].(string)
	for what, text := range everythingIn(t, config, namespace) {
		read[what] = text
	}
	kube := kubernetes.NewForConfigOrDie(config)
	if _, err := kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("events are read: %v", err)
	}
	if _, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("nodes are read: %v", err)
	}
	if len(read) < 12 {
		t.Errorf("%d things are read only", len(read))
	}
	if name := credentials["clusters"].([]any)[0].(map[string]any)["name"]; name != "eu-pool" {
		t.Errorf("the credentials are for %v", name)
	}
	for what, text := range read {
		for name, kind := range poolMembers {
			for _, secret := range []string{name, kind} {
				if at := regexp.MustCompile(`\b` + secret + `\b`).FindStringIndex(text); at != nil {
					t.Errorf("%s names %s: …%s…", what, secret, text[max(at[0]-150, 0):min(at[1]+100, len(text))])
				}
			}
		}
	}
}

// everythingIn lists all that a user may read in a namespace, by resource.
func everythingIn(t *testing.T, config *rest.Config, namespace string) map[string]string {
	t.Helper()
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredNamespacedResources()
	must(t, err)
	objects := dynamic.NewForConfigOrDie(config)
	read := map[string]string{}
	for _, group := range groups {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		must(t, err)
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") {
				continue
			}
			list, err := objects.Resource(gv.WithResource(kind.Name)).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				continue // it may not
			}
			text, err := json.Marshal(list)
			must(t, err)
			read[kind.Name+"."+gv.Group] = string(text)
		}
	}
	space, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	must(t, err)
	text, err := json.Marshal(space)
	must(t, err)
	read["its namespace"] = string(text)
	return read
}

// measurePool prints how long a request takes through the pool, and directly to a provider, with a new connection each.
func (w *peeringWorld) measurePool(t *testing.T, through string) {
	if !*figures {
		return
	}
	p := w.plan(t, &w.across, "network")
	w.broker.provision(t, "direct", p, nil)
	c := consume(t, w.bind(t, "direct", p))
	deployEcho(t, c, c.namespace, "direct", 80)
	direct := w.awaitEndpoints(t, peerConsumer, "direct", "direct", "8080")["8080"]
	for range 3 {
		for _, way := range []struct{ name, address string }{{"directly", direct}, {"through the pool", through}} {
			out, err := w.from(peerConsumer, "connect", "http://"+way.address, "1000")
			if must(t, err); err == nil {
				t.Logf("a request with a connection of its own %-17s mean, median and p99 of 1000 in ms: %s", way.name, strings.TrimSpace(out))
			}
		}
	}
	w.broker.must(t, "DELETE", bindingPath("direct"), p.query(), nil, http.StatusOK, http.StatusAccepted)
	w.broker.deprovision(t, "direct", p)
}

// losesMember: the pool shrinks as soon as a member counts as lost, the order moves to the other one when that sells more, and
// its pods answer again.
func (w *peeringWorld) losesMember(t *testing.T, service string) {
	const lost, stays = "zenith-cloud-9", "acme-hosting-7"
	w.sluice("cluster", "add", stays, "--from-kubeconfig", internalKubeconfig(poolMembers[stays]), "--sell", "cpu=1100m")
	container := poolMembers[lost] + "-control-plane"
	docker(t, "pause", container)
	t.Cleanup(func() { _ = exec.Command("docker", "unpause", container).Run() })
	var down time.Time
	eventually(t, patience, "it counts as lost", func(ctx context.Context) string {
		var cluster v1alpha1.MemberCluster
		if err := w.hub.Get(ctx, client.ObjectKey{Namespace: "sluice", Name: lost}, &cluster); err != nil {
			return err.Error()
		}
		if meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionReachable) {
			return "not yet"
		}
		down = time.Now()
		return ""
	})
	eventually(t, patience, "the pool shrinks", func(ctx context.Context) string {
		var pool v1alpha1.MemberCluster
		if err := w.hub.Get(ctx, client.ObjectKey{Namespace: "sluice", Name: "eu-pool"}, &pool); err != nil {
			return err.Error()
		}
		if has := pool.Status.Allocatable.Cpu(); has.MilliValue() != 1100 {
			return "it has " + has.String()
		}
		return ""
	})
	t.Logf("a pool shrinks %.1f s after its member counts as lost", time.Since(down).Seconds())
	if took := time.Since(down); took > 5*time.Second { // two, and the time between two looks of this test
		t.Errorf("the pool shrinks after %s", took)
	}
	eventually(t, patience, "the order moves", func(context.Context) string {
		if on := w.orderedByPool(t).Status.Delivered.Decision.Clusters(); !slices.Equal(on, []string{stays}) {
			return fmt.Sprintf("it is on %v", on)
		}
		return ""
	})
	t.Logf("the order is on the other member %.1f s after that", time.Since(down).Seconds())
	if outer := w.instanceOf(t, poolOrder).Status.Delivered.Decision.Clusters(); !slices.Equal(outer, []string{"eu-pool"}) {
		t.Errorf("the consumer's is on %v", outer)
	}
	eventually(t, patience, "its Service answers ten times in a row", func(context.Context) string {
		for range 10 { // by other pods
			if answered, err := w.fromConsumer("http://" + service); err != nil || !strings.HasPrefix(answered, "pooled") {
				return fmt.Sprintf("%q %v", answered, err)
			}
		}
		return ""
	})
	t.Logf("its Service answers %.1f s after that", time.Since(down).Seconds())
	docker(t, "unpause", container)
	eventually(t, patience, "nothing is left on the member that is back", func(context.Context) string {
		if left := w.orderedByPool(t).Status.LeftClusters(); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
}
