//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
)

// The kind clusters of TestPeering, all with the same address ranges: a consumer's own, a
// provider that is also the hub, and a provider that joins by invitation.
const (
	peerConsumer = "sluice-liqo-a"
	peerProvider = "sluice-liqo-b"
	peerInvited  = "sluice-liqo-c"
)

// patience is how long anything of Liqo's may take on a busy machine.
const patience = 5 * time.Minute

// keep leaves the clusters for the next run.
var keep = flag.Bool("keep", false, "leave the clusters of TestPeering up")

var peers = []string{peerConsumer, peerProvider, peerInvited}

// TestPeering plays the story of peered clusters with real Liqo, modified only in that its
// links between nodes and gateways are VXLAN, which this machine's kernel has (test/kind):
// virtual nodes, namespaces that the consumer's cluster reaches, a provider that joins by
// invitation and is reached through the hub; what is refused; faults; a consumer that joins by
// invitation; and that nothing is left.
func TestPeering(t *testing.T) {
	w := newPeeringWorld(t)
	before := map[string]map[string]bool{}
	for _, name := range peers {
		before[name] = liqoObjects(t, name)
	}
	w.sluice("cluster", "add", "b", "--from-kubeconfig", internalKubeconfig(peerProvider), "--driver", "liqo", "--gateway-service", "NodePort", "--hub", "--region", "region-b")
	w.sluice("cluster", "add", "a", "--from-kubeconfig", internalKubeconfig(peerConsumer), "--driver", "liqo", "--gateway-service", "NodePort", "--consumer", "first/org")
	for _, file := range w.offerings(t) {
		w.sluice("catalog", "apply", "-f", file)
	}

	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a virtual node", w.virtualNode},
		{"a network", w.network},
		{"a workload", w.workload},
		{"components on two clusters", w.linked},
		{"an invited provider behind the hub", w.behindTheHub},
		{"figures", w.measure},
		{"what nobody has bought", w.refusals},
		{"nobody escapes", w.escapes},
		{"faults", w.faults},
		{"gives all of it back", w.giveBack},
		{"an invited consumer", w.anInvitedConsumer},
		{"killed at every step", w.killed},
	} {
		if !t.Run(step.name, step.do) {
			return // each builds on the one before
		}
	}
	t.Run("leaves nothing", func(t *testing.T) {
		for _, name := range peers {
			eventually(t, patience, name+" is as before", func(context.Context) string {
				var left []string
				for o := range liqoObjects(t, name) {
					if !before[name][o] {
						left = append(left, o)
					}
				}
				slices.Sort(left)
				return strings.Join(left, ", ")
			})
		}
	})
}

// peeringWorld is what the steps of TestPeering share.
type peeringWorld struct {
	server
	hub                           client.Client
	kubectl                       string
	node, larger, across, through plan
	bare                          plan // for the invited consumer
	consumer                      *kubernetes.Clientset
	provider                      *kubernetes.Clientset
	invitation                    string
	// endpoints by what they lead to.
	endpoints map[string]string
}

func newPeeringWorld(t *testing.T) *peeringWorld {
	t.Helper()
	liqoClusters(t, peers...)
	must(t, loadEcho(peers...))
	kubectl, err := buildKubectl()
	must(t, err)
	s := serve(t)
	w := &peeringWorld{server: s, hub: s.hub(t), kubectl: kubectl, endpoints: map[string]string{}}
	w.consumer, w.provider = clientset(t, peerConsumer), clientset(t, peerProvider)
	runCaller(t, w.consumer)
	return w
}

// liqoClusters brings up kind clusters with Liqo, for one test.
func liqoClusters(t *testing.T, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		if !*keep {
			must(t, run("test/kind/down.sh", names...)) // they take a processor among them, doing nothing
		}
	})
	if !*keep {
		must(t, run("test/kind/down.sh", names...)) // what a run that was killed has left there stays on their nodes
	}
	must(t, run("test/kind/up.sh", append([]string{"--same-ranges", "--out", kubeconfigs}, names...)...))
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

// offerings are the one of the documentation, in amounts of which several fit on a cluster of
// this machine's two processors, and workloads.
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

// virtualNode: an order becomes a node of the consumer's cluster, on which its pods run at the
// provider.
func (w *peeringWorld) virtualNode(t *testing.T) {
	p := w.plan(t, &w.node, "small")
	began := time.Now()
	w.broker.provision(t, "node", p, nil)
	t.Logf("from the order to the node, peering included: %.1f s", time.Since(began).Seconds())
	name := v1alpha1.VirtualNodeName(v1alpha1.InstanceName("first", "node"), "b")
	w.wantNode(t, name, corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("512Mi"), "pods": resource.MustParse("20")})

	// The namespace that came with it is extended to the node's cluster.
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", "node"))
	deployEcho(t, w.consumer, namespace, "offloaded", 0)
	remote := namespace + "-" + peerConsumer
	var runs types.UID
	eventually(t, patience, "the consumer's pod runs at the provider", func(ctx context.Context) string {
		pods, err := w.provider.CoreV1().Pods(remote).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("%d pods in %s, %v", len(pods.Items), remote, err)
		}
		runs = pods.Items[0].UID
		return ""
	})
	w.isolated(t, remote)
	a := w.bind(t, "node", p)
	credentials := a.body["credentials"].(map[string]any)
	if _, has := credentials["kubeconfig"]; has || credentials["cluster"] != "a" {
		t.Errorf("a node is bound with %v, want its name and no kubeconfig", slices.Collect(maps.Keys(credentials)))
	}
	found := w.awaitEndpoints(t, peerConsumer, "node", "offloaded", "8080")
	w.endpoints["pod on the virtual node"] = found["8080"]
	w.wantSource(t, found["8080"], networkOf(t, peerProvider, peerConsumer).Pod)

	// What runs there is reserved, and is not counted again as somebody else's.
	w.broker.must(t, "PATCH", "/v2/service_instances/node", url.Values{"accepts_incomplete": {"true"}},
		map[string]any{"service_id": p.service, "plan_id": w.plan(t, &w.larger, "large").id}, http.StatusAccepted)
	w.broker.await(t, "node", "update of the node")
	w.wantNode(t, name, corev1.ResourceList{"cpu": resource.MustParse("400m"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("30")})
	// Another instance comes to the same provider, and goes.
	began = time.Now()
	w.broker.provision(t, "node-2", p, nil)
	t.Logf("another node of the same provider: %.1f s", time.Since(began).Seconds())
	w.broker.deprovision(t, "node-2", p)
	still, err := w.provider.CoreV1().Pods(remote).List(t.Context(), metav1.ListOptions{})
	if must(t, err); len(still.Items) != 1 || still.Items[0].UID != runs {
		t.Error("the pod was replaced while its node was resized, or while another instance came and went")
	}
	cluster := &v1alpha1.MemberCluster{}
	must(t, w.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "b"}, cluster))
	pods, err := w.provider.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.namespace!=" + remote})
	must(t, err)
	if used := cluster.Status.ForeignUse[corev1.ResourcePods]; used.Value() > int64(len(pods.Items)) {
		t.Errorf("b: %d pods count as others', and %d are", used.Value(), len(pods.Items))
	}
}

// isolated checks that pods on a virtual node and those of the provider's own do not reach each
// other, either way.
func (w *peeringWorld) isolated(t *testing.T, namespace string) {
	t.Helper()
	runCaller(t, w.provider)
	own, err := w.provider.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "caller", metav1.GetOptions{})
	must(t, err)
	pods, err := w.provider.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	ask := func(namespace, name, target string) func() (string, error) {
		return func() (string, error) {
			return inPod(w.kubectl, peerProvider, namespace, name, "get", "http://"+net.JoinHostPort(target, "8080"))
		}
	}
	for _, consumers := range pods.Items {
		answers(t, "a pod on a virtual node asks itself", ask(namespace, consumers.Name, consumers.Status.PodIP))
		answers(t, "a pod of the provider's asks itself", ask(own.Namespace, own.Name, own.Status.PodIP))
		silent(t, "a pod of the provider's asks one on a virtual node", ask(own.Namespace, own.Name, consumers.Status.PodIP))
		silent(t, "a pod on a virtual node asks one of the provider's", ask(namespace, consumers.Name, own.Status.PodIP))
	}
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

// network: a namespace at the provider, whose pod and Service the consumer's cluster reaches.
func (w *peeringWorld) network(t *testing.T) {
	p := w.plan(t, &w.across, "network")
	w.broker.provision(t, "network", p, nil)
	c := consume(t, w.bind(t, "network", p))
	deployEcho(t, c, c.namespace, "direct", 80)
	found := w.awaitEndpoints(t, peerConsumer, "network", "direct", "8080", "80")
	w.endpoints["pod of the provider"], w.endpoints["Service of the provider"] = found["8080"], found["80"]
	w.wantSource(t, found["8080"], networkOf(t, peerProvider, peerConsumer).Pod)
}

// workload: what runs at the provider is reached from the consumer's own cluster, at the address in the
// credentials, at the ports that say so and at no others.
func (w *peeringWorld) workload(t *testing.T) {
	const id = "workload"
	p := w.broker.findPlan(t, "peered-workloads", "small")
	w.broker.provision(t, id, p, nil)
	credentials := w.broker.bind(t, id, "app", p, nil)
	address, _ := credentials["url"].(string)
	eventually(t, patience, "the consumer's cluster reaches "+address, func(context.Context) string {
		if answered, err := w.fromConsumer(address); err != nil || !strings.HasPrefix(answered, "front") {
			return fmt.Sprintf("%q %v", answered, err)
		}
		return ""
	})
	mapped := networkOf(t, peerConsumer, peerProvider).Pod
	if len(mapped) != 1 {
		t.Fatalf("the provider's pods have the ranges %v in the consumer's cluster", mapped)
	}
	pods, err := w.provider.CoreV1().Pods(v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for i := range pods.Items {
		name := pods.Items[i].Labels[v1alpha1.LabelComponent]
		prefix, _, _ := strings.Cut(string(mapped[0]), ".0.0/")
		octets := strings.Split(pods.Items[i].Status.PodIP, ".")
		at := "http://" + prefix + "." + strings.Join(octets[2:], ".") + ":8080"
		answered, err := w.fromConsumer(at)
		if reached := err == nil; reached != (name == "front") {
			t.Errorf("the consumer's cluster asks the pod of %s at %s: %q %v", name, at, answered, err)
		}
	}
	w.broker.unbind(t, id, "app", p)
	w.broker.deprovision(t, id, p)
}

// behindTheHub: a provider joins without giving anybody an administrator's access, and is
// reached through the hub, which alone it knows.
func (w *peeringWorld) behindTheHub(t *testing.T) {
	folder := t.TempDir()
	began := time.Now()
	w.invitation = w.capture(t, folder, "invitation.yaml", "peering", "invite", "c", "--cluster-id", peerInvited, "--with", "b", "--data-dir", w.dataDir)
	answer := w.capture(t, folder, "answer.yaml", "peering", "accept", w.invitation, "--from-kubeconfig", internalKubeconfig(peerInvited))
	w.sluice("peering", "join", answer, "--region", "region-c")
	t.Logf("invited, accepted and joined: %.1f s", time.Since(began).Seconds())
	// It outlives the subtest, as the owner leaves by it.
	kept := filepath.Join(w.dataDir, "invitation.yaml")
	text, err := os.ReadFile(w.invitation)
	must(t, err)
	must(t, os.WriteFile(kept, text, 0o600))
	w.invitation = kept

	p := w.plan(t, &w.through, "behind-the-hub")
	began = time.Now()
	w.broker.provision(t, "hub", p, nil)
	t.Logf("an instance behind the hub: %.1f s", time.Since(began).Seconds())
	instance := w.instanceOf(t, "hub")
	placed := instance.Status.Delivered.Decision.Placements[0]
	if placed.Cluster != "c" || placed.Peering.Hub != "b" || placed.Peering.Consumer != "a" {
		t.Fatalf("placed on %s by %+v, want c through b for a", placed.Cluster, placed.Peering)
	}
	c := consume(t, w.bind(t, "hub", p))
	deployEcho(t, c, c.namespace, "beyond", 80)
	found := w.awaitEndpoints(t, peerConsumer, "hub", "beyond", "8080", "80")
	w.endpoints["pod behind the hub"], w.endpoints["Service of the hub"] = found["8080"], found["80"]
	invited := clientset(t, peerInvited)
	pods, err := invited.CoreV1().Pods(c.namespace+"-"+peerProvider).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(pods.Items) != 1 {
		t.Errorf("%d pods run on c, want the one", len(pods.Items))
	}
	// Neither sees the other: the invited cluster knows the hub only, and requests come from it.
	if _, err := invited.CoreV1().Namespaces().Get(t.Context(), liqo.TenantNamespace(peerConsumer), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("c knows the consumer's cluster: %v", err)
	}
	w.wantSource(t, found["8080"], networkOf(t, peerInvited, peerProvider).External)
}

// anInvitedConsumer joins without giving anybody an administrator's access, and proves its key to
// the provider by Liqo's handshake. It buys a node, and extends a namespace to it itself.
func (w *peeringWorld) anInvitedConsumer(t *testing.T) {
	folder := t.TempDir()
	began := time.Now()
	invitation := w.capture(t, folder, "invitation.yaml", "peering", "invite", "guest", "--cluster-id", peerInvited, "--with", "b", "--consumes", "--data-dir", w.dataDir)
	answer := w.capture(t, folder, "answer.yaml", "peering", "accept", invitation, "--from-kubeconfig", internalKubeconfig(peerInvited))
	w.sluice("peering", "join", answer, "--consumer", "first/org")
	t.Logf("a consumer invited, accepted and joined: %.1f s", time.Since(began).Seconds())
	tenant := &authv1beta1.Tenant{}
	must(t, liqoClient(t, peerProvider).Get(t.Context(), client.ObjectKey{Namespace: liqo.TenantNamespace(peerInvited), Name: peerInvited}, tenant))
	if policy := authv1beta1.GetAuthzPolicyValue(tenant.Spec.AuthzPolicy); policy != authv1beta1.KeysExchange || len(tenant.Spec.Signature) == 0 {
		t.Errorf("the provider has taken it by %s, want it by its signature", policy)
	}

	p := w.plan(t, &w.bare, "bare")
	began = time.Now()
	w.broker.provision(t, "guest", p, map[string]any{"cluster": "guest"})
	t.Logf("a node for it: %.1f s", time.Since(began).Seconds())
	own := clientset(t, peerInvited)
	runCaller(t, own)
	namespace := offloadByHand(t, peerInvited)
	deployEcho(t, own, namespace, "theirs", 0)
	w.bind(t, "guest", p)
	w.awaitEndpoints(t, peerInvited, "guest", "theirs", "8080")
	pods, err := w.provider.CoreV1().Pods(namespace+"-"+peerInvited).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(pods.Items) != 1 {
		t.Errorf("%d of its pods run at the provider, want the one", len(pods.Items))
	}

	sweepNamespace(t, liqoClient(t, peerInvited), namespace)
	w.broker.must(t, "DELETE", bindingPath("guest"), p.query(), nil, http.StatusOK, http.StatusAccepted)
	w.broker.deprovision(t, "guest", p)
	w.sluice("peering", "withdraw", "guest", "--with", "b")
	operate(t, "peering", "leave", invitation, "--from-kubeconfig", internalKubeconfig(peerInvited))
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

// slice is a request for resources that the consumer makes by itself, on its own cluster.
func slice(name string, class authv1beta1.ResourceSliceClass) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: liqo.TenantNamespace(peerProvider), Name: name,
			Labels:      map[string]string{"liqo.io/remote-cluster-id": peerProvider, "liqo.io/remoteID": peerProvider, "liqo.io/replication": "true"},
			Annotations: map[string]string{"liqo.io/create-virtual-node": "true"},
		},
		Spec: authv1beta1.ResourceSliceSpec{Class: class, Resources: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("5")}},
	}
}

// refusals: what the consumer has not bought is denied and says why; another class does not get
// in at all; and what the provider's policy refuses is refused by that.
func (w *peeringWorld) refusals(t *testing.T) {
	own := liqoClient(t, peerConsumer)
	want := func(s *authv1beta1.ResourceSlice, reason string) {
		t.Helper()
		must(t, own.Create(t.Context(), s))
		defer func() { must(t, client.IgnoreNotFound(own.Delete(t.Context(), s))) }()
		w.wantDenied(t, own, s, reason)
	}
	want(slice("never-bought", liqo.Class), "NotReserved")

	policy := filepath.Join(t.TempDir(), "policy.yaml")
	must(t, os.WriteFile(policy, []byte(`
apiVersion: sluice.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: not-for-first}
spec:
  require:
  - name: not-for-first
    expression: consumer.platform != "first"
`), 0o600))
	w.sluice("policy", "apply", "-f", policy)
	want(slice("refused", liqo.Class), "ConsumerRefused")
	w.broker.must(t, "PUT", "/v2/service_instances/refused", url.Values{"accepts_incomplete": {"true"}}, map[string]any{
		"service_id": w.node.service, "plan_id": w.node.id, "organization_guid": "org", "space_guid": "space"}, http.StatusAccepted)
	eventually(t, patience, "the order waits, by the policy", func(ctx context.Context) string {
		a, err := w.broker.do(ctx, "GET", "/v2/service_instances/refused/last_operation", nil, nil)
		if err == nil && strings.Contains(fmt.Sprint(a.body["description"]), "Policy") {
			return ""
		}
		return fmt.Sprint(a, err)
	})
	w.sluice("policy", "remove", "not-for-first")
	w.broker.await(t, "refused", "the order, once the policy is gone")
	w.broker.deprovision(t, "refused", w.node)

	bypass := slice("bypass", authv1beta1.ResourceSliceClassDefault)
	must(t, own.Create(t.Context(), bypass))
	defer func() { must(t, client.IgnoreNotFound(own.Delete(context.Background(), bypass))) }()
	replica := slice("bypass", authv1beta1.ResourceSliceClassDefault)
	replica.Namespace = liqo.TenantNamespace(peerConsumer)
	replica.Labels["liqo.io/replicated"] = "true"
	err := liqoClient(t, peerProvider).Create(t.Context(), replica, client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "are sold by Sluice") {
		t.Errorf("a slice of another class at the provider: %v, want the admission policy's refusal", err)
	}
	if err := own.Get(t.Context(), client.ObjectKeyFromObject(bypass), bypass); err != nil || len(bypass.Status.Conditions) > 0 {
		t.Errorf("the consumer's slice of another class: %v %v, want no answer", bypass.Status.Conditions, err)
	}
}

func (w *peeringWorld) wantDenied(t *testing.T, own client.Client, s *authv1beta1.ResourceSlice, reason string) {
	t.Helper()
	eventually(t, patience, s.Name+" is denied: "+reason, func(ctx context.Context) string {
		if err := own.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err.Error()
		}
		for _, c := range s.Status.Conditions {
			if c.Type == authv1beta1.ResourceSliceConditionTypeResources && c.Status == authv1beta1.ResourceSliceConditionDenied && c.Reason == reason {
				t.Logf("%s: %s", s.Name, c.Message)
				return ""
			}
		}
		return fmt.Sprint(s.Status.Conditions)
	})
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

// faults: a gateway dies, a key is lost, the provider's API server stops for a minute.
func (w *peeringWorld) faults(t *testing.T) {
	w.reachable(t, "to begin with")
	gateways, err := w.provider.CoreV1().Pods(liqo.TenantNamespace(peerConsumer)).List(t.Context(), metav1.ListOptions{LabelSelector: "networking.liqo.io/component=gateway"})
	must(t, err)
	if len(gateways.Items) == 0 {
		t.Fatal("no gateway pod at the provider")
	}
	for _, gateway := range gateways.Items {
		must(t, w.provider.CoreV1().Pods(gateway.Namespace).Delete(t.Context(), gateway.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	w.reachable(t, "a gateway is killed")

	key := &networkingv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Namespace: liqo.TenantNamespace(peerConsumer), Name: peerConsumer}}
	own := liqoClient(t, peerProvider)
	must(t, own.Delete(t.Context(), key))
	eventually(t, patience, "a key that was removed is back", func(ctx context.Context) string {
		if err := own.Get(ctx, client.ObjectKeyFromObject(key), key); err != nil {
			return err.Error()
		}
		return ""
	})

	w.reachable(t, "a key was lost")

	apiServer := func(signal string) {
		docker(t, "exec", peerProvider+"-control-plane", "pkill", "-"+signal, "kube-apiserver")
	}
	apiServer("STOP")
	stopped := time.Now()
	t.Cleanup(func() {
		_ = exec.Command("docker", "exec", peerProvider+"-control-plane", "pkill", "-CONT", "kube-apiserver").Run()
	})
	// Data needs no control plane: for the whole minute, no endpoint is silent for longer than
	// WireGuard takes to shake hands anew (REKEY_TIMEOUT, twice).
	const handshakes = 10 * time.Second
	answered := map[string]time.Time{}
	for to := range w.endpoints {
		answered[to] = stopped
	}
	for time.Since(stopped) < time.Minute {
		for to, address := range w.endpoints {
			answer, err := w.fromConsumer("http://" + address)
			if err == nil {
				answered[to] = time.Now()
				continue
			}
			t.Logf("%s, %s, %.0f s after the provider's API server stopped: %s %v", to, address, time.Since(stopped).Seconds(), answer, err)
			if silent := time.Since(answered[to]); silent > handshakes {
				t.Fatalf("%s, %s: no answer for %.0f s", to, address, silent.Seconds())
			}
		}
	}
	apiServer("CONT")
	w.reachable(t, "the provider's API server was gone for a minute")
	// What could not be checked was not listed; it is again, once Liqo has its node ready again.
	for _, id := range []string{"node", "network", "hub"} {
		eventually(t, patience, id+": its binding has endpoints", func(context.Context) string {
			a := w.broker.must(t, "GET", bindingPath(id), nil, nil, http.StatusOK)
			if endpoints, _ := a.body["endpoints"].([]any); len(endpoints) == 0 {
				return fmt.Sprint(a.body["metadata"])
			}
			return ""
		})
	}
}

// giveBack ends it all: bindings, instances, the invitation.
func (w *peeringWorld) giveBack(t *testing.T) {
	began := time.Now()
	plans := map[string]plan{"node": w.larger, "network": w.across, "hub": w.through}
	for id, p := range plans {
		w.broker.must(t, "DELETE", bindingPath(id), p.query(), nil, http.StatusOK, http.StatusAccepted)
	}
	for id, p := range plans {
		w.broker.must(t, "DELETE", "/v2/service_instances/"+id, p.query(), nil, http.StatusAccepted)
	}
	for id := range plans {
		w.broker.await(t, id, "deprovision "+id)
	}
	t.Logf("three instances and their peerings are gone after %.1f s", time.Since(began).Seconds())
	w.sluice("peering", "withdraw", "c", "--with", "b")
	operate(t, "peering", "leave", w.invitation, "--from-kubeconfig", internalKubeconfig(peerInvited))
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
