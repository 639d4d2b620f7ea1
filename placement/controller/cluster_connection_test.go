package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestTheConnectionOfAProbe is a condition of its cluster, which stays while it is not known.
func TestTheConnectionOfAProbe(t *testing.T) {
	state, why := metav1.ConditionUnknown, ""
	r := &clusterReconciler{Options: Options{Connection: func(string) (metav1.ConditionStatus, string) { return state, why }}}
	cluster := &v1alpha1.MemberCluster{}
	for _, row := range []struct {
		state     metav1.ConditionStatus
		why, want string
	}{
		{metav1.ConditionUnknown, "", ""},
		{metav1.ConditionTrue, "it is", "True Connected it is"},
		{metav1.ConditionUnknown, "", "True Connected it is"},
		{metav1.ConditionFalse, "gone", "False NotConnected gone"},
		{"", "", ""},
	} {
		state, why = row.state, row.why
		r.reportConnection(cluster)
		got := ""
		if c := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionMeasured); c != nil {
			got = string(c.Status) + " " + c.Reason + " " + c.Message
		}
		if got != row.want {
			t.Errorf("%q: the condition is %q, want %q", row.state, got, row.want)
		}
	}
}
