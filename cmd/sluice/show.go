package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// conditionView holds the fields of a condition that the commands show.
type conditionView struct {
	isTrue     bool
	reason     string
	message    string
	generation int64
}

// viewCondition returns nil if the condition does not exist yet.
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
		amount := quantity.String()
		if name == string(corev1.ResourceMemory) || name == string(corev1.ResourceEphemeralStorage) {
			amount = gib(&quantity)
		}
		names[i] = amount + " " + name
	}
	return orDash(strings.Join(names, ", "))
}

// gib formats bytes for people: from 0.1Gi on in Gi, rounded to one digit after the point;
// smaller amounts unchanged.
func gib(q *resource.Quantity) string {
	gi := float64(q.Value()) / (1 << 30)
	if gi < 0.1 {
		return q.String()
	}
	return strconv.FormatFloat(math.Round(gi*10)/10, 'f', -1, 64) + "Gi"
}

// count formats a number of things, for instance "1 node" or "2 nodes".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func age(t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(time.Since(t.Time))
}
