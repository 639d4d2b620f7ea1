package liqo_test

import (
	"context"
	"errors"
	"strings"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/liqo"
)

func (p *pair) driver() *liqo.Driver {
	return &liqo.Driver{Namespaces: &kube.Driver{Connections: p.connections, Hub: hubID}, Client: p.hub, Live: p.hub}
}

// instance is one on the hub, with a node of some cores.
func (p *pair) instance(name, cores string) delivery.Delivery {
	p.Helper()
	name = v1alpha1.InstanceName("platform-1", p.Name()+name)
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name, Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.ServiceInstanceSpec{Platform: "platform-1", InstanceID: name, ServiceID: "service", Desired: v1alpha1.InstanceState{PlanID: "plan"}},
	}
	must(p.T, p.hub.Create(p.Context(), instance))
	return p.decide(delivery.Delivery{Instance: instance}, cores)
}

// decide sets the decision of an instance to some cores.
func (p *pair) decide(d delivery.Delivery, cores string) delivery.Delivery {
	p.Helper()
	d.Placement = v1alpha1.Placement{Cluster: p.provider.name, Reserved: amounts(cores), Peering: &v1alpha1.PlacementPeering{
		Consumer: p.consumer.name, Node: v1alpha1.VirtualNodeName(d.Instance.Name, p.provider.name),
		Offloading: &v1alpha1.Offloading{Mapping: "DefaultName", Pods: "Remote"},
	}}
	d.Instance.Status.Decision = &v1alpha1.Decision{Generation: 1, Placements: []v1alpha1.Placement{d.Placement}}
	must(p.T, p.hub.Status().Update(p.Context(), d.Instance))
	return d
}

// until calls a method of the driver, and reconciles the peering as its controller would, until
// it no longer waits.
func (p *pair) until(what string, d delivery.Delivery, call func(context.Context, delivery.Delivery) error) {
	p.Helper()
	peering, last := p.peering(), ""
	p.eventually(what, func(ctx context.Context) (bool, error) {
		err := call(ctx, d)
		if !p.waits(err) {
			return true, nil
		}
		last = err.Error()
		p.advance(ctx, peering)
		return false, nil
	}, func() string { return last })
}

func (p *pair) peering() *v1alpha1.Peering {
	return &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: v1alpha1.PeeringName(p.consumer.name, p.provider.name)}}
}

func (p *pair) deprovision(d delivery.Delivery) {
	p.Helper()
	must(p.T, p.hub.Delete(p.Context(), d.Instance))
	must(p.T, p.hub.Get(p.Context(), client.ObjectKeyFromObject(d.Instance), d.Instance))
}

// deprovisioned does the instance controller's part once everything is removed.
func (p *pair) deprovisioned(d delivery.Delivery) {
	p.Helper()
	d.Instance.Finalizers = nil
	must(p.T, p.hub.Update(p.Context(), d.Instance))
}

// nodeCores returns the cores of the instance's node on the consumer's cluster; empty if there
// is none.
func (p *pair) nodeCores(d delivery.Delivery) string {
	p.Helper()
	node := &corev1.Node{}
	if !p.consumer.has(p.T, "", d.Placement.Peering.Node, node) {
		return ""
	}
	return node.Status.Allocatable.Cpu().String()
}

func (p *pair) extension(d delivery.Delivery) *offloadingv1beta1.NamespaceOffloading {
	p.Helper()
	extension := &offloadingv1beta1.NamespaceOffloading{}
	if !p.consumer.has(p.T, v1alpha1.MemberNamespace(d.Instance.Name), consts.DefaultNamespaceOffloadingName, extension) {
		p.Fatalf("%s has no namespace that is extended", d.Instance.Name)
	}
	return extension
}

// wantExtendedByAllNodes: Liqo ends the extension of a namespace to a cluster when one of the
// cluster's virtual nodes is not selected, even if it is another instance's.
func (p *pair) wantExtendedByAllNodes(d delivery.Delivery) {
	p.Helper()
	selector := p.extension(d).Spec.ClusterSelector
	var nodes corev1.NodeList
	must(p.T, p.consumer.admin.List(p.Context(), &nodes, client.MatchingLabels{consts.RemoteClusterID: p.provider.id}))
	if len(nodes.Items) < 2 {
		p.Errorf("%d nodes, want those of two instances", len(nodes.Items))
	}
	for i := range nodes.Items {
		if selected, err := corev1helpers.MatchNodeSelectorTerms(&nodes.Items[i], &selector); err != nil || !selected {
			p.Errorf("the namespace of %s does not extend to node %s: %v", d.Instance.Name, nodes.Items[i].Name, err)
		}
	}
}

func instancesShareAPeering(p *pair) {
	driver := p.driver()
	one, two := p.instance("one", "2"), p.instance("two", "3")
	p.until("the first is delivered", one, driver.Deliver)
	peering := p.peering()
	must(p.T, p.hub.Get(p.Context(), client.ObjectKeyFromObject(peering), peering))
	p.until("the second is delivered", two, driver.Deliver)
	if got := p.nodeCores(one) + " " + p.nodeCores(two); got != "2 3" {
		p.Errorf("the nodes have %q cores, want 2 and 3", got)
	}
	must(p.T, driver.Observe(p.Context(), one))
	for _, d := range []delivery.Delivery{one, two} {
		p.wantExtendedByAllNodes(d)
	}
	extension := p.extension(one)
	extension.Spec.ClusterSelector.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "nobody"
	must(p.T, p.consumer.admin.Update(p.Context(), extension))
	if err := driver.Observe(p.Context(), one); err == nil || !strings.Contains(err.Error(), "NamespaceOffloading offloading was changed") {
		p.Errorf("observing an extension that was changed: %v", err)
	}

	one = p.decide(one, "5")
	if err := driver.Observe(p.Context(), one); err == nil || !strings.Contains(err.Error(), "it has 2 cpu, and should have 5") {
		p.Errorf("observing a size that is not delivered: %v", err)
	}
	p.until("the first has grown", one, driver.Deliver)
	if got := p.nodeCores(one); got != "5" {
		p.Errorf("the node has %s cores, want 5", got)
	}

	p.deprovision(one)
	p.until("the first is removed", one, driver.Remove)
	p.deprovisioned(one)
	if p.nodeCores(one) != "" || p.provider.has(p.T, p.provider.tenant(p.consumer), one.Placement.Peering.Node, &authv1beta1.ResourceSlice{}) {
		p.Error("the node of the first, or what stands behind it, is left")
	}
	still := p.peering()
	if err := p.hub.Get(p.Context(), client.ObjectKeyFromObject(still), still); err != nil || still.UID != peering.UID || !still.DeletionTimestamp.IsZero() {
		p.Fatalf("the peering that the second needs is %v, %v", still.DeletionTimestamp, err)
	}
	must(p.T, driver.Observe(p.Context(), two))

	p.deprovision(two)
	p.until("the second is removed", two, driver.Remove)
	if err := p.hub.Get(p.Context(), client.ObjectKeyFromObject(still), still); !apierrors.IsNotFound(err) {
		p.Errorf("the peering that nobody needs: %v", err)
	}
	p.wantNothingLeft()
	must(p.T, driver.Remove(p.Context(), two)) // once more does nothing
}

// If two instances go at the same time, each sees that the other still needs the peering.
func instancesThatGoTogether(p *pair) {
	driver := p.driver()
	one, two := p.instance("one", "2"), p.instance("two", "3")
	p.until("the first is delivered", one, driver.Deliver)
	p.until("the second is delivered", two, driver.Deliver)
	p.deprovision(one)
	p.deprovision(two)
	p.until("the first is removed", one, driver.Remove)
	p.until("the second is removed", two, driver.Remove)
	p.deprovisioned(one)
	p.deprovisioned(two)
	peering := p.peering()
	if err := p.hub.Get(p.Context(), client.ObjectKeyFromObject(peering), peering); err == nil {
		p.untilGone(peering)
	}
	p.wantNothingLeft()
}

// While a restored hub may lack instances that need a peering, it stays when the last known one goes. Afterwards it ends.
func heldPeeringsStay(p *pair) {
	held := func(context.Context) error { return errors.New("the hub was restored") }
	driver := p.driver()
	driver.Hold, p.peerings.Hold = held, held
	one := p.instance("one", "2")
	p.until("it is delivered", one, driver.Deliver)
	p.deprovision(one)
	p.until("it is removed", one, driver.Remove)
	p.deprovisioned(one)
	peering := p.peering()
	p.pass(p.Context(), peering)
	if err := p.hub.Get(p.Context(), client.ObjectKeyFromObject(peering), peering); err != nil || !peering.DeletionTimestamp.IsZero() {
		p.Fatalf("the peering ends: %v", err)
	}
	p.peerings.Hold = nil
	p.untilGone(peering)
	p.wantNothingLeft()
}

// An instance leaves one of two clusters: its namespace on the consumer's cluster stays, and
// extends only to the other one.
func aClusterOfSeveralIsLeft(p *pair) {
	driver := p.driver()
	d := p.instance("moves", "2")
	p.until("it is delivered", d, driver.Deliver)
	left := v1alpha1.LeftPlacement{Placement: *d.Placement.DeepCopy(), Since: metav1.Now()}
	left.Cluster, left.Peering.Node = "left", v1alpha1.VirtualNodeName(d.Instance.Name, "left")
	d.Instance.Status.Left = []v1alpha1.LeftPlacement{left}
	must(p.T, p.hub.Status().Update(p.Context(), d.Instance))
	extension := p.extension(d)
	values := &extension.Spec.ClusterSelector.NodeSelectorTerms[0].MatchExpressions[0].Values
	*values = append(*values, "left")
	must(p.T, p.consumer.admin.Update(p.Context(), extension))
	p.until("either is right until the other is removed", d, driver.Observe)

	p.until("the other is removed", delivery.Delivery{Instance: d.Instance, Placement: v1alpha1.Placement{Cluster: "left"}}, driver.Remove)
	if got := p.extension(d).Spec.ClusterSelector.NodeSelectorTerms[0].MatchExpressions[0].Values; len(got) != 1 || got[0] != p.provider.id {
		p.Errorf("the namespace extends to %v, want %s only", got, p.provider.id)
	}
	d.Instance.Status.Left = nil
	must(p.T, p.hub.Status().Update(p.Context(), d.Instance))
	p.until("it is as it should be", d, driver.Observe)
	p.deprovision(d)
	p.until("it is removed", d, driver.Remove)
	p.deprovisioned(d)
	p.wantNothingLeft()
}

// namespacesExtendAsThePlanSays: Liqo's own definition accepts each of them, and keeps it
// unchanged.
func namespacesExtendAsThePlanSays(p *pair) {
	driver := p.driver()
	for _, how := range []v1alpha1.Offloading{
		{Mapping: "DefaultName", Pods: "Remote"},
		{Mapping: "EnforceSameName", Pods: "Local"},
		{Mapping: "SelectedName", Name: "ours-there", Pods: "LocalAndRemote"},
	} {
		d := p.instance("extends-"+strings.ToLower(how.Mapping), "1")
		d.Placement.Peering.Offloading = &how
		d.Instance.Status.Decision.Placements[0] = d.Placement
		must(p.T, p.hub.Status().Update(p.Context(), d.Instance))
		p.until("it is delivered with "+how.Mapping, d, driver.Deliver)
		spec := p.extension(d).Spec
		got := v1alpha1.Offloading{Mapping: string(spec.NamespaceMappingStrategy), Name: spec.RemoteNamespaceName, Pods: string(spec.PodOffloadingStrategy)}
		if got != how {
			p.Errorf("Liqo is asked for %+v, want %+v", got, how)
		}
		must(p.T, driver.Observe(p.Context(), d))
	}
}
