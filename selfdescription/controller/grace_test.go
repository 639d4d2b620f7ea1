package controller

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestOnlyWhatHeldUntilItsEndHasGrace(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	since := now.Add(-time.Hour) // of grace
	minutesAgo := func(n int) time.Time { return now.Add(-time.Duration(n) * time.Minute) }
	for name, row := range map[string]struct {
		state           v1alpha1.CredentialState
		verified, until time.Time
		withdrawn       bool // and not looked at since
		want            bool
	}{
		"holds":                             {state: v1alpha1.CredentialVerified, verified: now, until: now.Add(time.Hour), want: true},
		"ended within the grace":            {state: v1alpha1.CredentialExpired, verified: minutesAgo(40), until: minutesAgo(30), want: true},
		"ended before the grace":            {state: v1alpha1.CredentialExpired, verified: minutesAgo(80), until: minutesAgo(70)},
		"ended and was never found to hold": {state: v1alpha1.CredentialExpired, until: minutesAgo(30)},
		"was revoked":                       {state: v1alpha1.CredentialRevoked, until: now.Add(time.Hour)},
		"was suspended":                     {state: v1alpha1.CredentialSuspended, until: now.Add(time.Hour)},
		"was rejected":                      {state: v1alpha1.CredentialRejected, until: now.Add(time.Hour)},
		"was withdrawn a moment ago":        {state: v1alpha1.CredentialVerified, verified: now, until: now.Add(time.Hour), withdrawn: true},
		"was withdrawn after its end":       {state: v1alpha1.CredentialExpired, verified: minutesAgo(40), until: minutesAgo(30), withdrawn: true},
	} {
		t.Run(name, func(t *testing.T) {
			sd := &v1alpha1.SelfDescription{}
			sd.Spec.Revoked, sd.Status.State = row.withdrawn, row.state
			sd.Status.VerifiedAt, sd.Status.ValidUntil = apiTime(row.verified), apiTime(row.until)
			if got := counts(sd, since); got != row.want {
				t.Errorf("counts: %t", got)
			}
		})
	}
}
