package catalog

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// variableSchemas are the known schemas of class variables, by plan id and name of the variable.
type variableSchemas map[string]map[string]map[string]any

// schemasOf returns the schemas of an offering's settable variables, from the statuses of the
// management clusters.
func schemasOf(spec *v1alpha1.ServiceOfferingSpec, clusters []v1alpha1.MemberCluster) variableSchemas {
	all := variableSchemas{}
	for i := range spec.Plans {
		c := spec.Plans[i].Cluster
		if c == nil {
			continue
		}
		classes := classesOf(c, clusters)
		schemas := map[string]map[string]any{}
		for _, name := range c.Settable {
			if schema := sharedSchema(name, classes); schema != nil {
				schemas[name] = schema
			}
		}
		if len(schemas) > 0 {
			all[spec.Plans[i].ID] = schemas
		}
	}
	return all
}

// classesOf returns the plan's class as it is on each management cluster that matches the
// plan's selector.
func classesOf(c *v1alpha1.ClusterPlan, clusters []v1alpha1.MemberCluster) (classes []*v1alpha1.ClusterClass) {
	selector := labels.Everything()
	if c.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(c.Selector); err != nil {
			return nil // such a plan is not served
		}
	}
	for i := range clusters {
		cluster := &clusters[i]
		if cluster.Spec.Driver != v1alpha1.DriverCAPI || !selector.Matches(labels.Set(cluster.SelectorLabels())) {
			continue
		}
		for k := range cluster.Status.Classes {
			class := &cluster.Status.Classes[k]
			if class.Name == c.Class && class.Namespace == cmp.Or(c.ClassNamespace, metav1.NamespaceDefault) {
				classes = append(classes, class)
			}
		}
	}
	return classes
}

// sharedSchema returns the schema of a variable if it is the same in all classes, otherwise nil.
func sharedSchema(name string, classes []*v1alpha1.ClusterClass) (shared map[string]any) {
	for _, class := range classes {
		i := slices.IndexFunc(class.Variables, func(v v1alpha1.ClassVariable) bool { return v.Name == name })
		if i < 0 {
			return nil
		}
		var schema map[string]any
		if json.Unmarshal(class.Variables[i].Schema.Raw, &schema) != nil || shared != nil && !reflect.DeepEqual(shared, schema) {
			return nil
		}
		shared = schema
	}
	return shared
}

// describes reports whether the operator's schema has a schema for a class variable.
func describes(own *runtime.RawExtension, variable string) bool {
	if own == nil {
		return false
	}
	var root struct {
		Properties struct {
			Variables struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"variables"`
		} `json:"properties"`
	}
	return json.Unmarshal(own.Raw, &root) == nil && root.Properties.Variables.Properties[variable] != nil
}
