package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// conditionView is what the commands show of a condition.
type conditionView struct {
	isTrue     bool
	reason     string
	message    string
	generation int64
}

// viewCondition returns nil when there is no such condition yet.
func viewCondition(conditions []metav1.Condition, kind string) *conditionView {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return nil
	}
	return &conditionView{isTrue: c.Status == metav1.ConditionTrue, reason: c.Reason, message: c.Message, generation: c.ObservedGeneration}
}

// quantities prints a resource list in a stable order, for instance "1 cpu, 1Gi memory".
func quantities(list corev1.ResourceList) string {
	names := make([]string, 0, len(list))
	for name, quantity := range list {
		if !quantity.IsZero() {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	for i, name := range names {
		quantity := list[corev1.ResourceName(name)]
		names[i] = fmt.Sprintf("%s %s", quantity.String(), name)
	}
	return orDash(strings.Join(names, ", "))
}

func age(t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(time.Since(t.Time))
}
