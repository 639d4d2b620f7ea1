package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// clusters makes the first plan one of clusters, of the class fast, whose variables flavor
// and zones consumers may set.
func clusters(o *v1alpha1.ServiceOffering) {
	plan := &o.Spec.Plans[0]
	plan.Kind, plan.Resources = v1alpha1.PlanKindCluster, nil
	plan.Cluster = &v1alpha1.ClusterPlan{Class: "fast", Versions: []string{"v1.34.4"}, Roles: []string{"view"}, Settable: []string{"flavor", "zones"}}
}

// made lets the cluster plan be something else.
func made(change func(*v1alpha1.ClusterPlan)) edit {
	return func(o *v1alpha1.ServiceOffering) { change(o.Spec.Plans[0].Cluster) }
}

// knows is a management cluster that has the class fast, with these schemas of its variables.
func knows(name string, variables map[string]string) v1alpha1.MemberCluster {
	class := v1alpha1.ClusterClass{Namespace: metav1.NamespaceDefault, Name: "fast"}
	for variable, schema := range variables {
		class.Variables = append(class.Variables, v1alpha1.ClassVariable{Name: variable, Schema: runtime.RawExtension{Raw: []byte(schema)}})
	}
	mc := v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"fleet": name}}}
	mc.Spec.Driver, mc.Status.Classes = v1alpha1.DriverCAPI, []v1alpha1.ClusterClass{class}
	return mc
}

const (
	flavor = `{"type":"string","enum":["m1.small","m1.large"],"default":"m1.small"}`
	zones  = `{"type":"object","properties":{"count":{"type":"integer","maximum":3}},"additionalProperties":false}`
)

// Values of class variables must match their schema if it is the same on all management clusters
// that the plan may use.
func TestClassVariablesHaveTheSchemasOfTheirClass(t *testing.T) {
	both := knows("eu", map[string]string{"flavor": flavor, "zones": zones})
	other := knows("us", map[string]string{"flavor": strings.Replace(flavor, "m1", "m2", 1), "zones": `{"additionalProperties":false, "type":"object","properties":{"count":{"maximum":3,"type":"integer"}}}`})
	long := knows("eu", map[string]string{"flavor": fmt.Sprintf(`{"type":"string","description":%q}`, strings.Repeat("x", MaxSchemaBytes)), "zones": zones})
	strict := knows("eu", map[string]string{"flavor": flavor, "zones": `{"type":"integer","minimum":0,"exclusiveMinimum":true}`})
	elsewhere := knows("eu", map[string]string{"flavor": flavor})
	elsewhere.Status.Classes[0].Namespace = "other"
	wrong, deep := `{"variables":{"flavor":"m9"}}`, `{"variables":{"zones":{"count":4}}}`
	for name, row := range map[string]struct {
		edits      []edit
		clusters   []v1alpha1.MemberCluster
		parameters string
		path, says string // none: taken
	}{
		"a value that the class has":                 {nil, []v1alpha1.MemberCluster{both}, `{"variables":{"flavor":"m1.large","zones":{"count":3}}}`, "", ""},
		"a value that the class does not have":       {nil, []v1alpha1.MemberCluster{both}, wrong, "/variables/flavor", "must be one of 'm1.small', 'm1.large'"},
		"a field that is too large":                  {nil, []v1alpha1.MemberCluster{both}, deep, "/variables/zones/count", "maximum"},
		"a field that the class does not have":       {nil, []v1alpha1.MemberCluster{both}, `{"variables":{"zones":{"size":4}}}`, "/variables/zones/size", "no such parameter"},
		"nobody knows the class":                     {nil, nil, wrong, "", ""},
		"a class of that name, in another namespace": {nil, []v1alpha1.MemberCluster{elsewhere}, wrong, "", ""},
		"clusters differ in it":                      {nil, []v1alpha1.MemberCluster{both, other}, wrong, "", ""},
		"clusters differ in another one":             {nil, []v1alpha1.MemberCluster{both, other}, deep, "/variables/zones/count", "maximum"},
		"one does not have it":                       {nil, []v1alpha1.MemberCluster{both, knows("us", nil)}, wrong, "", ""},
		"one does not have the class":                {nil, []v1alpha1.MemberCluster{both, {}}, wrong, "/variables/flavor", "must be one of"},
		"clusters differ that the plan does not use": {[]edit{made(func(c *v1alpha1.ClusterPlan) {
			c.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "eu"}}
		})}, []v1alpha1.MemberCluster{both, other}, wrong, "/variables/flavor", "must be one of"},
		"the operator describes it":               {[]edit{schemas(`{"properties":{"variables":{"properties":{"flavor":{"pattern":"^m"}}}}}`, "", "")}, []v1alpha1.MemberCluster{both}, wrong, "", ""},
		"the operator describes it, and refuses":  {[]edit{schemas(`{"properties":{"variables":{"properties":{"flavor":{"pattern":"^m"}}}}}`, "", "")}, []v1alpha1.MemberCluster{both}, `{"variables":{"flavor":"x9"}}`, "/variables/flavor", "pattern"},
		"the operator describes another one":      {[]edit{schemas(`{"properties":{"variables":{"properties":{"zones":{}}}}}`, "", "")}, []v1alpha1.MemberCluster{both}, wrong, "/variables/flavor", "must be one of"},
		"one that consumers may not set":          {[]edit{made(func(c *v1alpha1.ClusterPlan) { c.Settable = []string{"zones"} })}, []v1alpha1.MemberCluster{both}, `{"variables":{"flavor":"m1.small"}}`, "/variables/flavor", "no such parameter"},
		"schemas that are longer than OSB allows": {nil, []v1alpha1.MemberCluster{long}, deep, "", ""},
		"in draft-04": {nil, []v1alpha1.MemberCluster{strict}, `{"variables":{"zones":0}}`, "/variables/zones", "exclusiveMinimum"},
		"schemas that are none in the operator's own one": {[]edit{schemas(`{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, "", "")}, []v1alpha1.MemberCluster{strict}, `{"variables":{"zones":0}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := offering("a", append([]edit{clusters}, row.edits...)...)
			served(&o)
			if _, err := newOffering(&o.Spec, known{}, nil, false); err != nil {
				t.Fatal(err)
			}
			s, err := Build([]v1alpha1.ServiceOffering{o}, row.clusters, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := s.Plan("a-id", "a-small")
			if err != nil {
				t.Fatal(err)
			}
			err = plan.ValidateCreate(json.RawMessage(row.parameters))
			if row.says == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			refused := (*ParameterError)(nil)
			if !errors.As(err, &refused) || refused.Path != row.path {
				t.Fatalf("got %v, want %s to be refused", err, row.path)
			}
			contains(t, refused.Message, row.says)
		})
	}
}

// The catalog shows the schemas of the class with the plan's own values as defaults, and gets a new
// revision with them.
func TestTheCatalogShowsTheSchemasOfClassVariables(t *testing.T) {
	o := offering("a", clusters, made(func(c *v1alpha1.ClusterPlan) {
		c.Variables = &runtime.RawExtension{Raw: []byte(`{"flavor":"m1.large"}`)}
	}))
	served(&o)
	offerings := []v1alpha1.ServiceOffering{o}
	unknown := build(t, nil, o)
	known, err := Build(offerings, []v1alpha1.MemberCluster{knows("eu", map[string]string{"flavor": flavor})}, nil, unknown)
	if err != nil {
		t.Fatal(err)
	}
	if known.Revision() == unknown.Revision() {
		t.Error("what is shown has changed, and the revision has not")
	}
	for s, want := range map[*Snapshot]string{
		unknown: `"flavor":{},"zones":{}`,
		known:   `"flavor":{"default":"m1.large","enum":["m1.small","m1.large"],"type":"string"},"zones":{}`,
	} {
		plan, err := s.Plan("a-id", "a-small")
		if err != nil {
			t.Fatal(err)
		}
		create, update, _ := plan.Schemas()
		contains(t, string(create), want)
		contains(t, string(update), want)
	}
	again, err := Build(offerings, []v1alpha1.MemberCluster{knows("us", map[string]string{"flavor": flavor})}, nil, known)
	if err != nil || again.Revision() != known.Revision() {
		t.Errorf("the same schemas make another revision: %v", err)
	}
}
