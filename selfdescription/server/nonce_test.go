package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// TestUsedNoncesAreKeptWhileTheyCouldServe: used nonces are kept as long as they are valid, and
// only as many as fit.
func TestUsedNoncesAreKeptWhileTheyCouldServe(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "eins"}}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(p).WithStatusSubresource(p).Build()
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 22, 0, 0, 0, 500, time.UTC))
	s := &server{Options: Options{Hub: hub, Namespace: "ns", Clock: clock}}
	use := func(id string, until time.Time) int {
		t.Helper()
		err := s.use(context.Background(), v1alpha1.Presenter{Provider: "eins"}, nonce{id, until})
		if answer := (*Error)(nil); errors.As(err, &answer) {
			return answer.Status
		} else if err != nil {
			t.Fatal(err)
		}
		return 0
	}
	end := clock.Now().Add(selfdescription.MaxPresentationLifetime)
	for i := range v1alpha1.MaxUsedNonces {
		if status := use(fmt.Sprint(i), end); status != 0 {
			t.Fatalf("use %d is answered %d", i+1, status)
		}
	}
	if status := use("one too many", end); status != http.StatusTooManyRequests {
		t.Errorf("one more than fit is answered %d", status)
	}
	clock.SetTime(end.Add(-time.Nanosecond))
	if status := use("0", end); status != http.StatusUnprocessableEntity {
		t.Errorf("used again just before it ends, it is answered %d", status)
	}
	clock.SetTime(end.Add(time.Second))
	if status := use("new", end.Add(time.Minute)); status != 0 {
		t.Errorf("once the others have ended, it is answered %d", status)
	}
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || len(p.Status.UsedNonces) != 1 {
		t.Errorf("%d nonces are kept: %v", len(p.Status.UsedNonces), err)
	}
}
