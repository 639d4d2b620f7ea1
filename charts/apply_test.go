package charts_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestReplicasByServerSideApply changes the number of replicas up and down, as Helm 4 does it: fields that a rendering no
// longer has, and that were defaults, stay.
func TestReplicasByServerSideApply(t *testing.T) {
	cp := controlplane.Start(t, controlplane.Options{})
	c, err := client.New(cp.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}}); err != nil {
		t.Fatal(err)
	}
	for chart, values := range map[string][]string{"claims": {aBroker}, "sluice": nil} {
		for _, replicas := range []string{"replicas=1", "replicas=2", "replicas=1"} {
			applied := 0
			for document := range strings.SplitSeq(string(render(t, chart, append(values, replicas))), "---\n") {
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
					t.Fatal(err)
				}
				if o.GetKind() != "Deployment" {
					continue
				}
				o.SetNamespace("sluice")
				if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("helm")); err != nil {
					t.Errorf("chart %s, %s: %v", chart, replicas, err)
				}
				applied++
			}
			if applied != 1 {
				t.Errorf("chart %s has %d Deployments", chart, applied)
			}
		}
	}
}
