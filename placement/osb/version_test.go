package osb

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/placement/delivery"
)

// TestAVersionThatHasChanged: an order for a version that the broker's plan no longer has is sent again with the present
// version, once the decision has it.
func TestAVersionThatHasChanged(t *testing.T) {
	w := newWorld(t)
	w.decide("small", `{"cores": 1}`)
	upstream, said := w.instance.Status.Decision.Placements[0].Upstream, delivery.Said{}
	upstream.MaintenanceVersion = "1.1.0"
	of := delivery.Delivery{Instance: w.instance, Placement: w.instance.Status.Decision.Placements[0], State: &w.instance.Spec.Desired, Said: &said}
	pending := (*delivery.PendingError)(nil)
	if err := w.driver.Deliver(t.Context(), of); !errors.As(err, &pending) || pending.Applied != "" || said.MaintenanceVersion == nil || *said.MaintenanceVersion != "1.2.0" {
		t.Fatalf("for the former version: %v, it says %+v", err, said)
	}
	upstream.MaintenanceVersion = *said.MaintenanceVersion
	if err := w.deliver(); err != nil || w.at() == "" {
		t.Errorf("for the present version: %v", err)
	}
}

// TestAVersionThatIsRefused: a broker that refuses the version of its own catalog refuses the order.
func TestAVersionThatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.front = func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method == http.MethodPut {
			out.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = out.Write([]byte(`{"error": "MaintenanceInfoConflict"}`))
		}
		return r.Method == http.MethodPut
	}
	w.decide("small", `{"cores": 1}`)
	refused := (*delivery.RefusedError)(nil)
	if err := w.deliver(); !errors.As(err, &refused) || !strings.Contains(err.Error(), "MaintenanceInfoConflict") {
		t.Errorf("it says %v", err)
	}
}
