package workload

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// HTTPRoutes, TLSRoutes and TCPRoutes are rendered for public ports only. Clusters serve TLSRoutes in this version
// since release 1.5 of the Gateway API, before that in version v1alpha2 with the same fields. TCPRoutes are in
// its experimental channel.
var (
	HTTPRoutes = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	TLSRoutes  = schema.GroupVersionKind{Group: HTTPRoutes.Group, Version: "v1", Kind: "TLSRoute"}
	TCPRoutes  = schema.GroupVersionKind{Group: HTTPRoutes.Group, Version: "v1alpha2", Kind: "TCPRoute"}
)

// DNSEndpoints are rendered for public ports only: the records of their hosts, which external-dns makes.
var DNSEndpoints = schema.GroupVersionKind{Group: "externaldns.k8s.io", Version: "v1alpha1", Kind: "DNSEndpoint"}

// IsRoute reports whether an object makes a port public.
func IsRoute(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == HTTPRoutes.Group
}

// generatedLabel matches labels as v1alpha1.PublicLabel makes them, which nobody may ask for.
var generatedLabel = regexp.MustCompile(`-[0-9a-f]{16}$`)

// asked is a host that a plan asks for: its first label or the whole name, and the field.
type asked struct{ name, field string }

// Exposing returns a plan that runs nothing: its components are pods that the consumer runs itself, with
// the ports that it makes public. Their Services have names of Sluice's own, so that they never take over one
// of the consumer's.
func Exposing(ports []v1alpha1.ExposedPort) *v1alpha1.WorkloadPlan {
	plan := &v1alpha1.WorkloadPlan{}
	for _, p := range ports {
		plan.Components = append(plan.Components, v1alpha1.WorkloadComponent{
			Name: p.Name, Service: "sluice-" + p.Name,
			Ports: []v1alpha1.WorkloadPort{{Name: "http", Port: p.Port, Reach: v1alpha1.ReachPublic, Host: p.Host, AppProtocol: p.AppProtocol}},
		})
	}
	return plan
}

// PlanOf returns what Sluice applies in the namespace of an instance by a decision: its workload, or what makes the
// consumer's own pods public; nil if there is neither.
func PlanOf(d *v1alpha1.Decision) *v1alpha1.WorkloadPlan {
	switch {
	case d == nil:
		return nil
	case d.Workload != nil:
		return d.Workload
	}
	if ports := Exposed(d); len(ports) > 0 {
		return Exposing(ports)
	}
	return nil
}

// Exposed returns the ports of the consumer's own pods that are public by a decision. Those with names of Sluice's own,
// which earlier versions took, are left out: their NetworkPolicies would replace Sluice's.
func Exposed(d *v1alpha1.Decision) []v1alpha1.ExposedPort {
	return slices.DeleteFunc(slices.Clone(d.Exposed), func(p v1alpha1.ExposedPort) bool { return isOwnName(p.Name) })
}

// notOwnNames refuses exposed ports with names of Sluice's own. Names of other components are those of objects, see
// check.
func (o *Order) notOwnNames() error {
	for i := range o.Plan.Components {
		if c := &o.Plan.Components[i]; c.IsConsumers() && isOwnName(c.Name) {
			return refused("%s: %s", field.NewPath("expose").Key(c.Name), ownNames)
		}
	}
	return nil
}

// Runs reports whether Sluice runs pods of the order, instead of only making those of the consumer public.
// It is false for nil.
func (o *Order) Runs() bool {
	return o != nil && slices.ContainsFunc(o.Plan.Components, func(c v1alpha1.WorkloadComponent) bool { return !c.IsConsumers() })
}

// portField returns the field that describes a port of a component.
func portField(c *v1alpha1.WorkloadComponent, p *v1alpha1.WorkloadPort) *field.Path {
	if c.IsConsumers() {
		return field.NewPath("expose").Key(c.Name)
	}
	return field.NewPath("components").Key(c.Name).Child("ports").Key(p.Name)
}

// hostsAsked returns the hosts that a plan asks for its public ports, by component. They depend on the
// parameters alone, except hidden ones, so that they are known before the cluster is, and to everyone.
func (o *Order) hostsAsked() (map[string]asked, error) {
	parameters := maps.Clone(o.Parameters)
	for _, name := range HiddenParameters(o.Plan) {
		delete(parameters, name)
	}
	e := &expressions{variables: map[string]any{
		varParameters: parameters, varSecrets: map[string]any{}, varInstance: map[string]any{}, varComponents: map[string]any{},
		varCluster: map[string]any{}, varKubernetes: map[string]any{}, varBinding: map[string]any{},
	}}
	hosts, of := map[string]asked{}, map[string]string{}
	for i := range o.Plan.Components {
		c := &o.Plan.Components[i]
		p := c.PublicPort()
		if p == nil || p.Host == "" {
			continue
		}
		at := portField(c, p).Child("host").String()
		name, err := e.text(p.Host)
		if err != nil {
			return nil, refused("%s: may use only parameters that are not writeOnly: %v", at, err)
		}
		if name == "" {
			continue // a default may say that there is none
		}
		if wrong := invalidHost(name); wrong != "" {
			return nil, refused("%s: %q %s", at, name, wrong)
		}
		if other, taken := of[name]; taken {
			return nil, refused("%s: %q is the host of %s already", at, name, other)
		}
		hosts[c.Name], of[name] = asked{name, at}, c.Name
	}
	return hosts, nil
}

// invalidHost returns what is wrong with a host that is asked for; "" if it can be had.
func invalidHost(name string) string {
	if v1alpha1.IsWholeHost(name) {
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			return "is not a valid host: " + strings.Join(errs, "; ")
		}
		return ""
	}
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return "is not a valid label of a host: " + strings.Join(errs, "; ")
	}
	if generatedLabel.MatchString(name) {
		return "ends like a generated host, with 16 hexadecimal digits"
	}
	return ""
}

// PublicHosts returns the hosts at which everyone reaches the components with a public port, by
// component.
func (o *Order) PublicHosts(exposure *v1alpha1.ClusterExposure) (map[string]string, error) {
	asked, err := o.hostsAsked()
	if err != nil {
		return nil, err
	}
	name, _ := o.Instance["name"].(string)
	hosts := map[string]string{}
	for i := range o.Plan.Components {
		c := &o.Plan.Components[i]
		if c.PublicPort() == nil {
			continue
		}
		host := cmp.Or(asked[c.Name].name, v1alpha1.PublicLabel(c.Name, name))
		if !v1alpha1.IsWholeHost(host) {
			host += "." + exposure.Domain
		}
		hosts[c.Name] = host
	}
	return hosts, nil
}

// unreachable refuses public ports on a cluster whose Gateway does not serve them.
func (o *Order) unreachable(exposure *v1alpha1.ClusterExposure) error {
	hosts, err := o.hostsAsked()
	if err != nil {
		return err
	}
	for i := range o.Plan.Components {
		c := &o.Plan.Components[i]
		p := c.PublicPort()
		if p == nil || !o.Share.Runs(c.Name) {
			continue
		}
		at, host := portField(c, p), hosts[c.Name].name
		switch {
		case exposure == nil:
			return refused("%s: the cluster has no Gateway for public ports", at)
		case !slices.Contains(exposure.Speaks(), p.Speaks()) && p.Speaks() == v1alpha1.AppProtocolTCP:
			return refused("%s: the cluster's Gateway has no ports of plain TCP", at)
		case !slices.Contains(exposure.Speaks(), p.Speaks()):
			return refused("%s: the cluster's Gateway passes no TLS through", at)
		case p.Speaks() == v1alpha1.AppProtocolTCP && o.Ports[c.Name] == 0:
			return refused("%s: the placement has no port of the cluster's Gateway for it", at)
		case v1alpha1.IsWholeHost(host) && !o.isGranted(host, exposure):
			return refused("%s: %s is in no domain that is yours on the chosen cluster", at.Child("host"), host)
		}
	}
	return nil
}

// isGranted reports whether a host is in a domain of the consumer's own.
func (o *Order) isGranted(host string, exposure *v1alpha1.ClusterExposure) bool {
	if exposure == sampleExposure {
		return true
	}
	platform, _ := o.Instance["platform"].(string)
	organization, _ := o.Instance["organization"].(string)
	space, _ := o.Instance["space"].(string)
	return exposure.Grants(host, platform, organization, space)
}

// routes are the kinds of routes, by what public ports speak.
var routes = map[v1alpha1.AppProtocol]schema.GroupVersionKind{
	v1alpha1.AppProtocolHTTP: HTTPRoutes, v1alpha1.AppProtocolTLS: TLSRoutes, v1alpha1.AppProtocolTCP: TCPRoutes,
}

// expose renders the route of a component's public port, if it has one.
func (r *rendering) expose(c *v1alpha1.WorkloadComponent, exposure *v1alpha1.ClusterExposure, host string) {
	p := c.PublicPort()
	if p == nil {
		return
	}
	gateway := map[string]any{
		"group": HTTPRoutes.Group, "kind": "Gateway", "namespace": exposure.Gateway.Namespace, "name": exposure.Gateway.Name,
	}
	if listener := exposure.ListenerOf(p, host, r.order.Ports[c.Name]); listener != "" {
		gateway["sectionName"] = listener
	}
	spec := map[string]any{
		"parentRefs": []any{gateway},
		"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": c.ServiceName(), "port": int64(p.Port)}}}},
	}
	if p.Speaks() != v1alpha1.AppProtocolTCP { // which has no hosts
		spec["hostnames"] = []any{host}
	}
	r.custom(routes[p.Speaks()], spec)
	if exposure.DNS != nil {
		r.custom(DNSEndpoints, map[string]any{"endpoints": recordsOf(host, exposure.DNS.Targets)})
	}
}

// custom adds an object of the component whose kind comes with a definition.
func (r *rendering) custom(kind schema.GroupVersionKind, spec map[string]any) {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(r.namespace)
	o.SetName(r.component)
	o.SetLabels(r.labels())
	r.objects = append(r.objects, o)
}

// recordsOf returns the records by which a host resolves to targets, one for each type.
func recordsOf(host string, targets []string) (records []any) {
	byType := map[string][]any{}
	for _, target := range targets {
		kind := "CNAME"
		if at, err := netip.ParseAddr(target); err == nil {
			kind = "A"
			if at.Is6() {
				kind = "AAAA"
			}
		}
		byType[kind] = append(byType[kind], target)
	}
	for _, kind := range slices.Sorted(maps.Keys(byType)) {
		records = append(records, map[string]any{"dnsName": host, "recordType": kind, "targets": byType[kind]})
	}
	return records
}

// RouteProblem returns the reason why a public port cannot be reached yet, from the status that the
// Gateway's controller has given its route: the condition with its reason, and the controller's
// message, which is for operators. Both are empty if the route works.
func RouteProblem(route *unstructured.Unstructured) (reason, message string) {
	wanted, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
	parents, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
	for _, w := range wanted {
		want, _ := w.(map[string]any)
		holds := map[string]bool{}
		for _, p := range parents {
			parent, _ := p.(map[string]any)
			ref, _ := parent["parentRef"].(map[string]any)
			if ref["name"] != want["name"] || ref["namespace"] != want["namespace"] || ref["sectionName"] != want["sectionName"] {
				continue
			}
			conditions, _ := parent["conditions"].([]any)
			for _, c := range conditions {
				condition, _ := c.(map[string]any)
				kind, _ := condition["type"].(string)
				if seen, ok := condition["observedGeneration"].(int64); ok && seen < route.GetGeneration() {
					continue // of a former spec
				}
				if kind != "Accepted" && kind != "ResolvedRefs" {
					continue
				}
				if condition["status"] != "True" {
					reason, _ = condition["reason"].(string)
					message, _ = condition["message"].(string)
					return fmt.Sprintf("%s is %v (%s)", kind, condition["status"], reason), message
				}
				holds[kind] = true
			}
		}
		if !holds["Accepted"] || !holds["ResolvedRefs"] {
			return "it has not answered yet", ""
		}
	}
	return "", ""
}
