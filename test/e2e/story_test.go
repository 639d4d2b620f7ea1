//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// consumer is a client with the credentials of a binding.
type consumer struct {
	kubernetes.Interface
	namespace string
	server    string
}

// consume reads the credentials of a bind response.
func consume(t *testing.T, a answer) consumer {
	t.Helper()
	credentials, ok := a.body["credentials"].(map[string]any)
	if !ok {
		t.Fatalf("bind: no credentials in %d response", a.status)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(credentials["kubeconfig"].(string)))
	if err != nil {
		t.Fatalf("bind: kubeconfig: %v", err)
	}
	return consumer{kubernetes.NewForConfigOrDie(config), credentials["namespace"].(string), config.Host}
}

// pod is an echo pod that takes so much CPU. It states limits, because the quota
// of an instance bounds requests and limits alike.
func pod(name, cpu string) *corev1.Pod {
	no := false
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{
				Name: "echo", Image: echoImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
			}},
		},
	}
}

// story is the main story: a small and a large instance land on different
// clusters; a pod runs through the returned kubeconfig; the quota refuses the pod
// that is too much; unbinding stops the token; deprovisioning leaves nothing.
func story(t *testing.T, b broker) {
	small := b.findPlan(t, "kubernetes-resources", "small")
	large := b.findPlan(t, "kubernetes-resources", "large")
	instances := map[string]plan{"story-small": small, "story-large": large}
	for id, p := range instances {
		b.provision(t, id, p, nil)
	}
	servers := map[string]string{}
	consumers := map[string]consumer{}
	for id, p := range instances {
		bound := b.must(t, "PUT", bindingPath(id), nil, map[string]any{"service_id": p.service, "plan_id": p.id}, http.StatusCreated)
		consumers[id] = consume(t, bound)
		servers[consumers[id].server] = id
		if endpoints, _ := bound.body["endpoints"].([]any); len(endpoints) == 0 {
			t.Errorf("bind %s: no endpoints", id)
		}
	}
	if len(servers) != len(instances) {
		t.Errorf("small and large were placed on the same cluster: %v", servers)
	}

	t.Run("use", func(t *testing.T) {
		for id, p := range instances {
			besides(t, id, func(t *testing.T) {
				useIt(t, id, consumers[id])
				b.must(t, "DELETE", bindingPath(id), url.Values{"service_id": {p.service}, "plan_id": {p.id}}, nil, http.StatusOK)
				tokenStops(t, id, consumers[id])
				b.deprovision(t, id, p)
			})
		}
	})
	for _, name := range members {
		nothingLeft(t, name)
	}
}

func bindingPath(id string) string {
	return "/v2/service_instances/" + url.PathEscape(id) + "/service_bindings/" + id + "-binding"
}

// useIt runs a pod with the consumer's own credentials and shows their limits.
func useIt(t *testing.T, id string, c consumer) {
	t.Helper()
	pods := c.CoreV1().Pods(c.namespace)
	if _, err := pods.Create(t.Context(), pod("echo", "100m"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("%s: create a pod with the returned kubeconfig: %v", id, err)
	}
	eventually(t, time.Minute, id+": pod running", func(ctx context.Context) string {
		p, err := pods.Get(ctx, "echo", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("%s %v", p.Status.Phase, p.Status.Conditions)
		}
		return ""
	})
	if _, err := pods.Create(t.Context(), pod("too-much", "2"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("%s: a pod beyond the plan: %v, want the quota to refuse it", id, err)
	}
	if _, err := c.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("%s: read kube-system's secrets: %v, want forbidden", id, err)
	}
	if _, err := c.CoreV1().ResourceQuotas(c.namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("%s: read its own quota: %v", id, err)
	}
	if err := c.CoreV1().ResourceQuotas(c.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("%s: delete its own quota: %v, want forbidden", id, err)
	}
}

// tokenStops waits until the API server refuses the consumer's token; it may
// have cached it for about ten seconds.
func tokenStops(t *testing.T, id string, c consumer) {
	t.Helper()
	eventually(t, 20*time.Second, id+": token refused after unbind", func(ctx context.Context) string {
		_, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsUnauthorized(err) {
			return ""
		}
		return fmt.Sprintf("list pods: %v", err)
	})
}

// nothingLeft checks that no namespace of Sluice's is left on a member cluster.
func nothingLeft(t *testing.T, cluster string) {
	t.Helper()
	noNamespaces(t, cluster, v1alpha1.LabelInstance)
}

// nothingLeftOf checks that no namespace of an instance is left on the member clusters. One that failed is removed afterwards.
func nothingLeftOf(t *testing.T, id string) {
	t.Helper()
	eventually(t, time.Minute, "nothing is left of "+id, func(context.Context) string {
		if n := namespacesOf(t, id); n > 0 {
			return fmt.Sprintf("%d clusters have a namespace of it", n)
		}
		return ""
	})
}

// noNamespaces checks that a cluster has no namespace with these labels.
func noNamespaces(t *testing.T, cluster, labels string) {
	t.Helper()
	admin, _ := administrator(t, cluster)
	namespaces, err := admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces.Items {
		t.Errorf("%s: namespace %s is left of %s", cluster, namespace.Name, namespace.Labels[v1alpha1.LabelInstance])
	}
}
