package liqo_test

import (
	"context"
	"strings"
	"time"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/test/escape"
)

// agreedPodsOverANode: in the namespaces of a consumer's cluster at a provider, the rules of all of the consumer's orders
// there hold, from before the first pod on, and those of an order until it is gone. In namespaces that Sluice extends from
// a hub, only those of the order hold.
func agreedPodsOverANode(p *pair) {
	p.untilReady(p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true)))
	own := "agreed-" + p.consumer.name
	kubelet := p.offloaded(own)
	order := func(name, hub string, rules ...v1alpha1.WorkloadRules) *v1alpha1.ServiceInstance {
		i := &v1alpha1.ServiceInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.consumer.name + "-" + name},
			Spec:       v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: name, ServiceID: "s", Desired: v1alpha1.InstanceState{PlanID: "p"}},
		}
		must(p.T, p.hub.Create(p.Context(), i))
		peering := &v1alpha1.PlacementPeering{Consumer: p.consumer.name, Node: "node-" + name}
		if hub != "" {
			peering.Consumer, peering.Hub = "another", hub
		}
		i.Status.Decision = &v1alpha1.Decision{Placements: []v1alpha1.Placement{{
			Cluster: p.provider.name, Reserved: corev1.ResourceList{}, Peering: peering, Workloads: rules,
		}}}
		must(p.T, p.hub.Status().Update(p.Context(), i))
		return i
	}
	images := v1alpha1.WorkloadRules{Registries: []string{"registry.example"}}
	first := order("first", "", images)
	second := order("second", "", v1alpha1.WorkloadRules{Registries: []string{"registry.example/team", "other.example"}, Capabilities: []string{"NONE"}})
	through := order("through", p.consumer.name, v1alpha1.WorkloadRules{Digests: true})
	extended := "extended-" + p.consumer.name
	throughHub := p.offloaded(extended)
	for namespace, original := range map[string]string{own: "theirs", extended: v1alpha1.MemberNamespace(through.Name)} {
		must(p.T, p.provider.admin.Patch(p.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"`+consts.RemoteNamespaceOriginalNameAnnotationKey+`":"`+original+`"}}}`))))
	}

	digest := "@sha256:" + strings.Repeat("a", 64)
	shadow := func(namespace, image string, add ...corev1.Capability) *offloadingv1beta1.ShadowPod {
		pod := escape.Pod(namespace, "app", image)
		if len(add) > 0 {
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: add}}
		}
		return &offloadingv1beta1.ShadowPod{ObjectMeta: pod.ObjectMeta, Spec: offloadingv1beta1.ShadowPodSpec{Pod: pod.Spec}}
	}
	judge := &liqo.Judge{
		Client: p.hub, Live: p.hub, Connections: p.connections, Namespace: p.namespace, Hub: hubID, Every: 50 * time.Millisecond,
		Refuses: func(string, []v1alpha1.ConsumerReference) string { return "" },
	}
	ctx, stop := context.WithCancel(p.Context())
	done := make(chan error, 1)
	go func() { done <- judge.Start(ctx) }()
	defer func() { stop(); must(p.T, <-done) }()
	allows := func(what string, by client.Client, pod *offloadingv1beta1.ShadowPod) {
		p.Helper()
		var last error
		p.eventually(what, func(ctx context.Context) (bool, error) {
			last = by.Create(ctx, pod.DeepCopy(), client.DryRunAll)
			return last == nil, nil
		}, func() string { return last.Error() })
	}
	refuses := func(what string, by client.Client, pod *offloadingv1beta1.ShadowPod, because string) {
		p.Helper()
		refusedWith(p.T, what, by.Create(p.Context(), pod.DeepCopy(), client.DryRunAll), because)
		made := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec.Pod}
		refusedWith(p.T, what+", by a pod", p.provider.admin.Create(p.Context(), made, client.DryRunAll), because)
	}
	allows("a pod of both orders' registry", kubelet, shadow(own, "registry.example/team/app"))
	refuses("a pod of one order's registry", kubelet, shadow(own, "other.example/app"), "images come only from registry.example/team: other.example/app is refused")
	refuses("a capability", kubelet, shadow(own, "registry.example/team/app", "KILL"), "containers add only capabilities that were agreed")
	allows("a pod through the hub", throughHub, shadow(extended, "nginx"+digest, "KILL"))
	refuses("a tag through the hub", throughHub, shadow(extended, "nginx"), "named by their digest")
	has := func(namespace string) map[string]string {
		policy := &networkingv1.NetworkPolicy{}
		p.provider.has(p.T, namespace, "sluice-isolation", policy)
		return podrules.Both(policy.Annotations, nil)
	}
	refusedWith(p.T, "a kubelet that lifts a rule", kubelet.Patch(p.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "sluice-isolation"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`))), "cannot patch resource")

	must(p.T, p.hub.Delete(p.Context(), second))
	allows("a pod once the stricter order is gone", kubelet, shadow(own, "registry.example/app", "KILL"))
	refuses("a pod against the other one", kubelet, shadow(own, "nginx"), "images come only from registry.example: docker.io/library/nginx is refused")
	must(p.T, p.hub.Delete(p.Context(), first))
	allows("a pod once all are gone", kubelet, shadow(own, "nginx"))
	if got := has(own); len(got) > 0 {
		p.Errorf("the namespace has %v", got)
	}
	refuses("a tag through the hub, still", throughHub, shadow(extended, "nginx"), "named by their digest")
}
