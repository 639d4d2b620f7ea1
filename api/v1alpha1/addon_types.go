package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddOnPackage describes an add-on of created clusters once, for all plans that name it. A plan takes it
// over when the catalog accepts the plan; existing clusters get a changed package with the plan's next
// maintenanceInfo.version.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=addon
// +kubebuilder:printcolumn:name=Chart,type=string,JSONPath=`.spec.chart`
// +kubebuilder:printcolumn:name=Description,type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type AddOnPackage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AddOnPackageSpec `json:"spec"`
}

// AddOnPackageList is a list of packages.
// +kubebuilder:object:root=true
type AddOnPackageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddOnPackage `json:"items"`
}

// AddOnPackageSpec is an add-on that plans may name.
// +kubebuilder:validation:XValidation:rule="has(self.chart) && has(self.digest) && has(self.namespace)",message="a package has a chart, its digest and a namespace"
type AddOnPackageSpec struct {
	// Description of the add-on for consumers.
	// +kubebuilder:validation:MaxLength=256
	Description string `json:"description,omitempty"`
	AddOnChart  `json:",inline"`
}

// AddOn is a Helm release in a created cluster. Its name is that of the release.
// +kubebuilder:validation:XValidation:rule="has(self.package) || (has(self.chart) && has(self.namespace))",message="an add-on names a package, or has a chart and a namespace"
type AddOn struct {
	// Name of the release.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=53
	Name string `json:"name"`
	// Package is the name of an AddOnPackage. What the add-on says beside it counts instead of what the
	// package says; values are merged.
	// +kubebuilder:validation:MaxLength=253
	Package string `json:"package,omitempty"`
	// Mode says which clusters get the add-on. Consumers choose with the parameter "addOns".
	// +kubebuilder:default=Always
	Mode AddOnMode `json:"mode,omitempty"`
	// Description of the add-on for consumers.
	// +kubebuilder:validation:MaxLength=256
	Description string `json:"description,omitempty"`
	AddOnChart  `json:",inline"`
	// Schemas of the values in settable, by name (JSON Schema), as the chart describes them. Sluice fills
	// them in when it accepts the plan.
	// +kubebuilder:pruning:PreserveUnknownFields
	Schemas *runtime.RawExtension `json:"schemas,omitempty"`
}

// AddOnMode says which clusters get an add-on.
// +kubebuilder:validation:Enum=Always;Default;Optional
type AddOnMode string

// Modes of add-ons: of every cluster, of those whose consumers choose none, and only of those whose
// consumers choose it.
const (
	AddOnAlways   AddOnMode = "Always"
	AddOnDefault  AddOnMode = "Default"
	AddOnOptional AddOnMode = "Optional"
)

// AddOnChart is a chart, and how it is installed.
type AddOnChart struct {
	// Chart is one of: a file or folder below the folder that --charts names, for instance
	// cilium-1.18.2.tgz; a chart in a registry by version, oci://HOST/PATH:VERSION; or by digest,
	// oci://HOST/PATH@sha256:DIGEST. Sluice contacts only registries that the operator allows with
	// --chart-registry.
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._+-]*|oci://[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+(:v?[0-9][A-Za-z0-9._+-]*|@sha256:[0-9a-f]{64}))$`
	// +kubebuilder:validation:MaxLength=512
	Chart string `json:"chart,omitempty"`
	// Digest of the chart's archive; sha256sum prints it, and helm push. An archive with another digest
	// is not installed. A folder has none.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`
	// Namespace of the release; Sluice creates it if it does not exist.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Values for the chart. Strings may contain CEL expressions, ${…}, over the variables
	// cluster {name, version, podCIDRs, serviceCIDRs, nodes, tier}, instance {id, name, platform,
	// organization, space}, plan {id, name} and parameters; a string that is one expression takes the
	// type of its value, and $${ is a literal ${. nodes is the number of workers.
	// +kubebuilder:pruning:PreserveUnknownFields
	Values *runtime.RawExtension `json:"values,omitempty"`
	// When is a CEL expression over the same variables. Clusters for which it is false do without the
	// add-on.
	// +kubebuilder:validation:MaxLength=1024
	When string `json:"when,omitempty"`
	// Provides names what the add-on gives to others, for instance loadBalancer. A cluster has at most
	// one add-on that provides the same.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Provides []string `json:"provides,omitempty"`
	// Requires lists names of add-ons, or what they provide, that the cluster must have. They are
	// installed first.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Requires []string `json:"requires,omitempty"`
	// Settable lists values that the consumer may set with the parameter "addOnValues", at the top level
	// of the chart's values. The chart's values.schema.json must describe them.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=set
	Settable []string `json:"settable,omitempty"`
}
