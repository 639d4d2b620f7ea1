package v1alpha1

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A cluster that becomes a member cluster takes part in peerings if Liqo is among its add-ons, wherever
// the chart comes from.
func TestMemberClusterOfAShape(t *testing.T) {
	for chart, driver := range map[string]string{
		"": DriverKube, "cilium-1.18.2.tgz": DriverKube, "liqo-dashboard-1.0.0.tgz": DriverKube, "oci://registry.example/liqo/other:1.0.1": DriverKube,
		"liqo": DriverLiqo, "liqo.tgz": DriverLiqo, "liqo-v1.0.1.tgz": DriverLiqo,
		"oci://registry.example/charts/liqo:1.0.1": DriverLiqo, "oci://registry.example/liqo@sha256:" + strings.Repeat("0", 64): DriverLiqo,
	} {
		t.Run(chart, func(t *testing.T) {
			shape := &ClusterShape{
				Member: &ShapeMember{MemberTemplate: MemberTemplate{Region: "eu", Labels: map[string]string{"gpu": "yes"}}, GatewayService: corev1.ServiceTypeNodePort},
				AddOns: []AddOn{{Name: "other", AddOnChart: AddOnChart{Chart: "other", Namespace: "other"}}, {Name: "one", AddOnChart: AddOnChart{Chart: chart, Namespace: "peers"}}},
			}
			mc := shape.MemberCluster("sluice", "si-0123456789abcdef")
			if mc.Name != "sluice-0123456789ab" || mc.Namespace != "sluice" || mc.Labels["gpu"] != "yes" || !mc.IsMadeFor("si-0123456789abcdef") || mc.Spec.Region != "eu" {
				t.Errorf("it is %+v", mc)
			}
			spec := mc.Spec
			if spec.Driver != driver || (spec.Liqo != nil) != (driver == DriverLiqo) ||
				spec.Liqo != nil && (spec.Liqo.Namespace != "peers" || len(spec.Liqo.Modules) != 3 || spec.Liqo.GatewayService != corev1.ServiceTypeNodePort) {
				t.Errorf("its driver is %s, and its section liqo %+v", spec.Driver, spec.Liqo)
			}
		})
	}
	if mc := (&ClusterShape{}).MemberCluster("sluice", "si-0123456789abcdef"); mc != nil {
		t.Errorf("a cluster that does not join becomes %+v", mc)
	}
}
