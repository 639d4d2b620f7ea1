package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Chart is the archive of a Helm chart that plans use, kept so that instances need neither the folder
// nor the registry that it came from. Its name is the hexadecimal SHA-256 digest of the archive. Sluice
// makes it when an offering first names it, and removes it when nothing uses it any more.
//
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name=Chart,type=string,JSONPath=`.spec.chart`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Chart struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ChartSpec `json:"spec"`
}

// ChartList is a list of charts.
// +kubebuilder:object:root=true
type ChartList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Chart `json:"items"`
}

// ChartSpec is the content of a chart. It never changes: readers of an archive compare its digest with
// the name.
type ChartSpec struct {
	// Chart is its name, for people.
	// +kubebuilder:validation:MaxLength=253
	Chart string `json:"chart"`
	// Version of the chart, for people.
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version"`
	// Archive of the chart, gzipped, at most MostChartBytes long.
	// +kubebuilder:validation:MaxLength=1048576
	Archive []byte `json:"archive"`
}

// MostChartBytes is the greatest length of the archive of a workload's chart: an object of the hub
// holds it.
const MostChartBytes = 768 << 10

// AnnotationUnusedSince is when nothing used a Chart any more (RFC 3339).
const AnnotationUnusedSince = "sluice.dev/unused-since"

// digestPrefix begins every digest in a plan.
const digestPrefix = "sha256:"

// ChartName returns the name of the Chart that keeps an archive with a digest.
func ChartName(digest string) string { return strings.TrimPrefix(digest, digestPrefix) }

// Digest returns the digest of the archive that the chart was made for.
func (c *Chart) Digest() string { return digestPrefix + c.Name }

// Charts returns the charts of the workload's components.
func (w *WorkloadPlan) Charts() []*WorkloadChart {
	var charts []*WorkloadChart
	for i := range w.Components {
		if chart := w.Components[i].Chart; chart != nil {
			charts = append(charts, chart)
		}
	}
	return charts
}
