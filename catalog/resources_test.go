package catalog

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A parameter that was accepted under another plan, or written by hand, is read as far as it goes,
// and refused by its name.
func TestResourcesParametersAreReadByName(t *testing.T) {
	plan := &Plan{Plan: v1alpha1.Plan{Name: "small", Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{
		MaxLatency: &v1alpha1.LatencyBound{From: "stockholm", Milliseconds: 50},
	}}}
	for given, milliseconds := range map[string]int32{"": 50, `{}`: 50, `{"maxLatencyMilliseconds": 20}`: 20, `{"maxLatencyMilliseconds": 80}`: 50, `{"maxLatencyMilliseconds": null}`: 50} {
		chosen, err := plan.ResourcesParameters([]byte(given))
		if err != nil || chosen.MaxLatency.Milliseconds != milliseconds || chosen.MaxLatency.From != "stockholm" {
			t.Errorf("%s: %+v, %v; want %d ms", given, chosen.MaxLatency, err, milliseconds)
		}
	}
	if plan.Resources.MaxLatency.Milliseconds != 50 {
		t.Error("the plan's own limit has changed")
	}
	for i := range resourcesParameters {
		name := resourcesParameters[i].name
		if _, err := plan.ResourcesParameters([]byte(`{"` + name + `": true}`)); err == nil || !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s of another type: %v", name, err)
		}
	}
}

// Consumers make public as many ports as the plan allows, each at a host that can be one.
func TestExposed(t *testing.T) {
	spec := v1alpha1.Plan{ID: "small", Name: "small", Description: "d", Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Exposure: &v1alpha1.PlanExposure{Hosts: 2}}}
	offering, err := newOffering(&v1alpha1.ServiceOfferingSpec{ID: "o", Name: "o", Description: "d", Plans: []v1alpha1.Plan{spec}}, known{}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	plan := offering.Plans[0]
	for given, want := range map[string]string{
		`{"expose": [{"name": "web", "port": 80, "host": "shop"}, {"name": "chat", "port": 81}]}`: "",
		`{"expose": []}`:                                                                                     "",
		`{"expose": [{"name": "web"}]}`:                                                                      "port",
		`{"expose": [{"name": "Web", "port": 80}]}`:                                                          "name",
		`{"expose": [{"name": "web", "port": 80, "host": "${'x'}"}]}`:                                        "host",
		`{"expose": [{"name": "web", "port": 80, "host": "www.acme.example"}]}`:                              "",
		`{"expose": [{"name": "web", "port": 80, "host": "a..b"}]}`:                                          "host",
		`{"expose": [{"name": "web", "port": 1883, "appProtocol": "tcp"}]}`:                                  "",
		`{"expose": [{"name": "a", "port": 1}, {"name": "b", "port": 1}, {"name": "c", "port": 1}]}`:         "expose",
		`{"expose": [{"name": "sluice-deny", "port": 80}]}`:                                                  "expose[sluice-deny]: names that start with sluice are Sluice's own",
		`{"expose": [{"name": "web", "port": 80}, {"name": "web", "port": 81}]}`:                             "expose[web]: there is another one of this name",
		`{"expose": [{"name": "a", "port": 80, "host": "shop"}, {"name": "b", "port": 81, "host": "shop"}]}`: `expose[b].host: "shop" is the host of a already`,
		`{"expose": [{"name": "web", "port": 80, "host": "web-0123456789abcdef"}]}`:                          "expose[web].host: \"web-0123456789abcdef\" ends like a generated host",
	} {
		err := plan.ValidateCreate([]byte(given))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %s", given, err, want)
		}
	}
	ports, known, err := plan.Exposed([]byte(`{"expose": [{"name": "web", "port": 80, "host": "shop"}]}`))
	if err != nil || len(ports) != 1 || len(known.Public) != 1 || known.Hosts["shop"] != "expose[web].host" {
		t.Errorf("%+v, %+v, %v", ports, known, err)
	}
	plan.Resources.Exposure = nil
	if ports, _, err := plan.Exposed([]byte(`{"expose": [{"name": "web", "port": 80}]}`)); ports != nil || err != nil {
		t.Errorf("a plan without exposure makes %v public, %v", ports, err)
	}
}

// The same of cluster plans.
func TestClusterParametersAreReadByName(t *testing.T) {
	plan := &Plan{Plan: v1alpha1.Plan{Name: "small", Kind: v1alpha1.PlanKindCluster, Cluster: &v1alpha1.ClusterPlan{
		Versions:     []string{"v1.34.4", "v1.33.0"},
		ControlPlane: &v1alpha1.Machines{Replicas: 1, Max: 3},
		Workers:      []v1alpha1.WorkerPool{{Name: "pool", Machines: v1alpha1.Machines{Replicas: 2, Max: 5}}},
		Variables:    &runtime.RawExtension{Raw: []byte(`{"flavor": "m1", "zone": "a"}`)},
		Settable:     []string{"flavor"},
	}}}
	chosen, err := plan.ClusterParameters([]byte(`{"version": "v1.33.0", "controlPlane": 3.0, "workers": {"pool": 4, "gone": 9}, "variables": {"flavor": "m2"}, "unknown": 1}`))
	if err != nil || chosen.Version != "v1.33.0" || chosen.ControlPlane != 3 ||
		!maps.Equal(chosen.Workers, map[string]int32{"pool": 4}) ||
		string(chosen.Variables["flavor"]) != `"m2"` || string(chosen.Variables["zone"]) != `"a"` {
		t.Errorf("%+v, %v", chosen, err)
	}
	chosen, err = plan.ClusterParameters(nil)
	if err != nil || chosen.Version != "" || chosen.ControlPlane != 1 || chosen.Workers["pool"] != 2 || string(chosen.Variables["flavor"]) != `"m1"` {
		t.Errorf("the defaults: %+v, %v", chosen, err)
	}
	for i := range clusterParameters {
		name := clusterParameters[i].name
		if _, err := plan.ClusterParameters([]byte(`{"` + name + `": true}`)); err == nil || !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s of another type: %v", name, err)
		}
	}
	plan.Cluster.ControlPlane = nil
	if chosen, err = plan.ClusterParameters([]byte(`{"controlPlane": 3}`)); err != nil || chosen.ControlPlane != 0 {
		t.Errorf("a control plane that is not the plan's: %+v, %v", chosen, err)
	}
}
