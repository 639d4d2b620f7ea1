package placement

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Kubernetes, "Taints and Tolerations", on tolerationSeconds.
func TestNoExecuteTaintsDriveAwayAfterTheirToleration(t *testing.T) {
	since := metav1.NewTime(goldenTime)
	lost := corev1.Taint{Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &since}
	maintenance := corev1.Taint{Key: "maintenance", Value: "soon", Effect: corev1.TaintEffectNoExecute, TimeAdded: &since}
	tolerate := func(key string, seconds ...int64) corev1.Toleration {
		one := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
		if len(seconds) > 0 {
			one.TolerationSeconds = &seconds[0]
		}
		return one
	}
	const never = time.Duration(-1)
	for name, row := range map[string]struct {
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		after       time.Duration
	}{
		"a lost cluster is tolerated for five minutes": {
			taints: []corev1.Taint{lost}, after: 5 * time.Minute},
		"or as long as the plan says": {
			taints: []corev1.Taint{lost}, tolerations: []corev1.Toleration{tolerate(v1alpha1.TaintUnreachable, 20)}, after: 20 * time.Second},
		"or for ever": {
			taints: []corev1.Taint{lost}, tolerations: []corev1.Toleration{tolerate(v1alpha1.TaintUnreachable)}, after: never},
		"the shortest toleration counts": {
			taints: []corev1.Taint{lost}, tolerations: []corev1.Toleration{tolerate(""), tolerate(v1alpha1.TaintUnreachable, 40), tolerate(v1alpha1.TaintUnreachable, 30)}, after: 30 * time.Second},
		"also if it is the first": {
			taints: []corev1.Taint{lost}, tolerations: []corev1.Toleration{tolerate(v1alpha1.TaintUnreachable, 30), tolerate(v1alpha1.TaintUnreachable, 40), tolerate("")}, after: 30 * time.Second},
		"negative seconds are none": {
			taints: []corev1.Taint{lost}, tolerations: []corev1.Toleration{tolerate(v1alpha1.TaintUnreachable, -5)}, after: 0},
		"any other taint drives away at once": {
			taints: []corev1.Taint{maintenance}, after: 0},
		"a toleration of something else is none": {
			taints: []corev1.Taint{maintenance}, tolerations: []corev1.Toleration{tolerate("other", 60)}, after: 0},
		"the first of several taints to run out counts": {
			taints: []corev1.Taint{lost, maintenance}, tolerations: []corev1.Toleration{tolerate("maintenance", 60)}, after: time.Minute},
		"also if another one comes first": {
			taints: []corev1.Taint{maintenance, lost}, tolerations: []corev1.Toleration{tolerate("maintenance", 60)}, after: time.Minute},
		"a taint that is tolerated for ever protects from no other": {
			taints: []corev1.Taint{{Key: "soft", Effect: corev1.TaintEffectNoSchedule}, maintenance, lost}, tolerations: []corev1.Toleration{tolerate("maintenance")}, after: 5 * time.Minute},
		"NoSchedule drives nobody away": {
			taints: []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}, after: never},
	} {
		t.Run(name, func(t *testing.T) {
			e, evicted := Evict(&Cluster{Name: "eu", Taints: row.taints}, row.tolerations)
			if evicted != (row.after != never) {
				t.Fatalf("evicted %t: %+v", evicted, e)
			}
			if evicted && !e.At.Equal(goldenTime.Add(row.after)) {
				t.Errorf("after %s, want %s", e.At.Sub(goldenTime), row.after)
			}
		})
	}
	if e, evicted := Evict(&Cluster{Name: "eu", Taints: []corev1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}}, nil); !evicted || !e.At.IsZero() {
		t.Errorf("a taint without a time was not always there: %+v", e)
	}
}
