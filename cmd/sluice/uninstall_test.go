package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestUninstallAndOwnInstances: instances of platforms, and the clusters of policies, are in the way of an uninstallation,
// and the refusal says who removes them. Probes are not: they leave with their clusters, and it waits for them.
func TestUninstallAndOwnInstances(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	readyCluster(t, c, h.Namespace, "eu", 4)
	own := func(name, label, of string) *v1alpha1.ServiceInstance {
		t.Helper()
		i := &v1alpha1.ServiceInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: name, Labels: map[string]string{label: of}},
			Spec: v1alpha1.ServiceInstanceSpec{
				Platform: v1alpha1.PlatformSelf, InstanceID: name, ServiceID: "service-1", Desired: v1alpha1.InstanceState{PlanID: "plan-1"},
			},
		}
		if err := c.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		return i
	}
	probe := own("si-probe", v1alpha1.LabelMeasure, "eu")
	made := own("si-made", v1alpha1.LabelElastic, "burst")
	ordered := deliveredInstance(t, c, h.Namespace, "si-ordered", "eu")
	fails := func(want ...string) {
		t.Helper()
		_, err := operator("uninstall", "--yes", "--wait", "1s")
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("uninstall: %v, want %q", err, words)
			}
		}
		if err != nil && want[0] != "probes" && strings.Contains(err.Error(), "si-probe") {
			t.Errorf("the probe is in the way: %v", err)
		}
	}
	remove := func(i *v1alpha1.ServiceInstance) {
		t.Helper()
		if err := c.Delete(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	const ofPolicies = "there are still clusters that placement policies have made (si-made): remove these policies first with `sluice policy remove` (burst)"
	fails("there are still service instances (si-ordered): their platforms have to deprovision them first", ofPolicies)
	remove(ordered)
	fails(ofPolicies)
	remove(made)
	fails("probes", "not deleted after 1s: si-probe")
	remove(probe)
	if out := must("uninstall", "--yes"); !strings.Contains(out, "probes: none is left\n") {
		t.Errorf("uninstall: %s", out)
	}
}
