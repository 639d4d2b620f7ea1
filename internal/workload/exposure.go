package workload

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// HTTPRoutes are rendered for public ports only.
var HTTPRoutes = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}

// generatedLabel matches labels as v1alpha1.PublicLabel makes them, which nobody may ask for.
var generatedLabel = regexp.MustCompile(`-[0-9a-f]{16}$`)

// asked is a host that a plan asks for: its first label, and the field.
type asked struct{ label, field string }

// hostsAsked returns the hosts that a plan asks for its public ports, by component. They depend on the
// parameters alone, except hidden ones, so that they are known before the cluster is, and to everyone.
func (o *Order) hostsAsked() (map[string]asked, error) {
	parameters := maps.Clone(o.Parameters)
	for _, name := range hiddenParameters(o.Plan) {
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
		at := field.NewPath("components").Key(c.Name).Child("ports").Key(p.Name).Child("host").String()
		label, err := e.text(p.Host)
		if err != nil {
			return nil, refused("%s: may use only parameters that are not writeOnly: %v", at, err)
		}
		if label == "" {
			continue // a default may say that there is none
		}
		if errs := validation.IsDNS1123Label(label); len(errs) > 0 {
			return nil, refused("%s: %q is not a valid label of a host: %s", at, label, strings.Join(errs, "; "))
		}
		if generatedLabel.MatchString(label) {
			return nil, refused("%s: %q ends like a generated host, with 16 hexadecimal digits", at, label)
		}
		if other, taken := of[label]; taken {
			return nil, refused("%s: %q is the host of component %s already", at, label, other)
		}
		hosts[c.Name], of[label] = asked{label, at}, c.Name
	}
	return hosts, nil
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
		hosts[c.Name] = cmp.Or(asked[c.Name].label, v1alpha1.PublicLabel(c.Name, name)) + "." + exposure.Domain
	}
	return hosts, nil
}

// unreachable refuses public ports on a cluster without a Gateway.
func (o *Order) unreachable(exposure *v1alpha1.ClusterExposure) error {
	for i := range o.Plan.Components {
		c := &o.Plan.Components[i]
		if p := c.PublicPort(); p != nil && exposure == nil && o.Share.runs(c.Name) {
			return refused("components[%s].ports[%s].reach: the cluster has no Gateway for public ports", c.Name, p.Name)
		}
	}
	return nil
}

// expose renders the HTTPRoute of a component's public port, if it has one.
func (r *rendering) expose(c *v1alpha1.WorkloadComponent, exposure *v1alpha1.ClusterExposure, host string) {
	p := c.PublicPort()
	if p == nil {
		return
	}
	gateway := map[string]any{
		"group": HTTPRoutes.Group, "kind": "Gateway", "namespace": exposure.Gateway.Namespace, "name": exposure.Gateway.Name,
	}
	if exposure.Gateway.Listener != "" {
		gateway["sectionName"] = exposure.Gateway.Listener
	}
	route := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"parentRefs": []any{gateway},
		"hostnames":  []any{host},
		"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": c.ServiceName(), "port": int64(p.Port)}}}},
	}}}
	route.SetGroupVersionKind(HTTPRoutes)
	route.SetNamespace(r.namespace)
	route.SetName(c.Name)
	route.SetLabels(r.labels())
	r.objects = append(r.objects, route)
}

// RouteProblem returns the reason why a public port cannot be reached yet, from the status that the
// Gateway's controller has given its HTTPRoute: the condition with its reason, and the controller's
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
