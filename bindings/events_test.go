package bindings

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestNearQuota: a binding that brings its consumer near a quota says so once, with its order.
func TestNearQuota(t *testing.T) {
	c := &Controller{Clock: clocktesting.NewFakePassiveClock(time.Now())}
	b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Generation: 1, Annotations: map[string]string{v1alpha1.AnnotationNearQuota: "policy small"}}}
	c.begin(b, v1alpha1.OperationBind)
	c.begin(b, v1alpha1.OperationBind)
	b.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	c.begin(b, v1alpha1.OperationUnbind)
	var types []v1alpha1.EventType
	for _, e := range b.Status.Events {
		if types = append(types, e.Type); e.Type == v1alpha1.EventNearQuota && e.Message != "policy small" {
			t.Errorf("it says %q", e.Message)
		}
	}
	if want := []v1alpha1.EventType{v1alpha1.EventOrdered, v1alpha1.EventNearQuota, v1alpha1.EventOrdered}; !slices.Equal(types, want) {
		t.Errorf("events %v, want %v", types, want)
	}
}

// TestEventsNameTheirOperation: an event belongs to the operation under way, with the plan and the time.
func TestEventsNameTheirOperation(t *testing.T) {
	now := time.Now()
	c := &Controller{Clock: clocktesting.NewFakePassiveClock(now)}
	for state, want := range map[v1alpha1.OperationState]v1alpha1.OperationType{
		v1alpha1.StateInProgress: v1alpha1.OperationBind, v1alpha1.StateSucceeded: "", v1alpha1.StateFailed: "", "": "",
	} {
		b := bindingOf(state, func(b *v1alpha1.ServiceBinding) { b.Spec.PlanID = "plan" })
		c.happened(b, v1alpha1.Event{Type: v1alpha1.EventBound})
		if e := b.Status.Events[0]; e.Operation != want || e.PlanID != "plan" || !e.At.Time.Equal(metav1.NewMicroTime(now).Time) {
			t.Errorf("operation %q: %+v, want operation %q", state, e, want)
		}
	}
}
