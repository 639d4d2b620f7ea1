package probe

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestAProbeIsMeasured(t *testing.T) {
	w := newWorld(t)
	w.leads()
	end := w.probe("")
	if ping := w.next("ping", false); ping.cluster != "fra" || ping.took <= 0 {
		t.Errorf("a ping is %+v", ping)
	}
	if transfer := w.next("transfer", false); transfer.cluster != "fra" || transfer.took <= 0 {
		t.Errorf("a transfer is %+v", transfer)
	}
	end()
	if away := w.next("ping", true); !errors.Is(away.err, errAway) {
		t.Errorf("without the probe, a ping ends with %v", away.err)
	}
	w.probe("")
	w.next("ping", false)
	w.changes.Delete(w.fra)
	w.until("it is not measured any more", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return len(w.server.probes) == 0
	})
}

// TestWhetherAProbeIsConnected is known while a replica leads.
func TestWhetherAProbeIsConnected(t *testing.T) {
	w := newWorld(t)
	w.is("fra", metav1.ConditionUnknown, "")
	w.leads()
	w.is("other", "", "")
	w.changes.Add(w.fra)
	w.is("fra", metav1.ConditionUnknown, "")
	w.dial()
	w.is("fra", metav1.ConditionFalse, "no answer in time")
	end := w.probe("")
	w.is("fra", metav1.ConditionTrue, "is connected")
	w.next("ping", false)
	end()
	w.is("fra", metav1.ConditionFalse, "has ended")
	w.changes.Delete(w.fra)
	w.is("fra", "", "")
	w.end()
	w.is("fra", metav1.ConditionUnknown, "")
}

// TestTheStartOfAPod is timed from the change of the instance until the pod with the new start has answered. The one before
// does not come back then.
func TestTheStartOfAPod(t *testing.T) {
	w := newWorld(t)
	w.leads()
	first := w.probe("")
	w.next("ping", false)
	asked := w.startsAnew("first")
	w.next("ping", false) // the pod that is there goes on
	pod := w.probe("first")
	if start := w.next("start", false); start.cluster != "fra" || start.took <= 0 || start.took > time.Since(asked) {
		t.Errorf("a start is %+v", start)
	}
	_, _, err := w.dial().Read(t.Context())
	if said := (websocket.CloseError{}); !errors.As(err, &said) || said.Reason != "a newer pod of this probe is connected" {
		t.Errorf("the pod before is answered %v", err)
	}
	first()
	w.startsAnew("second")
	w.startsAnew("third") // the second did not come
	pod()
	w.probe("third")
	w.next("start", false)
	for _, r := range w.left() {
		if r.kind == "start" {
			t.Errorf("there is another start: %+v", r)
		}
	}
}

// TestAPodThatDoesNotStart counts as long as it was waited for. One that was asked for before the lead is not counted.
func TestAPodThatDoesNotStart(t *testing.T) {
	w := newWorld(t)
	again := w.fra.DeepCopy()
	again.Spec.Desired.Parameters = &runtime.RawExtension{Raw: []byte(`{"start":"again"}`)}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.server.leading, w.server.Every = ctx, 10*time.Second
		count := func(after time.Duration) (n int) {
			for _, r := range w.within(after) {
				if r.kind == "start" {
					if n++; r.took != StartPatience {
						t.Errorf("a start is %+v", r)
					}
				}
			}
			return n
		}
		w.server.see(nil, w.fra)
		if n := count(time.Hour); n != 0 {
			t.Errorf("%d starts are counted that nobody asked for", n)
		}
		w.server.see(w.fra, again)
		if n := count(StartPatience - time.Second); n != 0 {
			t.Errorf("%d starts are counted before their time", n)
		}
		if n := count(time.Hour); n != 1 {
			t.Errorf("%d starts are counted, want 1", n)
		}
		w.server.forget(w.fra.Name)
		w.server.see(nil, again)
		w.server.see(again, again)
		if n := count(time.Hour); n != 0 {
			t.Errorf("%d starts are counted of before the lead", n)
		}
		cancel()
		w.server.running.Wait()
	})
}

func TestTheNewerConnectionCounts(t *testing.T) {
	w := newWorld(t)
	w.leads()
	older := w.dial()
	_, _, err := older.Read(t.Context())
	must(t, err)
	w.probe("")
	err = untilEnd(t, older)
	if said := (websocket.CloseError{}); !errors.As(err, &said) || said.Code != websocket.StatusPolicyViolation || said.Reason != "another connection of this probe came" {
		t.Errorf("the older connection ends with %v", err)
	}
	w.next("ping", true) // the older one did not answer
	w.next("ping", false)
}

func TestTheEndOfTheLead(t *testing.T) {
	w := newWorld(t)
	w.leads()
	conn := w.dial()
	closed := make(chan error, 1)
	go func() {
		for {
			_, message, err := conn.Read(w.Context())
			if err != nil {
				closed <- err
				return
			}
			digest := sha256.Sum256(message)
			_ = conn.Write(w.Context(), websocket.MessageBinary, digest[:])
		}
	}()
	w.next("ping", false)
	w.end()
	if err := <-closed; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the connection ends with %v", err)
	}
	answer, _ := w.ask(http.MethodGet, nameOf("fra"), "Bearer "+token)
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a replica that does not lead any more answers %s", answer.Status)
	}
}

// TestAnswersThatDoNotCount end the connection.
func TestAnswersThatDoNotCount(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(question []byte) []byte
		twice  bool
		code   websocket.StatusCode
		reason string
		fails  bool
	}{
		"another digest":  {func([]byte) []byte { return make([]byte, sha256.Size) }, false, websocket.StatusPolicyViolation, "the answer is not the SHA-256 of what was sent", true},
		"the question":    {func(q []byte) []byte { return q }, false, websocket.StatusPolicyViolation, "the answer is not the SHA-256 of what was sent", true},
		"too much":        {func([]byte) []byte { return make([]byte, sha256.Size+1) }, false, websocket.StatusMessageTooBig, "read limited at 33 bytes", true},
		"two for one":     {func(q []byte) []byte { d := sha256.Sum256(q); return d[:] }, true, websocket.StatusPolicyViolation, "", false}, // the next question may have been asked
		"nothing in time": {nil, false, websocket.StatusPolicyViolation, "no answer in time", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.Every = 500 * time.Millisecond
			w.leads()
			conn := w.dial()
			_, question, err := conn.Read(t.Context())
			must(t, err)
			if row.answer != nil {
				must(t, conn.Write(t.Context(), websocket.MessageBinary, row.answer(question)))
			}
			if row.twice {
				must(t, conn.Write(t.Context(), websocket.MessageBinary, row.answer(question)))
			}
			err = untilEnd(t, conn)
			if said := (websocket.CloseError{}); !errors.As(err, &said) || said.Code != row.code || !strings.Contains(said.Reason, row.reason) {
				t.Errorf("it ends with %v", err)
			}
			w.next("ping", row.fails)
		})
	}
}

func TestWhoIsRefused(t *testing.T) {
	w := newWorld(t)
	if answer, body := w.ask(http.MethodGet, nameOf("fra"), "Bearer "+token); answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("a replica that does not lead answers %s, %s", answer.Status, body)
	}
	w.leads()
	for name, row := range map[string]struct {
		method, instance, authorization string
		status                          int
		why                             string
	}{
		"another token":                    {"", "", "Bearer x", http.StatusUnauthorized, "the token of the probe " + nameOf("fra")},
		"no token":                         {"", "", "", http.StatusUnauthorized, "Bearer TOKEN"},
		"another scheme":                   {"", "", "Basic " + token, http.StatusUnauthorized, "Bearer TOKEN"},
		"an instance that is not there":    {"", nameOf("other"), "", http.StatusUnauthorized, nameOf("other") + ", which must be there"},
		"an instance that somebody orders": {"", nameOf("ordered"), "Bearer " + token, http.StatusUnauthorized, ""},
		"an instance that is deleted":      {"", nameOf("deleted"), "Bearer " + token, http.StatusUnauthorized, ""},
		"an instance without a token":      {"", nameOf("bare"), "Bearer ", http.StatusUnauthorized, ""},
		"an instance of other keys":        {"", nameOf("strange"), "Bearer " + token, http.StatusServiceUnavailable, "cannot be checked"},
		"another method":                   {http.MethodPost, "", "Bearer " + token, http.StatusMethodNotAllowed, "want GET"},
		"no name":                          {"", "a/b", "Bearer " + token, http.StatusNotFound, "There is no such URL"},
		"no WebSocket":                     {"", "", "Bearer " + token, http.StatusUpgradeRequired, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			if row.method == "" {
				row.method = http.MethodGet
			}
			if row.instance == "" {
				row.instance = nameOf("fra")
			}
			if answer, body := w.ask(row.method, row.instance, row.authorization); answer.StatusCode != row.status || !strings.Contains(body, row.why) {
				t.Errorf("it is answered %s: %s", answer.Status, body)
			}
		})
	}
	w.T = t
	if n := len(w.server.probes); n > 0 {
		t.Errorf("%d refused probes are measured", n)
	}
	for range wrongBurst {
		w.ask(http.MethodGet, nameOf("fra"), "Bearer x")
	}
	if answer, body := w.ask(http.MethodGet, nameOf("fra"), "Bearer "+token); answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("after many wrong tokens, an address is answered %s: %s", answer.Status, body)
	}
	w.server.Results = nil
	if answer, body := w.ask(http.MethodGet, nameOf("fra"), "Bearer "+token); answer.StatusCode != http.StatusNotFound || !strings.Contains(body, "--vantage") {
		t.Errorf("a broker that measures nothing answers %s: %s", answer.Status, body)
	}
}

// TestAProbeThatDoesNotCome: it counts as away once it was delivered and had the time to come.
func TestAProbeThatDoesNotCome(t *testing.T) {
	w := newWorld(t)
	ordered := w.fra.DeepCopy()
	ordered.Status.Delivered = nil
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.server.leading, w.server.Every = ctx, 10*time.Second
		count := func(after time.Duration) int {
			results := w.within(after)
			for _, r := range results {
				if !errors.Is(r.err, errAway) {
					t.Errorf("a result is %+v", r)
				}
			}
			return len(results)
		}
		w.server.see(nil, ordered)
		if n := count(time.Hour); n != 0 {
			t.Errorf("before it is delivered, it is away %d times", n)
		}
		w.server.see(nil, w.fra)
		if n := count(grace - time.Second); n != 0 {
			t.Errorf("before it had time to come, it is away %d times", n)
		}
		if n := count(time.Minute); n != 6 {
			t.Errorf("in a minute it is away %d times, want 6", n)
		}
		w.fra.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.server.see(nil, w.fra)
		if n := count(time.Hour); n != 0 {
			t.Errorf("while it is deleted, it is away %d times", n)
		}
		cancel()
		w.server.running.Wait()
	})
}

// TestAProbeTriesAgain: as soon as the broker says, or later and later; with the reason in its words.
func TestAProbeTriesAgain(t *testing.T) {
	var calls atomic.Int32
	again := make(chan struct{})
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case 2:
			defer close(again)
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"description": "want the token"}`))
	}))
	t.Cleanup(broker.Close)
	log := newLines()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&Client{Broker: broker.URL + "/", Instance: nameOf("fra"), Token: func() (string, error) { return "x", nil }, Logger: slog.New(slog.NewTextHandler(log, nil))}).Run(ctx)
	}()
	<-again
	broker.Close()
	log.await("connection refused")
	cancel()
	<-ended
	for _, want := range []string{`reason="the broker answers 503 Service Unavailable" wait=1s`, `reason="the broker answers 401 Unauthorized: want the token"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %s:\n%s", want, log.String())
		}
	}
}
