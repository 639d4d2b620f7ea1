package workload

import (
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// What a cluster says is shown without secrets and hidden parameters, and without anything of one that contains another.
func TestWhatAClusterSaysIsRedacted(t *testing.T) {
	o := &Order{Plan: &v1alpha1.WorkloadPlan{}, Secrets: Secrets{"short": seal.Redact([]byte("hush")), "long": seal.Redact([]byte("hush-hush"))}, hidden: []string{"own"}}
	if got := o.Redacted("args [hush-hush hush own] are immutable"); got != "args [*** *** ***] are immutable" {
		t.Error(got)
	}
	if got := (*Order)(nil).Redacted("hush"); got != "hush" {
		t.Error(got)
	}
}
