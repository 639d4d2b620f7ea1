package v1alpha1

import (
	"cmp"
	"maps"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// liqoChart matches a chart of Liqo: a file, a folder or a registry reference, with its version.
var liqoChart = regexp.MustCompile(`(^|/)liqo(|\.tgz|-v?[0-9].*|[:@].*)$`)

// Liqo returns the add-on that is Liqo; nil if none is.
func Liqo(addOns []AddOn) *AddOn {
	for i := range addOns {
		if liqoChart.MatchString(addOns[i].Chart) {
			return &addOns[i]
		}
	}
	return nil
}

// Side returns the side on which the member cluster takes part.
func (m *ShapeMember) Side() PeeringSide {
	switch {
	case m == nil:
		return ""
	case len(m.Consumers) > 0:
		return SideConsumer
	default:
		return SideProvider
	}
}

// MemberCluster returns the member cluster that the cluster of an instance becomes, without its access.
// With Liqo among its add-ons it can be peered. It returns nil if the cluster becomes none.
func (s *ClusterShape) MemberCluster(namespace, instance string) *MemberCluster {
	if s == nil || s.Member == nil {
		return nil
	}
	from := s.Member
	mc := &MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: InstanceClusterName(instance), Labels: maps.Clone(from.Labels)},
		Spec: MemberClusterSpec{
			Driver: DriverKube, Consumers: from.Consumers, Provider: from.Provider, Region: from.Region, Zone: from.Zone, Tier: from.Tier,
			Taints: from.Taints, Location: from.Location, Prices: from.Prices,
		},
	}
	metav1.SetMetaDataLabel(&mc.ObjectMeta, LabelInstance, instance)
	if liqo := Liqo(s.AddOns); liqo != nil {
		mc.Spec.Driver = DriverLiqo
		mc.Spec.Liqo = &LiqoCluster{
			Namespace: liqo.Namespace, GatewayService: cmp.Or(from.GatewayService, corev1.ServiceTypeLoadBalancer), Modules: ModulesFor(true),
		}
	}
	return mc
}

// IsMadeFor reports whether a member cluster is the cluster that was created for an instance.
func (m *MemberCluster) IsMadeFor(instance string) bool { return m.Labels[LabelInstance] == instance }
