package liqo_test

import (
	"context"
	"errors"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// linkedComponentsReachEachOther: components on two clusters that are linked have Services of the same
// names on both, whose addresses lead to the other one. When one moves to the cluster of the other,
// nothing of the link is left, and with the last link goes the peering.
func linkedComponentsReachEachOther(p *pair) { linkedComponents(p, nil) }

// linkedComponentsAreReachedByTheConsumer: the same, and the consumer's own cluster is let in besides.
func linkedComponentsAreReachedByTheConsumer(p *pair) {
	own := p.join(p.T, "links-third", newPlane(p.T, "third"))
	startStandIn(p.T, own, p.consumer)
	startStandIn(p.T, own, p.provider)
	linkedComponents(p, own)
}

// linkedComponents is these tests; own is the consumer's cluster, nil without a peering.
func linkedComponents(p *pair, own *end) {
	reach, wantFrom := v1alpha1.ReachApplication, 3
	if own != nil {
		reach, wantFrom = v1alpha1.ReachConsumer, 5
	}
	none := intstr.FromInt32(0) // these control planes have no nodes
	component := func(name string, port int32) v1alpha1.WorkloadComponent {
		return v1alpha1.WorkloadComponent{
			Name: name, Ports: []v1alpha1.WorkloadPort{{Name: "main", Port: port, Reach: reach}},
			Container: &v1alpha1.WorkloadContainer{
				WorkloadProcess: v1alpha1.WorkloadProcess{Image: name, Resources: map[string]intstr.IntOrString{"cpu": intstr.FromString("1"), "memory": intstr.FromString("1Gi")}},
				Replicas:        &none,
			},
		}
	}
	plan := &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{component("web", 80), component("db", 5432)}}
	p.consumer, p.provider = p.provider, p.consumer // the first by name consumes
	near, far := p.consumer, p.provider
	on := func(at *end, cores string, components ...string) v1alpha1.Placement {
		placement := v1alpha1.Placement{Cluster: at.name, Reserved: amounts(cores), Components: components}
		if own != nil {
			placement.Peering = &v1alpha1.PlacementPeering{Consumer: own.name}
		}
		return placement
	}
	linked := func(here string, at *end, there string, to *end) v1alpha1.Placement {
		placement := on(at, "1", here)
		placement.Link(here, to.name, there)
		return placement
	}
	toOwn := func(from *end) *v1alpha1.Peering {
		return &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: v1alpha1.PeeringName(own.name, from.name)}}
	}
	driver, d := p.driver(), p.instance("linked", "1")
	secrets, _ := workload.Secrets(nil).Complete(nil)
	order, err := workload.Of(plan, d.Instance, &d.Instance.Spec.Desired, nil, secrets)
	must(p.T, err)
	// passOwn reconciles the peerings with the consumer's cluster, as their controller would.
	passOwn := func(ctx context.Context) {
		for _, end := range []*end{near, far} {
			if own != nil {
				p.advance(ctx, toOwn(end))
			}
		}
	}
	// deliver does on both clusters what the instance controller does.
	deliver := func(ctx context.Context, _ delivery.Delivery) error {
		var failures []error
		placements := d.Instance.Status.Decision.Placements
		for i := range placements {
			one := delivery.Delivery{Instance: d.Instance, Placement: placements[i], Workload: order.On(&placements[i], placements)}
			failures = append(failures, driver.Deliver(ctx, one))
		}
		passOwn(ctx)
		return errors.Join(failures...)
	}
	decide := func(placements ...v1alpha1.Placement) {
		p.Helper()
		must(p.T, p.hub.Get(p.Context(), client.ObjectKeyFromObject(d.Instance), d.Instance))
		d.Instance.Status.Decision = &v1alpha1.Decision{Generation: 1, Placements: placements}
		must(p.T, p.hub.Status().Update(p.Context(), d.Instance))
	}
	decide(linked("web", near, "db", far), linked("db", far, "web", near))
	p.until("it is delivered", d, deliver)

	namespace := v1alpha1.MemberNamespace(d.Instance.Name)
	for _, way := range []struct {
		from, to     *end
		caller, name string
		port         int32
	}{{near, far, "web", "db", 5432}, {far, near, "db", "web", 80}} {
		var real, mirror corev1.Service
		if !way.to.has(p.T, namespace, way.name, &real) || !way.from.has(p.T, namespace, way.name, &mirror) {
			p.Fatalf("Service %s is not on both clusters", way.name)
		}
		if mirror.Spec.Ports[0].Port != way.port {
			p.Errorf("Service %s on %s is %v", way.name, way.from.name, mirror.Spec)
		}
		var given ipamv1alpha1.IPList
		must(p.T, way.to.admin.List(p.Context(), &given, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelComponent: way.name}))
		if len(given.Items) != 1 || string(given.Items[0].Spec.IP) != real.Spec.ClusterIP {
			p.Fatalf("addresses of %s are %v, want one for %s", way.name, given.Items, real.Spec.ClusterIP)
		}
		seen := "10.71" + string(given.Items[0].Status.IP)[len("10.70"):] // as the stand-in maps the range
		var slice discoveryv1.EndpointSlice
		if !way.from.has(p.T, namespace, way.name, &slice) || slice.Endpoints[0].Addresses[0] != seen || *slice.Ports[0].Port != way.port {
			p.Errorf("%s on %s leads to %v, want %s", way.name, way.from.name, slice.Endpoints, seen)
		}
		var out, in networkingv1.NetworkPolicy
		if !way.from.has(p.T, namespace, way.name+".link", &out) || out.Spec.Egress[0].To[0].IPBlock.CIDR != seen+"/32" || out.Spec.PodSelector.MatchExpressions[0].Values[0] != way.caller {
			p.Errorf("pods of %s are let out by %v", way.caller, out.Spec)
		}
		if !way.to.has(p.T, namespace, way.name, &in) || len(in.Spec.Ingress[1].From) != wantFrom {
			p.Errorf("%s on %s lets in %v, want two ranges of each other cluster, and the instance", way.name, way.to.name, in.Spec.Ingress)
		}
	}
	placements := d.Instance.Status.Decision.Placements
	for i := range placements {
		must(p.T, driver.Observe(p.Context(), delivery.Delivery{Instance: d.Instance, Placement: placements[i], Workload: order.On(&placements[i], placements)}))
	}

	decide(on(near, "2", "web", "db"))
	p.until("it is delivered on one cluster", d, deliver)
	p.until("it leaves the other", d, func(ctx context.Context, _ delivery.Delivery) error {
		return driver.Remove(ctx, delivery.Delivery{Instance: d.Instance, Placement: v1alpha1.Placement{Cluster: far.name}})
	})
	// A new leader decides again and begins with the first step, when the former cluster has been left already.
	again := on(near, "2", "web", "db")
	again.Link("web", far.name, "db")
	p.until("what runs here too does not wait for the cluster that was left", d, func(ctx context.Context, _ delivery.Delivery) error {
		return driver.Deliver(ctx, delivery.Delivery{
			Instance: d.Instance, Placement: again, Workload: order.On(&again, []v1alpha1.Placement{again}), Replacing: true,
		})
	})
	p.until("it is delivered on one cluster again", d, deliver)
	var slices discoveryv1.EndpointSliceList
	must(p.T, near.admin.List(p.Context(), &slices, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy}))
	var given ipamv1alpha1.IPList
	must(p.T, near.admin.List(p.Context(), &given, client.InNamespace(namespace)))
	if len(slices.Items)+len(given.Items) > 0 {
		p.Errorf("left are %v and %v", slices.Items, given.Items)
	}
	p.untilGone(p.peering())
	if own != nil {
		p.untilGone(toOwn(far))
	}
	p.deprovision(d)
	p.until("it is removed", d, func(ctx context.Context, _ delivery.Delivery) error {
		passOwn(ctx)
		return driver.Remove(ctx, delivery.Delivery{Instance: d.Instance, Placement: v1alpha1.Placement{Cluster: near.name}})
	})
	if own != nil {
		p.untilGone(toOwn(near))
	}
	p.deprovisioned(d)
	p.wantNothingLeft()
}
