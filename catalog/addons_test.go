package catalog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
)

// withAddOns sells clusters with these add-ons.
func withAddOns(addOns ...v1alpha1.AddOn) v1alpha1.ServiceOffering {
	return offering("made", func(o *v1alpha1.ServiceOffering) {
		o.Spec.Plans = []v1alpha1.Plan{{
			ID: "plan", Name: "plan", Description: "A cluster.", Kind: v1alpha1.PlanKindCluster,
			Cluster: &v1alpha1.ClusterPlan{Class: "class", Versions: []string{"v1.34.4"}, Roles: []string{"admin"}, AddOns: addOns},
		}}
	})
}

func rawValues(document string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(document)}
}

// A plan takes over the packages that its add-ons name, and shows consumers what they may choose and set;
// what they ask for is refused at once if it cannot be.
func TestPackages(t *testing.T) {
	web := chartstest.Pack(t, chartstest.Web(t, nil))
	packages := []v1alpha1.AddOnPackage{
		{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: v1alpha1.AddOnPackageSpec{Description: "A web site", AddOnChart: v1alpha1.AddOnChart{
			Chart: "web.tgz", Digest: charts.Digest(web), Namespace: "site", Requires: []string{"loadBalancer"}, Settable: []string{"replicas", "title", "owner"},
			Values: rawValues(`{"title": "of ${cluster.name}", "replicas": 2, "pages": {"a": "1"}}`),
		}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "metallb"}, Spec: v1alpha1.AddOnPackageSpec{AddOnChart: v1alpha1.AddOnChart{
			Chart: "metallb.tgz", Digest: charts.Digest(nil), Namespace: "metallb", Provides: []string{"loadBalancer"},
		}}},
	}
	completing := func() *completion {
		return &completion{ctx: t.Context(), packages: packages, archives: &archives{files: map[string][]byte{"web.tgz": web}}}
	}
	accepted := func(o v1alpha1.ServiceOffering, says string) *v1alpha1.ServiceOfferingSpec {
		t.Helper()
		verdicts, err := judge([]v1alpha1.ServiceOffering{o}, nil, completing().addOns, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v := verdicts[0]; v.accepted != (says == "") || !strings.Contains(v.message, says) {
			t.Fatalf("%t: %s, want %q", v.accepted, v.message, says)
		}
		return verdicts[0].spec
	}

	o := withAddOns(
		v1alpha1.AddOn{Name: "site", Package: "site", Mode: v1alpha1.AddOnOptional, AddOnChart: v1alpha1.AddOnChart{Values: rawValues(`{"pages": {"b": "2"}, "replicas": 3}`)}},
		v1alpha1.AddOn{Name: "metallb", Package: "metallb", Mode: v1alpha1.AddOnDefault},
	)
	spec := accepted(o, "")
	if taken := spec.Plans[0].Cluster.AddOns[0]; taken.Chart != "web.tgz" || taken.Namespace != "site" || taken.Description != "A web site" ||
		string(taken.Values.Raw) != `{"pages":{"a":"1","b":"2"},"replicas":3,"title":"of ${cluster.name}"}` {
		t.Errorf("it is taken over as %+v, values %s", taken, taken.Values.Raw)
	}
	snapshot, err := Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := snapshot.Plan("made-id", "plan")
	if err != nil {
		t.Fatal(err)
	}
	var shown struct {
		Properties map[string]json.RawMessage
	}
	if err := json.Unmarshal(plan.create.document, &shown); err != nil {
		t.Fatal(err)
	}
	contains(t, string(shown.Properties["addOns"]), `"enum":["site","metallb"]`)
	contains(t, string(shown.Properties["addOns"]), `"default":["metallb"]`)
	contains(t, string(shown.Properties["addOns"]), "site: A web site")
	contains(t, string(shown.Properties["addOnValues"]), `"replicas":{"default":3,"description":"Number of pods."`)
	if text := string(shown.Properties["addOnValues"]); strings.Contains(text, "cluster.name") || strings.Contains(text, "pages") {
		t.Errorf("consumers are shown %s", text)
	}

	for parameters, says := range map[string]string{
		``:                                "",
		`{"addOns": []}`:                  "",
		`{"addOns": ["site", "metallb"]}`: "",
		`{"addOns": ["site", "metallb"], "addOnValues": {"site": {"replicas": 5, "title": "${x}"}}}`: "",
		`{"addOns": ["site"]}`:  "parameters/addOns: site requires loadBalancer, and none of the chosen add-ons provides it",
		`{"addOns": ["other"]}`: "parameters/addOns/0: ",
		`{"addOns": ["metallb"], "addOnValues": {"site": {"replicas": 1}}}`:                          "site, which is not chosen",
		`{"addOns": ["site", "metallb"], "addOnValues": {"site": {"replicas": 6}}}`:                  "parameters/addOnValues/site/replicas: ",
		`{"addOns": ["site", "metallb"], "addOnValues": {"site": {"pages": {}}}}`:                    "parameters/addOnValues/site/pages: ",
		`{"addOns": ["site", "metallb"], "addOnValues": {"site": {"title": "{{ .Values.pages }}"}}}`: "parameters/addOnValues/site/title: may not contain {{",
		`{"addOnValues": {"metallb": {}}}`:                                                           "parameters/addOnValues/metallb: ",
	} {
		err := plan.ValidateCreate([]byte(parameters))
		wrong := (*ParameterError)(nil)
		if (err == nil) != (says == "") || err != nil && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", parameters, err, says)
		}
	}

	// The add-ons of a cluster are rendered by what was sold to it.
	instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("cf", "mine")}}
	shape := &v1alpha1.ClusterShape{AddOnsSold: plan.Cluster.AddOns}
	if err := plan.RenderAddOns(instance, shape, []byte(`{"addOns": ["site", "metallb"], "addOnValues": {"site": {"replicas": 5}}}`)); err != nil {
		t.Fatal(err)
	}
	if want := `{"pages":{"a":"1","b":"2"},"replicas":5,"title":"of ` + v1alpha1.InstanceClusterName(instance.Name) + `"}`; len(shape.AddOns) != 2 ||
		shape.AddOns[0].Name != "metallb" || string(shape.AddOns[1].Values.Raw) != want {
		t.Errorf("the cluster gets %+v", shape.AddOns)
	}

	accepted(withAddOns(v1alpha1.AddOn{Name: "one", Package: "one"}), "addOns: one: there is no AddOnPackage one")
	accepted(withAddOns(v1alpha1.AddOn{Name: "site", Package: "site"}), "site requires loadBalancer, which no add-on of the plan provides")
	packages[0].Spec.Settable = []string{"pages"}
	accepted(o, "site: settable: pages: the chart's values.schema.json describes it with a $ref")
	packages[0].Spec.Digest = charts.Digest(nil)
	accepted(o, "site: the digest of web.tgz is "+charts.Digest(web))
	packages[0].Spec.Chart = "gone.tgz"
	accepted(o, "there is no chart gone.tgz")
}
