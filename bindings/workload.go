package bindings

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/workload"
)

// workloadOf returns the workload that a delivered instance runs; nil if it runs none.
func workloadOf(instance *v1alpha1.ServiceInstance) *v1alpha1.WorkloadPlan {
	if d := instance.Status.DeliveredDecision(); d != nil && poolOf(instance) == nil {
		return d.Workload // that of an instance on a pool is run by the pool's own
	}
	return nil
}

// secureBinding puts the secrets that the workload has for a binding into the binding's status, sealed,
// and reports whether that changes the status.
func (c *Controller) secureBinding(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (changed bool, err error) {
	w := workloadOf(instance)
	if w == nil || w.Bindings == nil {
		return false, nil
	}
	secrets, err := workload.UnsealBinding(b, c.Keys)
	if err != nil {
		return false, err
	}
	complete, changed := secrets.Complete(w.Bindings.Secrets)
	if !changed {
		return false, nil
	}
	b.Status.SealedSecrets, err = complete.SealBinding(b, c.Keys)
	return true, err
}

// order returns the workload of a delivered instance with the values of a binding.
func (c *Controller) order(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (*workload.Order, error) {
	ofInstance, err := workload.UnsealInstance(instance, c.Keys)
	if err != nil {
		return nil, err
	}
	ofBinding, err := workload.UnsealBinding(b, c.Keys)
	if err != nil {
		return nil, err
	}
	order, err := workload.Of(workloadOf(instance), instance, &instance.Status.Delivered.State, c.Keys, ofInstance)
	if err != nil {
		return nil, err
	}
	return order.For(b, c.Keys, ofBinding)
}

// hasAccount reports whether a binding has an account in the instance's namespace. Consumers of a
// workload use its services, and get an account only if the plan gives them a role.
func hasAccount(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	return !isOrderedOn(instance) && (workloadOf(instance) == nil || b.Spec.Credentials.Role != "")
}

// unaddressed returns a component of the instance's workload that the consumer's own cluster should
// reach, and for which Liqo has not given an address yet; "" if there is none.
func unaddressed(instance *v1alpha1.ServiceInstance, found findings) string {
	w := workloadOf(instance)
	if w == nil || !isPeered(instance) {
		return ""
	}
	for i := range w.Components {
		if c := &w.Components[i]; reaches(c, v1alpha1.ReachConsumer) && hostOf(c.ServiceName(), found) == "" {
			return c.Name
		}
	}
	return ""
}

// reaches reports whether a component has a port with the given reach.
func reaches(c *v1alpha1.WorkloadComponent, reach v1alpha1.Reach) bool {
	for _, p := range c.Ports {
		if p.Reach == reach {
			return true
		}
	}
	return false
}

// hostOf returns the first address of a Service; "" if there is none.
func hostOf(service string, found findings) string {
	for _, s := range found.sockets {
		if s.service == service {
			return s.host
		}
	}
	return ""
}

// revealWorkload returns the credentials that the plan of a workload describes, to be sealed at once.
// A component's host is its address in the consumer's own cluster if that is peered. Otherwise it is
// the name of its Service, as pods of the same cluster resolve it. The public addresses are those on the
// first cluster that has any.
func (c *Controller) revealWorkload(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, credentials Credentials, found findings) (json.RawMessage, error) {
	w := workloadOf(instance)
	order, err := c.order(b, instance)
	if err != nil {
		return nil, err
	}
	var kubernetes map[string]any
	if len(credentials) > 0 {
		object, err := credentials.Reveal()
		if err != nil {
			return nil, err
		}
		if w.Credentials == nil {
			return object, nil
		}
		if err := json.Unmarshal(object, &kubernetes); err != nil {
			return nil, fmt.Errorf("read the credentials of the account: %w", err)
		}
	}
	namespace, peered := v1alpha1.MemberNamespace(instance.Name), isPeered(instance)
	ways, err := c.waysIn(ctx, instance)
	if err != nil {
		return nil, err
	}
	order.Ports = map[string]int32{}
	for _, way := range slices.Backward(ways) {
		maps.Copy(order.Ports, way.to.PublicPorts)
	}
	addresses, err := order.Addresses(func(service string) string {
		if peered {
			return hostOf(service, found)
		}
		return service + "." + namespace + ".svc"
	}, func(component string) *v1alpha1.ClusterExposure {
		for _, way := range ways {
			if way.to.Runs(component) {
				return way.ClusterExposure
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, at := range addresses {
		if at.Host == "" && at.Public == "" {
			delete(addresses, name)
		}
	}
	return order.Credentials(addresses, kubernetes)
}

// wayIn is the Gateway for the public ports of an instance's workload on one of its clusters.
type wayIn struct {
	*v1alpha1.ClusterExposure
	to *v1alpha1.Placement
}

// waysIn returns those of an instance, in the order of its clusters. Clusters without one are left out.
func (c *Controller) waysIn(ctx context.Context, instance *v1alpha1.ServiceInstance) ([]wayIn, error) {
	if w := workload.PlanOf(instance.Status.DeliveredDecision()); w == nil || !w.IsPublic() {
		return nil, nil
	}
	var out []wayIn
	placements := placementsOf(instance)
	for i := range placements {
		cluster, err := c.Connections.Cluster(ctx, placements[i].Cluster)
		switch {
		case member.IsUnknown(err):
		case err != nil:
			return nil, err
		case cluster.Spec.Exposure != nil:
			out = append(out, wayIn{cluster.Spec.Exposure, &placements[i]})
		}
	}
	return out, nil
}

// publicSockets returns the public ports of an instance as everyone reaches them: those of its workload, by
// their Services, or those that the consumer has named.
func (c *Controller) publicSockets(ctx context.Context, instance *v1alpha1.ServiceInstance) ([]socket, error) {
	ways, err := c.waysIn(ctx, instance)
	if err != nil || len(ways) == 0 {
		return nil, err
	}
	w := workload.PlanOf(&instance.Status.Delivered.Decision)
	order, err := workload.Of(w, instance, &instance.Status.Delivered.State, c.Keys, nil)
	if err != nil {
		return nil, err
	}
	var out []socket
	for _, way := range ways {
		hosts, err := order.PublicHosts(way.ClusterExposure)
		if err != nil {
			return nil, err
		}
		for i := range w.Components {
			component := &w.Components[i]
			public := component.PublicPort()
			if public == nil || !way.to.Runs(component.Name) || !slices.Contains(way.Speaks(), public.Speaks()) {
				continue
			}
			name := component.ServiceName()
			if component.IsConsumers() {
				name = component.Name
			}
			out = append(out, socket{host: hosts[component.Name], port: strconv.Itoa(int(way.PortOf(public, way.to.PublicPorts[component.Name]))), protocol: "tcp", service: name})
		}
	}
	return out, nil
}

// componentSockets returns the ports of a workload's components as pods of the same cluster reach
// them. There are none with a peering, where the addresses of Liqo are found instead.
func componentSockets(instance *v1alpha1.ServiceInstance) []socket {
	w := workloadOf(instance)
	if w == nil || isPeered(instance) {
		return nil
	}
	var out []socket
	namespace := v1alpha1.MemberNamespace(instance.Name)
	for i := range w.Components {
		c := &w.Components[i]
		for _, p := range c.Ports {
			if p.Reach != v1alpha1.ReachComponent {
				out = append(out, socket{host: c.ServiceName() + "." + namespace + ".svc", port: strconv.Itoa(int(p.Port)), protocol: protocols[p.Protocol], service: c.ServiceName()})
			}
		}
	}
	return out
}
