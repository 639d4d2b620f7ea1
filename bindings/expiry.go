package bindings

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// reasonShort of condition Ready: the credentials live shorter than the plan asks for.
const reasonShort = "ShortLived"

// recordExpiry sets condition Ready to what the platform should do before the credentials
// expire, and reports whether that is new. Without a renewal the application loses access.
func (c *Controller) recordExpiry(b *v1alpha1.ServiceBinding) (news bool) {
	status, reason, message := metav1.ConditionTrue, v1alpha1.ReasonReady, ""
	now, ends, issued := c.Clock.Now(), b.Status.ExpiresAt, b.Status.IssuedAt
	switch {
	case ends == nil:
	case !now.Before(ends.Time):
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonExpired
		message = fmt.Sprintf("the credentials expired at %s: the platform must fetch the binding again, or rotate it", ends.UTC().Format(time.RFC3339))
	case b.Status.RenewBefore != nil && now.After(b.Status.RenewBefore.Time):
		reason = v1alpha1.ReasonExpiring
		message = fmt.Sprintf("the credentials expire at %s: until then, the platform must fetch the binding again, or rotate it", ends.UTC().Format(time.RFC3339))
	case issued != nil && shorter(ends.Sub(issued.Time), b.Spec.Credentials):
		reason = reasonShort
		message = fmt.Sprintf("a cluster grants credentials for %v, the plan asks for %v: the platform must fetch the binding again within that time, or rotate it",
			ends.Sub(issued.Time).Round(time.Second), lifetime(b.Spec.Credentials))
	}
	news = v1alpha1.SetCondition(&b.Status.Conditions, b.Generation, v1alpha1.ConditionReady, status, reason, message)
	if news && message != "" {
		c.happened(b, v1alpha1.Event{Type: v1alpha1.EventExpiring, Message: message})
	}
	return news
}

// shorter reports whether a lifetime is more than a tenth shorter than the policy's.
func shorter(granted time.Duration, policy v1alpha1.CredentialsPolicy) bool {
	return granted < lifetime(policy)*9/10
}

func lifetime(policy v1alpha1.CredentialsPolicy) time.Duration {
	return time.Duration(cmp.Or(policy.LifetimeSeconds, defaultLifetimeSeconds)) * time.Second
}

// untilNews is the time until the condition changes; 0 means that it does not.
func (c *Controller) untilNews(b *v1alpha1.ServiceBinding) time.Duration {
	now := c.Clock.Now()
	for _, at := range []*metav1.Time{b.Status.RenewBefore, b.Status.ExpiresAt} {
		if at != nil && !now.After(at.Time) {
			return at.Sub(now) + time.Second
		}
	}
	return 0
}
