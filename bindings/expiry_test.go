package bindings

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestRecordExpiry: every binding announces its end.
func TestRecordExpiry(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	for _, test := range []struct {
		name            string
		asked, granted  time.Duration
		age             time.Duration
		status          metav1.ConditionStatus
		reason, message string
		next            time.Duration
	}{
		{"young", 10 * day, 10 * day, day, metav1.ConditionTrue, v1alpha1.ReasonReady, "", 7*day + time.Second},
		{"shortened by the cluster", 10 * day, day, time.Hour, metav1.ConditionTrue, reasonShort, "for 24h0m0s, the plan asks for 240h0m0s", day*4/5 - time.Hour + time.Second},
		{"late", 10 * day, 10 * day, 9 * day, metav1.ConditionTrue, v1alpha1.ReasonExpiring, "expire at 2026-01-11T00:00:00Z", day + time.Second},
		{"over", 10 * day, 10 * day, 10 * day, metav1.ConditionFalse, v1alpha1.ReasonExpired, "expired at 2026-01-11T00:00:00Z", time.Second},
		{"long over", 10 * day, 10 * day, 11 * day, metav1.ConditionFalse, v1alpha1.ReasonExpired, "expired at 2026-01-11T00:00:00Z", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Controller{Clock: clocktesting.NewFakePassiveClock(start.Add(test.age))}
			b := &v1alpha1.ServiceBinding{}
			b.Spec.Credentials.LifetimeSeconds = int64(test.asked.Seconds())
			b.Status.IssuedAt = &metav1.Time{Time: start}
			b.Status.ExpiresAt = &metav1.Time{Time: start.Add(test.granted)}
			b.Status.RenewBefore = &metav1.Time{Time: renewBefore(start, b.Status.ExpiresAt.Time, b.Spec.Credentials)}
			if !c.recordExpiry(b) || c.recordExpiry(b) {
				t.Error("it is not news once")
			}
			if events := b.Status.Events; len(events) > 1 || (len(events) == 1) != (test.message != "") {
				t.Errorf("events %+v", events)
			}
			ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
			if ready.Status != test.status || ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) {
				t.Errorf("got %+v", ready)
			}
			if got := c.untilNews(b); got != test.next {
				t.Errorf("next news in %v, want %v", got, test.next)
			}
		})
	}
}
