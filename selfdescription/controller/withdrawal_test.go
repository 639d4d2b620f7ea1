package controller_test

import (
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/sdtest"
)

// TestAWithdrawnCredentialIsWithdrawnInBothForms: the holder of a credential by ES256 can negate s in its signature, which
// gives a second one that verifies.
func TestAWithdrawnCredentialIsWithdrawnInBothForms(t *testing.T) {
	w := newWorld(t)
	provider := newPartyOf(t, "provider", "ES256")
	w.provider("eins", provider)
	own := w.sign(provider, draftOf(provider, "DE"))
	// until waits until the server's cache has a credential in a state.
	until := func(credential string, holds func(*v1alpha1.SelfDescription) bool) {
		t.Helper()
		w.eventually("the credential is in the state", func() string {
			sd := &v1alpha1.SelfDescription{}
			name := v1alpha1.SelfDescriptionName(selfdescription.DigestOf(credential))
			if err := w.cached.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, sd); err != nil {
				return err.Error()
			}
			return map[bool]string{false: "it is " + string(sd.Status.State)}[holds(sd)]
		})
	}
	present := func(credentials ...string) {
		if a, status := w.present(provider, "/selfdescriptions", credentials...); status != http.StatusCreated {
			t.Fatalf("presented: status %d: %s", status, a.Description)
		}
	}
	withdraw := func(credential string) {
		revoke := "/selfdescriptions/" + selfdescription.DigestOf(credential).String() + "/revoke"
		if a, status := w.present(provider, revoke, credential); status != http.StatusOK {
			t.Fatalf("withdrawn: status %d: %s", status, a.Description)
		}
	}
	verified := func(sd *v1alpha1.SelfDescription) bool { return sd.Status.State == v1alpha1.CredentialVerified }

	t.Run("presented after the withdrawal", func(t *testing.T) {
		present(own[0])
		until(own[0], verified)
		withdraw(own[0])
		until(own[0], func(sd *v1alpha1.SelfDescription) bool { return sd.Spec.Revoked })
		a, status := w.present(provider, "/selfdescriptions", sdtest.Negated(t, own[0]))
		if status != http.StatusUnprocessableEntity || !strings.Contains(a.Description, "withdrawn here for good") {
			t.Errorf("the other form is answered %d: %s", status, a.Description)
		}
	})
	t.Run("presented before the withdrawal", func(t *testing.T) {
		other := sdtest.Negated(t, own[1])
		present(own[1], other)
		until(own[1], verified)
		until(other, verified)
		withdraw(own[1])
		until(other, func(sd *v1alpha1.SelfDescription) bool { return sd.Status.State == v1alpha1.CredentialRevoked })
	})
}
