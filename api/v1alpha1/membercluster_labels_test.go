package v1alpha1

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestArchitectureAndOperatingSystemAreLabelsIfAllNodesHaveTheSame(t *testing.T) {
	for name, row := range map[string]struct {
		own, found []string
		want       string
	}{
		"one":                       {nil, []string{"arm64"}, "arm64"},
		"several":                   {nil, []string{"amd64", "arm64"}, ""},
		"none is known":             {nil, nil, ""},
		"the operator says another": {[]string{"riscv64"}, []string{"amd64"}, "riscv64"},
	} {
		c := &MemberCluster{Status: MemberClusterStatus{Architectures: row.found, OperatingSystems: []string{"linux"}}}
		for _, own := range row.own {
			c.Labels = map[string]string{corev1.LabelArchStable: own}
		}
		if labels := c.SelectorLabels(); labels[corev1.LabelArchStable] != row.want || labels[corev1.LabelOSStable] != "linux" {
			t.Errorf("%s: %v", name, labels)
		}
	}
}
