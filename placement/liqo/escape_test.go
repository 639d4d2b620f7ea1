package liqo_test

import (
	"context"
	"slices"
	"strings"
	"time"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo/liqotest"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/test/escape"
)

// offloaded returns a namespace as Liqo creates it at a provider for another cluster's pods,
// and a client with the identity of that cluster's virtual kubelet.
func (p *pair) offloaded(name string) (kubelet client.Client) {
	p.Helper()
	must(p.T, p.provider.admin.Create(p.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{consts.RemoteClusterID: p.consumer.id}}}))
	role := liqotest.VirtualKubeletRemote(p.T)
	if err := p.provider.admin.Create(p.Context(), role); !apierrors.IsAlreadyExists(err) {
		must(p.T, err)
	}
	must(p.T, p.provider.admin.Create(p.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: p.provider.tenant(p.consumer)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: p.consumer.id}},
	}))
	config := rest.CopyConfig(p.provider.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "virtual-kubelet", Groups: []string{p.consumer.id, "system:authenticated"}}
	return newClient(p.T, config)
}

// nobodyEscapesOverANode writes, as a consumer's virtual kubelet, ShadowPods that no genuine
// one would write, and the pods that Liqo makes of them.
func nobodyEscapesOverANode(p *pair) {
	p.untilReady(p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true)))
	namespace := "remote-" + p.consumer.name
	kubelet := p.offloaded(namespace)
	shadow := func(pod *corev1.Pod) *offloadingv1beta1.ShadowPod {
		return &offloadingv1beta1.ShadowPod{ObjectMeta: pod.ObjectMeta, Spec: offloadingv1beta1.ShadowPodSpec{Pod: pod.Spec}}
	}
	plain := escape.Pod(namespace, "plain", "registry.example/app")
	plain.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	p.eventually("no pod before the namespace is isolated", func(ctx context.Context) (bool, error) {
		err := kubelet.Create(ctx, shadow(plain), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "sluice-liqo-isolated-first"), nil
	}, func() string { return "" })

	judge := &liqo.Judge{
		Client: p.hub, Live: p.hub, Connections: p.connections, Namespace: p.namespace, Hub: hubID, Every: 50 * time.Millisecond,
		Refuses: func(string, []v1alpha1.ConsumerReference) string { return "" },
	}
	ctx, stop := context.WithCancel(p.Context())
	done := make(chan error, 1)
	go func() { done <- judge.Start(ctx) }()
	var last error
	p.eventually("pods once it is isolated", func(ctx context.Context) (bool, error) {
		last = kubelet.Create(ctx, shadow(plain), client.DryRunAll)
		return last == nil, nil
	}, func() string { return last.Error() })
	stop()
	must(p.T, <-done)
	policy := &networkingv1.NetworkPolicy{}
	if !p.provider.has(p.T, namespace, "sluice-isolation", policy) || !p.provider.has(p.T, namespace, "sluice-isolation", &corev1.ResourceQuota{}) {
		p.Fatal("the namespace has no NetworkPolicy or no quota")
	}
	if len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.PodSelector.MatchLabels) != 0 || len(policy.Spec.Egress) != 2 {
		p.Errorf("the NetworkPolicy is %+v", policy.Spec)
	}
	for _, peer := range slices.Concat(policy.Spec.Ingress[0].From, policy.Spec.Egress[0].To) {
		if peer.IPBlock != nil && !strings.HasPrefix(peer.IPBlock.CIDR, "10.") {
			p.Errorf("the NetworkPolicy opens %v", peer)
		}
	}

	for _, row := range escape.Pods() {
		pod := escape.Pod(namespace, "escape", "registry.example/app")
		row.Make(pod)
		refusedWith(p.T, row.Name+", by a ShadowPod", kubelet.Create(p.Context(), shadow(pod), client.DryRunAll), row.By)
		refusedWith(p.T, row.Name+", by a pod", p.provider.admin.Create(p.Context(), pod, client.DryRunAll), row.By)
	}
	for _, attempt := range escape.Objects(namespace) {
		by := attempt.By
		if by == "ports" || by == "balancers" {
			by = "other types than ClusterIP"
		}
		refusedWith(p.T, attempt.Name, kubelet.Create(p.Context(), attempt.Object, client.DryRunAll), by)
	}
	must(p.T, p.provider.admin.Create(p.Context(), plain.DeepCopy()))
	must(p.T, kubelet.Create(p.Context(), shadow(plain)))
	later := shadow(plain)
	must(p.T, kubelet.Get(p.Context(), client.ObjectKeyFromObject(later), later))
	later.Spec.Pod.HostNetwork = true
	refusedWith(p.T, "a ShadowPod that is changed", kubelet.Update(p.Context(), later), "namespaces of its node")
	refusedWith(p.T, "an event", kubelet.Create(p.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "flood"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace}}), "events are the provider's")
	refusedWith(p.T, "a pod in another namespace", kubelet.Create(p.Context(), shadow(escape.Pod("default", "escape", "a"))), "cannot create resource")

	peer := as(p.T, p.identity().Data[consts.KubeconfigSecretField])
	many := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.provider.tenant(p.consumer), Name: "many"}}
	many.Spec.DesiredMapping = map[string]string{}
	for i := range 101 {
		many.Spec.DesiredMapping["n"+strings.Repeat("x", i)] = "n"
	}
	refusedWith(p.T, "namespaces without end", peer.Create(p.Context(), many), "at most 100 namespaces")

	sluice := as(p.T, p.provider.kubeconfig)
	refusedWith(p.T, "Sluice isolates kube-system", sluice.Create(p.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "thief"}}), "only namespaces in which consumers' pods run")
}
