package liqo

import (
	"strings"
	"testing"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/test/escape"
)

// TestGuards tries to escape over a virtual node, with the policies alone: by ShadowPods that the
// virtual kubelet's identity writes, and by the pods that Liqo makes of them.
func TestGuards(t *testing.T) {
	const ns, consumer = "app-theirs", "theirs"
	guards := escape.GuardsOf(t, Guards(kube.DefaultNamespace))
	labels := map[string]string{consts.RemoteClusterID: consumer}
	kubelet := user.DefaultInfo{Name: "theirs-node", Groups: []string{consumer, "system:authenticated"}}
	provider := user.DefaultInfo{Name: "system:serviceaccount:liqo:liqo-controller-manager"}
	sluice := user.DefaultInfo{Name: "system:serviceaccount:sluice-system:sluice"}
	refused := func(name string, r escape.Request, by string) {
		t.Helper()
		if r.Params == nil {
			r.Params = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sluice-isolation"}}
		}
		words := guards.Refusals(t.Context(), r)
		if by == "" && len(words) > 0 {
			t.Errorf("%s: refused: %q", name, words)
		}
		if by != "" && (len(words) != 1 || !strings.Contains(words[0], by)) {
			t.Errorf("%s: got %q, want one refusal with %q", name, words, by)
		}
	}
	shadow := func(p *corev1.Pod) escape.Request {
		return escape.Create(offloadingGroup, "shadowpods", "ShadowPod",
			&offloadingv1beta1.ShadowPod{ObjectMeta: p.ObjectMeta, Spec: offloadingv1beta1.ShadowPodSpec{Pod: p.Spec}}, kubelet, labels)
	}
	pod := func(p *corev1.Pod) escape.Request {
		return escape.Create("", "pods", "Pod", p, provider, labels)
	}
	for _, row := range escape.Pods() {
		p := escape.Pod(ns, "escape", "app")
		row.Make(p)
		refused(row.Name+", by a ShadowPod", shadow(p), row.By)
		refused(row.Name+", by a pod", pod(p), row.By)
	}
	for _, row := range escape.Agreed() {
		p := escape.Pod(ns, "agreed", "registry.example/team/app")
		row.Make(p)
		for way, r := range map[string]escape.Request{"a ShadowPod": shadow(p), "a pod": pod(p)} {
			r.Params = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sluice-isolation", Annotations: podrules.Annotations(row.Rules...)}}
			refused(row.Name+", by "+way, r, row.By)
		}
	}
	for _, attempt := range escape.Objects(ns) {
		by := attempt.By
		if by == "ports" || by == "balancers" {
			by = "other types than ClusterIP"
		}
		refused(attempt.Name, escape.Create(attempt.Group, attempt.Resource, attempt.Kind, attempt.Object, kubelet, labels), by)
	}
	plain := escape.Pod(ns, "plain", "app")
	plain.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists}}
	refused("a plain ShadowPod", shadow(plain), "")
	refused("a plain pod", pod(plain), "")
	later := shadow(plain)
	worse := later.Object.(*offloadingv1beta1.ShadowPod).DeepCopy()
	worse.Spec.Pod.NodeName = "node-1"
	later.Operation, later.Old, later.Object, later.Options = admission.Update, later.Object, worse, &metav1.UpdateOptions{}
	refused("a ShadowPod that gets a node", later, "the scheduler chooses")

	meta := metav1.ObjectMeta{Namespace: ns, Name: "a"}
	refused("a Service", escape.Create("", "services", "Service", &corev1.Service{ObjectMeta: meta}, kubelet, labels), "")
	refused("an event", escape.Create("", "events", "Event", &corev1.Event{ObjectMeta: meta}, kubelet, labels), "events are the provider's")
	refused("an event of the provider's", escape.Create("", "events", "Event", &corev1.Event{ObjectMeta: meta}, provider, labels), "")
	policy := func(by user.DefaultInfo, labels map[string]string) escape.Request {
		return escape.Create("networking.k8s.io", "networkpolicies", "NetworkPolicy", &networkingv1.NetworkPolicy{ObjectMeta: meta}, by, labels)
	}
	const elsewhere = "only namespaces in which consumers' pods run"
	refused("Sluice isolates the namespace", policy(sluice, labels), "")
	refused("Sluice isolates an instance's", policy(sluice, map[string]string{v1alpha1.LabelHub: "hub-1"}), "")
	refused("Sluice isolates another", policy(sluice, nil), elsewhere)
	refused("Sluice isolates a tenant namespace of Liqo's", policy(sluice, map[string]string{consts.RemoteClusterID: consumer, consts.TenantNamespaceLabel: "true"}), elsewhere)
	refused("somebody else isolates another", policy(provider, nil), "")

	namespaces := func(count int) escape.Request {
		m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-theirs", Name: "theirs", Labels: map[string]string{consts.ReplicationStatusLabel: "true"}}}
		m.Spec.DesiredMapping = map[string]string{}
		for i := range count {
			m.Spec.DesiredMapping["n"+strings.Repeat("x", i)] = "n"
		}
		return escape.Create(offloadingGroup, "namespacemaps", "NamespaceMap", m, kubelet, nil)
	}
	refused("a hundred namespaces", namespaces(100), "")
	refused("one more", namespaces(101), "at most 100 namespaces")
}
