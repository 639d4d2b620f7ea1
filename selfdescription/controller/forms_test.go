package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription/sdtest"
)

// TestAFormOfAWithdrawnCredentialIsRevoked: also one that was stored, and verified, before the withdrawal.
func TestAFormOfAWithdrawnCredentialIsRevoked(t *testing.T) {
	b := newDesk(t)
	one := b.credentials(b.draft("fra"))[0]
	other := presented(sdtest.Negated(t, one.Spec.Credential))
	b.store([]*v1alpha1.SelfDescription{one, other})
	if other.Name == one.Name || other.Status.State != v1alpha1.CredentialVerified {
		t.Fatalf("%s is %s: %v", other.Name, other.Status.State, other.Status.Report)
	}
	one.Spec.Revoked, one.Spec.RevokedBecause = true, "the audit failed"
	if err := b.hub.Update(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	requests := (&verification{Options: b.Options, hub: b.hub}).otherForms(t.Context(), one)
	if !slices.Contains(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(other)}) {
		t.Errorf("the other form is not verified again: %v", requests)
	}
	b.look(other, time.Hour, nil)
	ready := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionReady)
	if other.Status.State != v1alpha1.CredentialRevoked || other.Status.VerifiedAt != nil || !strings.Contains(ready.Message, "the audit failed") {
		t.Errorf("it is %s, verified at %s: %s", other.Status.State, other.Status.VerifiedAt, ready.Message)
	}
}
