package bindings

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ready is a Service with those of its ports that have a ready endpoint.
type ready struct {
	*corev1.Service
	ports []corev1.ServicePort
}

// readyServices lists the Services of a namespace for which pass returns true, ordered by
// name. Services without ready endpoints have no ports. Endpoints for which reachable
// returns false do not count; nil accepts all.
func readyServices(ctx context.Context, c client.Reader, namespace string, pass func(*corev1.Service) bool, reachable func(*discoveryv1.Endpoint) bool) ([]ready, error) {
	var services corev1.ServiceList
	if err := c.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	var out []ready
	for i := range services.Items {
		if s := &services.Items[i]; s.DeletionTimestamp.IsZero() && pass(s) {
			out = append(out, ready{Service: s})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	var slicesOf discoveryv1.EndpointSliceList
	if err := c.List(ctx, &slicesOf, client.InNamespace(namespace), client.HasLabels{discoveryv1.LabelServiceName}); err != nil {
		return nil, fmt.Errorf("list EndpointSlices: %w", err)
	}
	for i := range out {
		for k := range slicesOf.Items {
			if slice := &slicesOf.Items[k]; slice.Labels[discoveryv1.LabelServiceName] == out[i].Name {
				out[i].count(slice, reachable)
			}
		}
	}
	return out, nil
}

// count adds the ready endpoints of a slice.
func (r *ready) count(slice *discoveryv1.EndpointSlice, reachable func(*discoveryv1.Endpoint) bool) {
	some := false
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.Conditions.Ready != nil && !*e.Conditions.Ready || reachable != nil && !reachable(e) {
			continue
		}
		some = true
	}
	if !some {
		return
	}
	for _, port := range r.Spec.Ports {
		there := slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
			return ptr.Deref(p.Name, "") == port.Name && ptr.Deref(p.Protocol, corev1.ProtocolTCP) == port.Protocol
		})
		if there && !slices.Contains(r.ports, port) {
			r.ports = append(r.ports, port)
		}
	}
}

// isReady reports whether a pod runs, is Ready, and has an address of its own.
func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp.IsZero() && !p.Spec.HostNetwork && p.Status.PodIP != "" &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// podSockets returns the sockets of the ports that a pod's containers declare.
func podSockets(p *corev1.Pod, host string) []socket {
	var out []socket
	for i := range p.Spec.Containers {
		for _, port := range p.Spec.Containers[i].Ports {
			declared := []corev1.ServicePort{{Port: port.ContainerPort, Protocol: port.Protocol}}
			out = append(out, socketsOf(host, "", declared)...)
		}
	}
	return out
}
