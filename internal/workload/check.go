package workload

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-dev/sluice/internal/podrules"
)

// kinds of objects that a workload may have, those that pods read before those that make pods. Others are the driver's, reach beyond the namespace, or
// make pods without a bound.
var kinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"}, secrets, {Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "batch", Version: "v1", Kind: "Job"}, {Group: "batch", Version: "v1", Kind: "CronJob"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
}

var secrets = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}

// networkPolicies are rendered only: they decide who reaches whom.
var networkPolicies = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}

// endpointSlices are rendered only: they lead to other clusters.
var endpointSlices = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}

// Kinds returns the kinds of objects that Render may return, in the order in which they are deleted: what makes
// pods public goes before them; what they read, the names that they call, and what lets traffic through go after
// them.
func Kinds() []schema.GroupVersionKind {
	all := []schema.GroupVersionKind{DNSEndpoints, HTTPRoutes, TLSRoutes, TCPRoutes}
	for _, kind := range slices.Backward(kinds) {
		all = append(all, kind)
	}
	return append(all, endpointSlices, networkPolicies)
}

// IsRenderedOnly reports whether objects of a kind are rendered only: no plan has them, and no binding of a consumer may write
// them.
func IsRenderedOnly(kind schema.GroupVersionKind) bool { return !slices.Contains(kinds, kind) }

// IsLink reports whether an object makes a name lead to another cluster.
func IsLink(o *unstructured.Unstructured) bool { return o.GroupVersionKind() == endpointSlices }

// describeObject names an object for messages, for instance "component db: Deployment db".
func describeObject(o *unstructured.Unstructured) string {
	return fmt.Sprintf("component %s: %s %s", componentOf(o), o.GetKind(), o.GetName())
}

// ownNames is the reason why nobody else gives a name to an object.
const ownNames = "names that start with sluice are Sluice's own"

func isOwnName(name string) bool { return strings.HasPrefix(name, "sluice") }

// check refuses objects that Sluice does not run in an instance's namespace.
func check(objects []*unstructured.Unstructured) error {
	seen := map[string]bool{}
	for _, o := range objects {
		what := describeObject(o)
		if o.GetName() == "" {
			return refused("%s: metadata.name: is empty", what)
		}
		if errs := validation.NameIsDNSSubdomain(o.GetName(), false); len(errs) > 0 {
			return refused("%s: metadata.name: %s", what, strings.Join(errs, "; "))
		}
		if isOwnName(o.GetName()) {
			return refused("%s: metadata.name: %s", what, ownNames)
		}
		key := o.GroupVersionKind().GroupKind().String() + " " + o.GetName()
		if seen[key] {
			return refused("%s: another object of this kind has the same name", what)
		}
		seen[key] = true
		if err := checkObject(o, what); err != nil {
			return err
		}
	}
	return nil
}

func checkObject(o *unstructured.Unstructured, what string) error {
	kind := o.GroupVersionKind()
	if !slices.Contains(Kinds(), kind) {
		return refused("%s: kind %s of %q is refused; a workload has %s", what, kind.Kind, o.GetAPIVersion(), kindNames())
	}
	if kind.Kind == "Service" {
		if got, _, _ := unstructured.NestedString(o.Object, "spec", "type"); got != "" && got != "ClusterIP" {
			return refused("%s: spec.type: %s is refused; Services are ClusterIP", what, got)
		}
		if external, _, _ := unstructured.NestedSlice(o.Object, "spec", "externalIPs"); len(external) > 0 {
			return refused("%s: spec.externalIPs: is refused", what)
		}
	}
	template, path := podTemplateOf(o)
	if template == nil {
		return nil
	}
	because, err := podrules.Check(template)
	switch {
	case err != nil:
		return refused("%s: %s: %v", what, path, err)
	case because != "":
		return refused("%s: %s: %s", what, path, because)
	}
	return nil
}

func kindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Kind)
	}
	return strings.Join(names, ", ")
}

// podTemplateOf returns the pod template of an object and its path; nil for kinds without one.
func podTemplateOf(o *unstructured.Unstructured) (template map[string]any, path string) {
	at := inPodTemplate(o)
	if at == nil {
		return nil, ""
	}
	template, _, _ = unstructured.NestedMap(o.Object, at...)
	if template == nil {
		template = map[string]any{}
	}
	return template, strings.Join(at, ".")
}

// checkPriorities refuses pods with a priority class.
func checkPriorities(objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		template, path := podTemplateOf(o)
		if class, _, _ := unstructured.NestedString(template, "spec", "priorityClassName"); class != "" {
			return refused("%s: %s.spec.priorityClassName: is refused: pods have the default priority of their cluster, as a higher one evicts the pods of others", describeObject(o), path)
		}
	}
	return nil
}

// dropPriorities removes the priority classes of pods.
func dropPriorities(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if path := inPodTemplate(o, "spec", "priorityClassName"); path != nil {
			unstructured.RemoveNestedField(o.Object, path...)
		}
	}
}
