package bindings

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
)

// exposedOn returns the sockets at which a cluster exposes Services of the instance to
// clients outside all of its networks: those of its load balancers and of its nodes.
func (l *looker) exposedOn(ctx context.Context, cluster string) ([]socket, error) {
	connection, err := l.Connections.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	services, err := readyServices(ctx, connection.Client, l.namespace, func(s *corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeNodePort || len(s.Status.LoadBalancer.Ingress) > 0
	}, nil)
	if err != nil {
		return nil, &unreadError{cluster: cluster, what: "Services", err: err}
	}
	var out []socket
	var nodes []corev1.Node
	for i := range services {
		s := &services[i]
		for _, at := range s.Status.LoadBalancer.Ingress {
			for _, host := range []string{at.Hostname, at.IP} {
				if host != "" {
					out = append(out, socketsOf(host, s.Name, s.ports, portOf)...)
				}
			}
		}
		if s.Spec.Type != corev1.ServiceTypeNodePort || len(s.ports) == 0 {
			continue
		}
		if nodes == nil {
			if nodes, err = readyNodes(ctx, connection); err != nil {
				return nil, &unreadError{cluster: cluster, what: "nodes", err: err}
			}
		}
		for _, host := range hostsOf(nodes, s) {
			out = append(out, socketsOf(host, s.Name, s.ports, nodePortOf)...)
		}
	}
	return out, nil
}

// readyNodes returns the ready nodes that take traffic for NodePorts, without virtual
// nodes.
func readyNodes(ctx context.Context, connection *member.Connection) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := connection.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
		return liqo.IsVirtualNode(&n) || !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	}), nil
}

// hostsOf returns the addresses of nodes for a Service: external addresses or, if no node
// has one, internal addresses.
func hostsOf(nodes []corev1.Node, s *ready) []string {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		var hosts []string
		for i := range nodes {
			n := &nodes[i]
			if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && !slices.Contains(s.nodes, n.Name) {
				continue // it drops traffic for pods on other nodes
			}
			for _, a := range n.Status.Addresses {
				if a.Type == kind {
					hosts = append(hosts, a.Address)
				}
			}
		}
		if len(hosts) > 0 {
			return hosts
		}
	}
	return nil
}
