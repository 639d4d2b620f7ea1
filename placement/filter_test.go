package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The rules of Kubernetes ("Taints and Tolerations").
func TestTolerated(t *testing.T) {
	taint := &corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}
	for name, row := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"of the same value":          {corev1.Toleration{Key: "k", Value: "v"}, true},
		"the same, spelled out":      {corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "v", Effect: corev1.TaintEffectNoSchedule}, true},
		"of another value":           {corev1.Toleration{Key: "k", Value: "w"}, false},
		"of another key":             {corev1.Toleration{Key: "l", Value: "v"}, false},
		"of another effect":          {corev1.Toleration{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute}, false},
		"of any value":               {corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}, true},
		"of everything":              {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"of a value without a key":   {corev1.Toleration{Value: "v"}, false},
		"with an operator of others": {corev1.Toleration{Key: "k", Operator: "Gt", Value: "v"}, false},
	} {
		if got := tolerated([]corev1.Toleration{row.toleration}, taint); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The rejection of a cluster without a group names the label that it lacks.
func TestUngroupedNamesTheLabel(t *testing.T) {
	spread := &Spread{By: []string{"region", "zone"}}
	for lacks, labels := range map[string]map[string]string{
		"region": {"zone": "z"},
		"zone":   {"region": "r"},
	} {
		c := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(4), Labels: labels}
		if _, ok := spread.groupOf(c); ok {
			t.Errorf("%v is a group of %v", labels, spread.By)
		}
		_, err := Place(Request{ID: "si", Resources: cores(1), Spread: spread}, stock([]*Cluster{c}).Snapshot())
		if err == nil || !strings.Contains(err.Error(), "has no label "+lacks+",") {
			t.Errorf("%v: %v", labels, err)
		}
	}
}
