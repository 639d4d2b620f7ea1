package workload

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestStartsWithin(t *testing.T) {
	of := func(containers ...*v1alpha1.WorkloadContainer) *v1alpha1.WorkloadPlan {
		plan := &v1alpha1.WorkloadPlan{}
		for _, c := range containers {
			plan.Components = append(plan.Components, v1alpha1.WorkloadComponent{Container: c})
		}
		return plan
	}
	volumes := []v1alpha1.WorkloadVolume{{Name: "data"}}
	for name, row := range map[string]struct {
		plan *v1alpha1.WorkloadPlan
		want time.Duration
	}{
		"by default":                  {of(&v1alpha1.WorkloadContainer{}), 5 * time.Minute},
		"the longest of two":          {of(&v1alpha1.WorkloadContainer{DeadlineSeconds: 20}, &v1alpha1.WorkloadContainer{DeadlineSeconds: 10}), 20 * time.Second},
		"one pod after the other":     {of(&v1alpha1.WorkloadContainer{DeadlineSeconds: 20, Replicas: ptr.To(intstr.FromInt32(3))}), time.Minute},
		"as many pods as it computes": {of(&v1alpha1.WorkloadContainer{Replicas: ptr.To(intstr.FromString("${parameters.pods}"))}), 0},
		"as many pods as it may get":  {of(&v1alpha1.WorkloadContainer{Autoscaling: &v1alpha1.WorkloadAutoscaling{Max: intstr.FromInt32(2)}}), 10 * time.Minute},
		"after the former pod":        {of(&v1alpha1.WorkloadContainer{DeadlineSeconds: 20, GracePeriodSeconds: ptr.To[int64](600), Replicas: ptr.To(intstr.FromInt32(2)), Volumes: volumes}), 1240 * time.Second},
		"by default, with volumes":    {of(&v1alpha1.WorkloadContainer{Volumes: volumes}), 330 * time.Second},
		"a chart":                     {of(&v1alpha1.WorkloadContainer{}, nil), 0},
	} {
		if got := StartsWithin(row.plan); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}
