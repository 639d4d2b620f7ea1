package osb

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/placement/delivery"
)

// TestAfterAFailedUpdate: the broker says whether the update may be repeated, and whether the instance still works. If it
// says nothing, both hold; only an update that it refuses is not repeated.
func TestAfterAFailedUpdate(t *testing.T) {
	for name, row := range map[string]struct {
		method, path         string
		status               int
		body                 string
		repeatable, unusable bool
	}{
		"fails":                      {"PATCH", "", 500, `{}`, true, false},
		"fails, and breaks it":       {"PATCH", "", 500, `{"update_repeatable": false, "instance_usable": false}`, false, true},
		"refuses":                    {"PATCH", "", 400, `{}`, false, false},
		"refuses for now":            {"PATCH", "", 400, `{"update_repeatable": true, "instance_usable": true}`, true, false},
		"fails later":                {"GET", "last_operation", 200, `{"state": "failed"}`, true, false},
		"fails later, and breaks it": {"GET", "last_operation", 200, `{"state": "failed", "update_repeatable": false, "instance_usable": false}`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.updates(t)
			w.front = func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				return r.Method == row.method && strings.HasSuffix(r.URL.Path, row.path) && answers(out, row.status, row.body)
			}
			refused := (*delivery.RefusedError)(nil)
			if err := w.deliver(); !errors.As(err, &refused) || refused.Repeatable != row.repeatable || refused.Unusable != row.unusable {
				t.Errorf("%v: %+v", err, refused)
			}
		})
	}
}

// TestUndoingIsRefused: the driver says whether the broker has carried out the update that undoes one that has failed.
func TestUndoingIsRefused(t *testing.T) {
	for name, refuses := range map[string]bool{"it is carried out": false, "it is refused": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.updates(t)
			w.front = func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				return refuses && r.Method == http.MethodPatch && answers(out, http.StatusBadRequest, `{}`)
			}
			if err := w.restore(); err != nil || w.said.NotUndone != refuses {
				t.Errorf("%v, and the driver says that it is not undone: %t, want %t", err, w.said.NotUndone, refuses)
			}
		})
	}
}

// updates delivers an instance, and then decides on an update of it.
func (w *world) updates(t *testing.T) {
	t.Helper()
	w.decide("small", `{"cores": 1}`)
	if err := w.deliver(); err != nil {
		t.Fatal(err)
	}
	w.delivered()
	w.decide("large", `{"cores": 2}`)
}

// answers answers a request instead of the broker.
func answers(out http.ResponseWriter, status int, body string) bool {
	out.WriteHeader(status)
	_, _ = out.Write([]byte(body))
	return true
}
