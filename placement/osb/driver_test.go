package osb

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestLife: an instance is ordered with the parameters of the candidate, changed, and deleted; an update that
// fails is undone.
func TestLife(t *testing.T) {
	w := newWorld(t)
	var sent []string
	w.front = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method != http.MethodGet {
			sent = append(sent, r.Method)
		}
		return false
	}
	w.decide("small", `{"cores": 1}`)
	if err := w.deliver(); err != nil {
		t.Fatal(err)
	}
	w.delivered()
	if err := w.deliver(); err != nil || w.at() == "" {
		t.Fatalf("a delivered instance: %v", err)
	}
	w.decide("large", `{"cores": 2}`)
	if err := w.deliver(); err != nil {
		t.Fatal(err)
	}
	w.delivered()
	w.decide("large", `{"cores": 0.5}`) // the broker's schema has whole numbers only
	if err := w.deliver(); err != nil {
		t.Logf("refused: %v", err)
	}
	if err := w.restore(); err != nil {
		t.Fatal(err)
	}
	w.instance.Status.Decision = &w.instance.Status.Delivered.Decision
	if err := w.remove(); err != nil || w.at() != "" {
		t.Fatalf("it is not deleted: %v", err)
	}
	if err := w.remove(); err != nil {
		t.Errorf("what is gone is deleted: %v", err)
	}
	for i := 1; i < len(sent); i++ {
		if sent[i] == http.MethodPut {
			t.Errorf("the instance is ordered again: %v", sent)
		}
	}
}

// TestKilledAtAnyWrite: a process that is killed before or after any request that changes something, and that
// remembers nothing afterwards, ends with one instance, and then with none.
func TestKilledAtAnyWrite(t *testing.T) {
	for at := 0; ; at++ {
		for _, answered := range []bool{false, true} {
			w := newWorld(t)
			writes, killed := 0, false
			w.front = func(out http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method == http.MethodGet {
					return false
				}
				if writes++; writes != at+1 {
					return false
				}
				if killed = true; answered {
					broker.ServeHTTP(httptest.NewRecorder(), r)
				}
				panic(http.ErrAbortHandler) // nobody hears the answer
			}
			w.decide("small", `{"cores": 1}`)
			if err := w.deliver(); err != nil {
				t.Fatal(err)
			}
			w.delivered()
			w.decide("large", `{"cores": 2}`)
			if err := w.deliver(); err != nil {
				t.Fatal(err)
			}
			w.delivered()
			if w.at() == "" {
				t.Error("there is no instance")
			}
			if err := w.remove(); err != nil || w.at() != "" {
				t.Errorf("write %d, answered %t: an orphan is left: %v", at, answered, err)
			}
			if !killed {
				if at < 3 {
					t.Errorf("only %d writes", at)
				}
				return
			}
		}
	}
}

// TestDefects: what a broker does wrong is named, and leaves no orphan there.
func TestDefects(t *testing.T) {
	reply := func(status int, body string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(out http.ResponseWriter, r *http.Request, broker http.Handler) {
			broker.ServeHTTP(httptest.NewRecorder(), r) // it does what it is asked for, and says something else
			out.WriteHeader(status)
			_, _ = out.Write([]byte(body))
		}
	}
	for name, row := range map[string]struct {
		method, path string
		answer       func(http.ResponseWriter, *http.Request, http.Handler)
		says         string // of the refusal; "" if it recovers
		consumer     string
	}{
		"fails":                 {"PUT", "", reply(500, `{"description": "no disk"}`), "broker eu: provision: 500 Internal Server Error: no disk", ""},
		"no JSON":               {"PUT", "", reply(201, `<html>`), "201 Created, with a body that is not OSB", ""},
		"a long operation":      {"PUT", "", reply(202, `{"operation": "`+strings.Repeat("x", 10_001)+`"}`), "longer than 10000 bytes", ""},
		"an odd success":        {"PUT", "", reply(203, `{}`), "203 Non-Authoritative", ""},
		"refuses":               {"PUT", "", reply(400, `{"description": "size: too big"}`), "400 Bad Request: size: too big", "the provider refuses it: size: too big"},
		"cannot process":        {"PUT", "", reply(422, `{"error": "InvalidParameters"}`), "422 Unprocessable Entity InvalidParameters", "the provider refuses it"},
		"wants an application":  {"PUT", "", reply(422, `{"error": "RequiresApp"}`), "422 Unprocessable Entity RequiresApp", "the provider refuses it"},
		"exists differently":    {"PUT", "", reply(409, `{}`), "409 Conflict", "the provider refuses it"},
		"redirects":             {"PUT", "", reply(302, ``), "302 Found", ""},
		"another state":         {"GET", "last_operation", reply(200, `{"state": "done"}`), "", ""},
		"fails later":           {"GET", "last_operation", reply(200, `{"state": "failed", "description": "no licence"}`), "broker eu: no licence", "the provider could not carry it out: no licence"},
		"gone while it is made": {"GET", "last_operation", reply(410, `{}`), "does not know the instance any more", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			times := 0
			w.front = func(out http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method != row.method || !strings.HasSuffix(r.URL.Path, row.path) {
					return false
				}
				if times++; times > 3 && row.says == "" {
					return false
				}
				row.answer(out, r, broker)
				return true
			}
			w.decide("small", `{"cores": 1}`)
			err := w.deliver()
			refused := (*delivery.RefusedError)(nil)
			switch {
			case row.says == "" && err == nil:
			case !errors.As(err, &refused), !strings.Contains(err.Error(), row.says), refused.Consumer != row.consumer, refused.OfParameters != (name == "refuses" || name == "cannot process"):
				t.Errorf("it says %v (to the consumer: %+v), want %q (%q)", err, refused, row.says, row.consumer)
			}
			w.front = nil
			if err := w.remove(); err != nil || w.at() != "" {
				t.Errorf("an orphan is left: %v", err)
			}
		})
	}
}

// TestWhoseError: without parameters of the consumer, a broker's 400 is not the consumer's; an order that cannot be
// made of the parameters is not the broker's, who is not asked.
func TestWhoseError(t *testing.T) {
	for parameters, row := range map[string]struct {
		template     string
		asked        int
		ofParameters bool
	}{
		``: {`{"cores": 1}`, 1, false}, `{}`: {`{"cores": 1}`, 1, false}, `{"cores": 1}`: {"", 1, true}, `{"size": 1}`: {`{"cores": "${parameters.cores}"}`, 0, true},
	} {
		w, asked := newWorld(t), 0
		w.front = func(out http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			asked++
			out.WriteHeader(http.StatusBadRequest)
			return true
		}
		w.decide("small", parameters)
		if row.template != "" {
			w.instance.Status.Decision.Placements[0].Upstream.Parameters = &runtime.RawExtension{Raw: []byte(row.template)}
		}
		refused := (*delivery.RefusedError)(nil)
		if err := w.deliver(); !errors.As(err, &refused) || refused.OfParameters != row.ofParameters || asked != row.asked {
			t.Errorf("%s: %v, of parameters %t after %d requests", parameters, err, refused != nil && refused.OfParameters, asked)
		}
	}
}

// TestPauses: a broker is polled when it asks for that, and an operation ends when its plan says so.
func TestPauses(t *testing.T) {
	w := newWorld(t)
	w.decide("small", `{"cores": 1}`)
	of := delivery.Delivery{Instance: w.instance, Placement: w.instance.Status.Decision.Placements[0], State: &w.instance.Spec.Desired}
	w.front = func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		out.Header().Set("Retry-After", "40")
		if r.Method != http.MethodGet {
			out.WriteHeader(http.StatusAccepted)
		}
		_, _ = out.Write([]byte(`{"operation": "an operation", "state": "in progress", "description": "half way"}`))
		return true
	}
	pending := (*delivery.PendingError)(nil)
	if err := w.driver.Deliver(t.Context(), of); !errors.As(err, &pending) || pending.NotBefore != 40*time.Second {
		t.Fatalf("after the order: %v", err)
	}
	of.Applied = pending.Applied
	if err := w.driver.Deliver(t.Context(), of); !errors.As(err, &pending) || pending.NotBefore != 40*time.Second || pending.Detail != "half way" {
		t.Fatalf("after a poll: %v", err)
	}
	w.instance.Status.Operation.StartedAt = metav1.NewTime(time.Now().Add(-11 * time.Minute))
	refused := (*delivery.RefusedError)(nil)
	if err := w.driver.Deliver(t.Context(), of); !errors.As(err, &refused) || !strings.Contains(err.Error(), "longer than the 10m0s") {
		t.Errorf("after the maximum polling duration: %v", err)
	}

	// An update that took too long is undone by another one, which is polled for as long as it takes.
	w.delivered()
	w.decide("large", `{"cores": 2}`)
	w.instance.Status.Operation.StartedAt = metav1.NewTime(time.Now().Add(-11 * time.Minute))
	w.instance.Status.Operation.Failing = &v1alpha1.OperationFailure{Description: "it took too long"}
	of.Placement, of.State, of.Applied = w.instance.Status.Delivered.Decision.Placements[0], &w.instance.Status.Delivered.State, ""
	for _, request := range []string{"an update", "a poll"} {
		if err := w.driver.Deliver(t.Context(), of); !errors.As(err, &pending) || pending.Applied == "" {
			t.Errorf("after %s that undoes: %v", request, err)
		}
		of.Applied = pending.Applied
	}
}

// TestGoneAtTheBroker: an instance that a broker has lost is named, and not ordered again.
func TestGoneAtTheBroker(t *testing.T) {
	w := newWorld(t)
	w.decide("small", `{"cores": 1}`)
	w.delivered()
	of := delivery.Delivery{Instance: w.instance, Placement: w.instance.Status.Decision.Placements[0], State: &w.instance.Spec.Desired}
	for _, err := range []error{w.driver.Observe(t.Context(), of), w.driver.Deliver(t.Context(), of)} {
		if err == nil || !strings.Contains(err.Error(), "broker eu: it does not know instance") {
			t.Errorf("it says %v", err)
		}
	}
	if len(w.ids) > 0 {
		t.Error("it was ordered again")
	}
}

// TestHiddenParameters: what a plan hides is sealed on the hub, the broker gets it, and no message has it though
// the broker repeats it.
func TestHiddenParameters(t *testing.T) {
	w := newWorld(t)
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	w.driver.Keys = keys
	stored, err := workload.ParametersOf(w.instance, keys).Sealed([]string{"password"}, []byte(`{"password": "hunter2-hunter2", "cores": 1}`))
	if err != nil || strings.Contains(string(stored), "hunter2") {
		t.Fatalf("it is stored as %s, %v", stored, err)
	}
	w.decide("small", string(stored))
	w.instance.Status.Decision.Placements[0].Upstream.Parameters = &runtime.RawExtension{Raw: []byte(`{"secret": "${parameters.password}"}`)}
	var got string
	w.front = func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		out.WriteHeader(http.StatusBadRequest)
		_, _ = out.Write([]byte(`{"description": "hunter2-hunter2 is too short"}`))
		return true
	}
	refused := (*delivery.RefusedError)(nil)
	if err := w.deliver(); !errors.As(err, &refused) || strings.Contains(err.Error()+refused.Consumer, "hunter2") || !strings.Contains(refused.Consumer, "is too short") {
		t.Errorf("it says %v (to the consumer: %+v)", err, refused)
	}
	if !strings.Contains(got, `"secret":"hunter2-hunter2"`) {
		t.Errorf("the broker gets %s", got)
	}
}

// TestHiddenParametersThatStay: an update does not repeat a hidden parameter of which the broker's schema of an update does
// not know.
func TestHiddenParametersThatStay(t *testing.T) {
	const sized, keyed = `{"properties": {"size": {}}, "additionalProperties": false}`, `{"properties": {"size": {}, "key": {}}, "required": ["key"], "additionalProperties": false}`
	for name, row := range map[string]struct{ schema, update, sent string }{
		"that it does not take":         {sized, `{"key": "hunter2", "size": 2}`, `{"size":2}`},
		"that it does not take, alone":  {sized, `{"key": "hunter2"}`, `{}`},
		"beside a number that is large": {sized, `{"key": "hunter2", "size": 9007199254740993}`, `{"size":9007199254740993}`},
		"that it requires":              {keyed, `{"key": "hunter2", "size": 2}`, `{"key":"hunter2","size":2}`},
		"without a schema":              {`null`, `{"key": "hunter2", "size": 2}`, `{"key":"hunter2","size":2}`},
		"that the consumer changes":     {sized, `{"key": "hunter3", "size": 2}`, `{"key":"hunter3","size":2}`},
		"of which nothing is left over": {sized, `{}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
			if err != nil {
				t.Fatal(err)
			}
			w.driver.Keys = keys
			decide := func(parameters string) {
				stored, err := workload.ParametersOf(w.instance, keys).Sealed([]string{"key"}, []byte(parameters))
				if err != nil {
					t.Fatal(err)
				}
				w.decide("small", string(stored))
				w.instance.Status.Decision.Placements[0].Upstream.Parameters = nil
			}
			decide(`{"key": "hunter2", "size": 1}`)
			w.delivered()
			decide(row.update)
			var sent struct {
				Parameters json.RawMessage `json:"parameters"`
			}
			w.front = func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				answer := `{"services": [{"id": "` + suitetest.ServiceID + `", "name": "s", "plans": [{"id": "plan-small", "name": "small", "schemas": {"service_instance": {"update": {"parameters": ` + row.schema + `}}}}]}]}`
				if r.Method == http.MethodPatch {
					answer = `{}`
					_ = json.NewDecoder(r.Body).Decode(&sent)
				}
				_, _ = out.Write([]byte(answer))
				return true
			}
			if err := w.deliver(); err != nil || string(sent.Parameters) != row.sent {
				t.Errorf("the broker gets %s, want %s; %v", sent.Parameters, row.sent, err)
			}
		})
	}
}

// TestHiddenParametersAreNeverRepeated: whatever the broker is asked, and whichever of the values that the instance has or
// is to have it repeats.
func TestHiddenParametersAreNeverRepeated(t *testing.T) {
	const says = `{"state": "failed", "description": "hunter2 and hunter2-hunter2 are too short"}`
	answers := func(method, in string, code int, body string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
		return func(out http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if r.Method == method && strings.Contains(r.URL.Path, in) {
				out.WriteHeader(code)
				_, _ = out.Write([]byte(body))
				return true
			}
			return false
		}
	}
	remove := func(applied string) func(*world, delivery.Delivery) error {
		return func(w *world, of delivery.Delivery) error {
			of.State, of.Applied = nil, applied
			return w.driver.Remove(t.Context(), of)
		}
	}
	for name, row := range map[string]struct {
		front func(http.ResponseWriter, *http.Request, http.Handler) bool
		call  func(*world, delivery.Delivery) error
		text  string
	}{
		"a check":            {answers("GET", "", 500, says), func(w *world, of delivery.Delivery) error { return w.driver.Observe(t.Context(), of) }, "*** and *** are too short"},
		"an update":          {answers("PATCH", "", 400, says), func(w *world, of delivery.Delivery) error { return w.driver.Deliver(t.Context(), of) }, "*** and *** are too short"},
		"a deprovision":      {answers("DELETE", "", 500, says), remove(""), "*** and *** are too short"},
		"one that waits":     {answers("DELETE", "", 422, `{"error": "ConcurrencyError", "description": "hunter2-hunter2 is being set"}`), remove(""), "*** is being set"},
		"one that failed":    {answers("GET", "last_operation", 200, says), remove(note(removes, "o")), "*** and *** are too short"},
		"one in progress":    {answers("GET", "last_operation", 200, `{"state": "in progress", "description": "hunter2-hunter2 is removed"}`), remove(note(removes, "o")), "*** is removed"},
		"one nobody knows":   {answers("GET", "last_operation", 400, says), remove(note(removes, "o")), "*** and *** are too short"},
		"one of an odd kind": {answers("GET", "last_operation", 200, `{"state": "hunter2-hunter2"}`), remove(note(removes, "o")), `"***" is none of`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
			if err != nil {
				t.Fatal(err)
			}
			w.driver.Keys = keys
			for _, password := range []string{"hunter2", "hunter2-hunter2"} {
				stored, err := workload.ParametersOf(w.instance, keys).Sealed([]string{"password"}, []byte(`{"password": "`+password+`", "cores": 1}`))
				if err != nil {
					t.Fatal(err)
				}
				w.decide("small", string(stored))
				w.instance.Status.Decision.Placements[0].Upstream.Parameters = &runtime.RawExtension{Raw: []byte(`{"secret": "${parameters.password}"}`)}
				if password == "hunter2" {
					w.delivered()
				}
			}
			w.front = row.front
			err = row.call(w, delivery.Delivery{Instance: w.instance, Placement: w.instance.Status.Decision.Placements[0], State: &w.instance.Spec.Desired})
			if pending := (*delivery.PendingError)(nil); errors.As(err, &pending) {
				err = errors.New(pending.Detail)
			}
			if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), row.text) {
				t.Errorf("it says %v, want %s", err, row.text)
			}
		})
	}
}
