package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "sluice.dev", Version: "v1alpha1"}

var builder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&MemberCluster{}, &MemberClusterList{},
		&ServiceOffering{}, &ServiceOfferingList{},
		&ServiceInstance{}, &ServiceInstanceList{},
		&ServiceBinding{}, &ServiceBindingList{},
		&SelfDescription{}, &SelfDescriptionList{},
		&Provider{}, &ProviderList{},
		&Consumer{}, &ConsumerList{},
		&TrustedIssuer{}, &TrustedIssuerList{},
		&Identity{}, &IdentityList{},
		&PlacementPolicy{}, &PlacementPolicyList{},
		&Peering{}, &PeeringList{},
		&Chart{}, &ChartList{},
		&AddOnPackage{}, &AddOnPackageList{},
		&Journal{}, &JournalList{},
		&EventSink{}, &EventSinkList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error { return builder.AddToScheme(s) }
