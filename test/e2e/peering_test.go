//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
)

// The kind clusters of TestPeering: a consumer's own, a provider that is also the hub, a
// provider that joins by invitation, and a member of a pool.
const (
	peerConsumer = "sluice-a"
	peerProvider = "sluice-b"
	peerInvited  = "sluice-c"
	peerSmall    = "sluice-d"
)

// patience is how long anything of Liqo's may take on a busy machine.
const patience = 5 * time.Minute

var (
	// keep leaves the clusters for the next run.
	keep = flag.Bool("keep", false, "leave the clusters of TestPeering up")
	// faults is set by `make e2e-faults`.
	faults = flag.Bool("faults", false, "let a gateway, a key and an API server fail as well, and kill Sluice after each of its writes while a virtual node comes and goes")
)

var peers = []string{peerConsumer, peerProvider, peerInvited, peerSmall}

// TestPeering plays the story of peered clusters with real Liqo, modified only in that its
// links between nodes and gateways are VXLAN, which this machine's kernel has (test/kind):
// virtual nodes, namespaces that the consumer's cluster reaches, a provider that joins by
// invitation and is reached through the hub; what is refused; two providers that are sold as one; a consumer that joins by
// invitation; an application over three clusters; with -faults, faults and kills; and that nothing is left.
func TestPeering(t *testing.T) {
	w := newPeeringWorld(t)
	w.gateway, _ = gateway(t, peerConsumer)
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
		{"an invited provider behind the hub", w.behindTheHub},
		{"figures", w.measure},
		{"what is refused", func(t *testing.T) {
			besides(t, "what nobody has bought", w.refusals)
			besides(t, "nobody escapes", w.escapes)
		}},
		{"faults", w.faults},
		{"gives all of it back", w.giveBack},
		{"a pool of small providers", w.pool},
		{"an invited consumer", w.anInvitedConsumer},
		{"an application over three clusters", w.tour},
		{"gives the application back", w.endTour},
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
