package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

// stock is a hub with credentials, and a server of it.
type stock struct {
	*testing.T
	*server
}

// stored returns a credential of the hub.
func stored(credential string, who v1alpha1.Presenter) *v1alpha1.SelfDescription {
	return &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(credential))},
		Spec:       v1alpha1.SelfDescriptionSpec{Credential: credential, Presenter: who},
	}
}

func newStock(t *testing.T, has ...client.Object) *stock {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &stock{t, newServer(Options{
		Hub:       fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.SelfDescription{}, trust.FieldSigned, trust.Signed).WithObjects(has...).Build(),
		Namespace: "ns",
		Clock:     clocktesting.NewFakePassiveClock(time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)),
	})}
}

// taken presents credentials, and returns the refusal, or nil.
func (s *stock) taken(who v1alpha1.Presenter, credentials ...string) *Error {
	s.Helper()
	err := s.take(s.Context(), who, credentials)
	refusal := (*Error)(nil)
	if err != nil && !errors.As(err, &refusal) {
		s.Fatal(err)
	}
	return refusal
}

// count returns the number of credentials on the hub.
func (s *stock) count() int {
	s.Helper()
	var list v1alpha1.SelfDescriptionList
	if err := s.Hub.List(s.Context(), &list); err != nil {
		s.Fatal(err)
	}
	return len(list.Items)
}

// refuses checks that credentials are refused because of a limit, and nothing changes.
func (s *stock) refuses(who v1alpha1.Presenter, says []string, credentials ...string) {
	s.Helper()
	before := s.count()
	refusal := s.taken(who, credentials...)
	if refusal == nil || refusal.Status != http.StatusForbidden {
		s.Fatalf("the answer is %+v", refusal)
	}
	for _, part := range says {
		if !strings.Contains(refusal.Description, part) {
			s.Errorf("want %q in %q", part, refusal.Description)
		}
	}
	if after := s.count(); after != before {
		s.Errorf("%d credentials were stored", after-before)
	}
}

func TestAPresenterHasAtMostSoManyCredentials(t *testing.T) {
	eins, zwei, consumer := v1alpha1.Presenter{Provider: "eins"}, v1alpha1.Presenter{Provider: "zwei"}, v1alpha1.Presenter{Consumer: "eins"}
	var has []client.Object
	for i := range maxStored - 2 {
		sd := stored(fmt.Sprint("known ", i), eins)
		if i > 0 {
			sd.Status.ValidUntil = &metav1.Time{Time: time.Date(2026, 12, 1+i%1000, 0, 0, 0, 0, time.UTC)}
		}
		has = append(has, sd)
	}
	imported, measured := stored("imported", eins), stored("measured", eins)
	imported.Spec.Legacy, measured.Labels = true, map[string]string{v1alpha1.LabelCluster: "fra"}
	s := newStock(t, append(has, imported, measured, stored("another's", zwei))...)

	s.refuses(eins, []string{"provider eins would have 5001 credentials", "at most 5000 and 33554432", "removed at 2027-01-30T00:00:00Z"}, "a", "b", "c")
	s.refuses(eins, []string{"5001 credentials"}, "a", "b", "another's") // which may become its own
	if refusal := s.taken(eins, "a", "a", "b", "known 1"); refusal != nil {
		t.Fatalf("two that are new, beside one that the hub has: %s", refusal)
	}
	s.refuses(eins, []string{"5001 credentials"}, "c", "known 1")
	if refusal := s.taken(eins, "a", "b", "known 1"); refusal != nil {
		t.Errorf("presented again: %s", refusal)
	}
	for _, other := range []v1alpha1.Presenter{zwei, consumer} {
		if refusal := s.taken(other, "of "+other.String()); refusal != nil {
			t.Errorf("of %s: %s", other, refusal)
		}
	}
}

func TestThePresentersCredentialsAreLimitedByTheirBytes(t *testing.T) {
	eins := v1alpha1.Presenter{Consumer: "eins"}
	long := func(i int) string {
		return fmt.Sprintf("%d", i) + strings.Repeat("x", selfdescription.MaxCredential-len(fmt.Sprint(i)))
	}
	var has []client.Object
	for i := range maxStoredBytes/selfdescription.MaxCredential - 1 {
		has = append(has, stored(long(i), eins))
	}
	s := newStock(t, has...)
	s.refuses(eins, []string{"consumer eins would have 129 credentials of 33554433 bytes together", "none of them has an end"}, long(-1), "x")
	if refusal := s.taken(eins, long(-1)); refusal != nil {
		t.Errorf("as many bytes as are allowed: %s", refusal)
	}
	s.refuses(eins, []string{"33554433"}, "x")
}
