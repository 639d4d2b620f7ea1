//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
)

// peeringWorld holds the state that the steps of TestPeering share.
type peeringWorld struct {
	server
	hub                           client.Client
	kubectl                       string
	node, larger, across, through plan
	bare                          plan // for the invited consumer
	consumer                      *kubernetes.Clientset
	provider                      *kubernetes.Clientset
	invitation                    string
	gateway                       string // the address of the consumer's Gateway
	// endpoints by what they lead to.
	endpoints map[string]string
}

func newPeeringWorld(t *testing.T) *peeringWorld {
	t.Helper()
	liqoClusters(t, peers...)
	must(t, loadEcho(peers...))
	kubectl, err := buildKubectl()
	must(t, err)
	s := serve(t, "--probe-every", "2s", "--join-allow-addresses", "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16") // in which Docker's networks are
	w := &peeringWorld{server: s, hub: s.hub(t), kubectl: kubectl, endpoints: map[string]string{}}
	w.consumer, w.provider = clientset(t, peerConsumer), clientset(t, peerProvider)
	runCaller(t, w.consumer)
	return w
}

// liqoClusters installs Liqo on kind clusters, for one test. Clusters of other tests serve, unless
// Liqo was there before: what a run that was killed has left of it stays on their nodes.
func liqoClusters(t *testing.T, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		if !*keep {
			must(t, run("test/kind/down.sh", names...)) // they take a processor among them, doing nothing
		}
	})
	must(t, clustersUp(names...))
	var stale []string
	for _, name := range names {
		if _, err := clientset(t, name).CoreV1().Namespaces().Get(t.Context(), "liqo", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			must(t, err)
			stale = append(stale, name)
		}
	}
	if len(stale) > 0 && !*keep {
		must(t, run("test/kind/down.sh", stale...))
		must(t, clustersUp(stale...))
	}
	must(t, run("test/kind/liqo.sh", names...))
}

func clientset(t *testing.T, cluster string) *kubernetes.Clientset {
	t.Helper()
	_, config := administrator(t, cluster)
	return kubernetes.NewForConfigOrDie(config)
}

// liqoClient is an administrator's, with Liqo's types.
func liqoClient(t *testing.T, cluster string) client.Client {
	t.Helper()
	_, config := administrator(t, cluster)
	return typedClient(t, config)
}

func typedClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: liqo.Scheme})
	must(t, err)
	return c
}

// offerings returns the files with the offering of the documentation, in amounts of which several fit
// on a cluster of this machine's two processors, and with workloads.
func (w *peeringWorld) offerings(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/examples/peering.yaml"))
	must(t, err)
	text = bytes.ReplaceAll(text, []byte("cpu: 500m"), []byte("cpu: 200m"))
	text = bytes.ReplaceAll(text, []byte(`cpu: "1"`), []byte("cpu: 400m"))
	workloads, err := os.ReadFile("peering.yaml")
	must(t, err)
	workloads = bytes.ReplaceAll(workloads, []byte("ECHO"), []byte(echoImage))
	var files []string
	for i, text := range [][]byte{text, workloads} {
		files = append(files, filepath.Join(w.dataDir, fmt.Sprintf("peering-%d.yaml", i)))
		must(t, os.WriteFile(files[i], text, 0o600))
	}
	return files
}

// plans are found once the catalog is there.
func (w *peeringWorld) plan(t *testing.T, p *plan, name string) plan {
	t.Helper()
	if p.id == "" {
		*p = w.broker.findPlan(t, "peered", name)
	}
	return *p
}

// from runs a command of the caller on a cluster.
func (w *peeringWorld) from(cluster string, command ...string) (string, error) {
	return inPod(w.kubectl, cluster, metav1.NamespaceDefault, "caller", command...)
}

// fromConsumer makes a request from a pod of the consumer's own cluster.
func (w *peeringWorld) fromConsumer(target string) (string, error) {
	return w.from(peerConsumer, "get", target)
}

// runCaller runs the pod on a cluster that requests come from, until the test ends.
func runCaller(t *testing.T, on kubernetes.Interface) {
	t.Helper()
	pods := on.CoreV1().Pods(metav1.NamespaceDefault)
	err := pods.Delete(t.Context(), "caller", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if !apierrors.IsNotFound(err) {
		must(t, err)
	}
	t.Cleanup(func() {
		_ = pods.Delete(context.Background(), "caller", metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	})
	eventually(t, patience, "the caller runs", func(ctx context.Context) string {
		_, err := pods.Create(ctx, pod("caller", "200m"), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		p, err := pods.Get(ctx, "caller", metav1.GetOptions{})
		return unlessRunning(p, err)
	})
}

// deployment of echo pods, with a Service in front where port is not 0.
func deployEcho(t *testing.T, c kubernetes.Interface, namespace, name string, port int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	p := pod(name, "50m")
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
	p.Labels = labels
	one := int32(1)
	_, err := c.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	if port == 0 {
		return
	}
	_, err = c.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-service"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	must(t, err)
}

// bind binds an instance.
func (w *peeringWorld) bind(t *testing.T, id string, p plan) answer {
	t.Helper()
	return w.broker.must(t, "PUT", bindingPath(id), nil, map[string]any{"service_id": p.service, "plan_id": p.id}, http.StatusCreated)
}

// awaitEndpoints waits until the binding has an endpoint for each port and a request from a
// cluster to every one of them is answered by a pod of the name. It returns them by port.
func (w *peeringWorld) awaitEndpoints(t *testing.T, from, id, pods string, ports ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	eventually(t, patience, id+": its endpoints answer "+from, func(ctx context.Context) string {
		a, err := w.broker.do(ctx, "GET", bindingPath(id), nil, nil)
		if err != nil {
			return err.Error()
		}
		clear(found)
		all, _ := a.body["endpoints"].([]any)
		for _, one := range all {
			one := one.(map[string]any)
			for _, port := range one["ports"].([]any) {
				if slices.Contains(ports, port.(string)) {
					found[port.(string)] = one["host"].(string) + ":" + port.(string)
				}
			}
		}
		if len(found) != len(ports) {
			return fmt.Sprintf("endpoints %v, metadata %v", all, a.body["metadata"])
		}
		for _, address := range found {
			answered, err := w.from(from, "get", "http://"+address)
			if err != nil || !strings.HasPrefix(answered, pods) {
				return fmt.Sprintf("http://%s: %q %v", address, answered, err)
			}
		}
		return ""
	})
	return found
}

// wantNode waits until the consumer's cluster has a ready node with exactly so much.
func (w *peeringWorld) wantNode(t *testing.T, name string, has corev1.ResourceList) {
	t.Helper()
	node, err := w.consumer.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	for kind, want := range has {
		if got := node.Status.Capacity[kind]; got.Cmp(want) != 0 {
			t.Errorf("node %s has %s %s, want %s", name, &got, kind, &want)
		}
	}
	for key, want := range map[string]string{v1alpha1.LabelCluster: "b", v1alpha1.LabelRegion: "region-b"} {
		if node.Labels[key] != want {
			t.Errorf("node %s: label %s is %q, want %q", name, key, node.Labels[key], want)
		}
	}
}

// networkOf is how one cluster sees the other's addresses.
func networkOf(t *testing.T, cluster, remote string) networkingv1beta1.ClusterConfigCIDR {
	t.Helper()
	var c networkingv1beta1.Configuration
	must(t, liqoClient(t, cluster).Get(t.Context(), client.ObjectKey{Namespace: liqo.TenantNamespace(remote), Name: remote}, &c))
	return c.Status.Remote.CIDR
}

// wantSource checks from which addresses a request from the consumer's cluster arrives.
func (w *peeringWorld) wantSource(t *testing.T, address string, among []networkingv1beta1.CIDR) {
	t.Helper()
	source, err := w.fromConsumer("http://" + address + "/source")
	must(t, err)
	for _, cidr := range among {
		if prefix, _, _ := strings.Cut(string(cidr), ".0.0/"); strings.HasPrefix(source, prefix+".") {
			return
		}
	}
	t.Errorf("requests to %s arrive from %s, want one of %v", address, source, among)
}

// capture runs an operator's command and keeps what it prints in a file.
func (w *peeringWorld) capture(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.Command(filepath.Join(root, "bin/sluice"), args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("sluice %v: %v\n%s", args, err, problems.String())
	}
	file := filepath.Join(folder, name)
	must(t, os.WriteFile(file, out.Bytes(), 0o600))
	return file
}

func (w *peeringWorld) instanceOf(t *testing.T, id string) *v1alpha1.ServiceInstance {
	t.Helper()
	instance := &v1alpha1.ServiceInstance{}
	must(t, w.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: v1alpha1.InstanceName("first", id)}, instance))
	return instance
}

// reachable waits until every endpoint answers the consumer's cluster, as before.
func (w *peeringWorld) reachable(t *testing.T, what string) {
	t.Helper()
	began := time.Now()
	eventually(t, patience, what+": every endpoint answers", func(context.Context) string {
		for to, address := range w.endpoints {
			if answered, err := w.fromConsumer("http://" + address); err != nil {
				return fmt.Sprintf("%s, %s: %s %v", to, address, answered, err)
			}
		}
		return ""
	})
	t.Logf("%s: every endpoint answers after %.1f s", what, time.Since(began).Seconds())
}

// liqoObjects names every object of Liqo's on a cluster, and what else a peering makes.
func liqoObjects(t *testing.T, cluster string) map[string]bool {
	t.Helper()
	admin, config := administrator(t, cluster)
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	must(t, err)
	dynamicClient := dynamic.NewForConfigOrDie(config)
	names := map[string]bool{}
	for _, group := range groups {
		version, _, _ := strings.Cut(group.GroupVersion, "/")
		if !strings.HasSuffix(version, "liqo.io") {
			continue
		}
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") {
				continue
			}
			gv, err := schema.ParseGroupVersion(group.GroupVersion)
			must(t, err)
			list, err := dynamicClient.Resource(gv.WithResource(kind.Name)).List(t.Context(), metav1.ListOptions{})
			must(t, err)
			for _, o := range list.Items {
				names[kind.Kind+" "+o.GetNamespace()+"/"+o.GetName()] = true
			}
		}
	}
	namespaces, err := admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, namespace := range namespaces.Items {
		if namespace.Name != "sluice-system" {
			names["Namespace "+namespace.Name] = true
		}
	}
	nodes, err := admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, node := range nodes.Items {
		names["Node "+node.Name] = true
	}
	bindings, err := admin.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, binding := range bindings.Items {
		if strings.HasPrefix(binding.Name, "liqo") {
			names["ClusterRoleBinding "+binding.Name] = true
		}
	}
	return names
}
