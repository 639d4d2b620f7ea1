package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestWhatAClusterHoldsBackIsReadAndShown(t *testing.T) {
	sell, err := sale(map[string]string{"share": "80", "memory": "8Gi"})
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Sell: sell}}
	cluster.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("20"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("1"),
	}
	for name, want := range map[corev1.ResourceName]string{corev1.ResourceCPU: " (16 for sale)", corev1.ResourceMemory: " (8Gi for sale)"} {
		if got := forSale(cluster, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	cluster.Spec.Sell = nil
	if got := forSale(cluster, corev1.ResourceCPU); got != "" {
		t.Errorf("nothing is held back: %q", got)
	}
	for flag, message := range map[[2]string]string{
		{"share", "0"}: "1 to 100", {"share", "101"}: "1 to 100", {"share", "most"}: "1 to 100",
		{"cpu", "-1"}: "want an amount", {"cpu", "many"}: "want an amount",
	} {
		if _, err := sale(map[string]string{flag[0]: flag[1]}); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%v: %v, want %q", flag, err, message)
		}
	}
	if sell, err := sale(nil); sell != nil || err != nil {
		t.Errorf("no flag is %v, %v", sell, err)
	}
}
