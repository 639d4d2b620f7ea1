package capi_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

// The plan of docs/clusters.md for OpenStack, with its add-ons, is accepted by the hub, and has
// no unknown field.
func TestThePlanOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/clusters.md")
	must(t, err)
	spec := &v1alpha1.ServiceOfferingSpec{ID: "kubernetes", Name: "kubernetes", Description: "Clusters.", Plans: []v1alpha1.Plan{{
		ID: "openstack", Name: "openstack", Description: "On OpenStack.", Kind: v1alpha1.PlanKindCluster,
	}}}
	blocks := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		document := block[1]
		if strings.HasPrefix(document, "addOns:") || strings.HasPrefix(document, "join:") {
			document = "cluster:\n  " + strings.TrimSpace(strings.ReplaceAll(document, "\n", "\n  "))
		}
		must(t, yaml.UnmarshalStrict([]byte(document), &spec.Plans[0]))
		blocks++
	}
	if cluster := spec.Plans[0].Cluster; blocks != 3 || cluster.Class != "openstack" || len(cluster.AddOns) != 3 || cluster.Join == nil {
		t.Fatalf("%d blocks make %+v", blocks, cluster)
	}
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	hub, err := client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	must(t, err)
	offering := &v1alpha1.ServiceOffering{Spec: *spec}
	offering.Namespace, offering.Name = hubtest.Namespace(t), "kubernetes"
	must(t, hub.Create(t.Context(), offering))
}
