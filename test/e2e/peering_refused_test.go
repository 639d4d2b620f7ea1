//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/liqo"
)

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

// faults: a gateway dies, a key is lost, the provider's API server stops for a minute.
func (w *peeringWorld) faults(t *testing.T) {
	if !*faults {
		t.Skip("make e2e-faults plays them")
	}
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
