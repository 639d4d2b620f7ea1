package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// gate lets a test look at what a broker is asked for.
type gate struct {
	broker http.Handler

	mu sync.Mutex
	// there are the instances and bindings that exist by the broker's answers.
	there map[string]bool
	// deleting are the polls of deletions that the broker carries out later.
	deleting map[string]*http.Request
	// bodies are the last ones by method, hidden is the name of a plan that the catalog does not show.
	bodies map[string][]byte
	hidden string
	// instead, if set, is called with each request that was carried out. If it returns true, it has answered; if
	// it panics, nobody hears an answer.
	instead func(w http.ResponseWriter, r *http.Request) bool
}

func newGate(broker http.Handler) *gate {
	return &gate{broker: broker, there: map[string]bool{}, deleting: map[string]*http.Request{}, bodies: map[string][]byte{}}
}

func (g *gate) body(method string) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bodies[method]
}

func (g *gate) hide(plan string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hidden = plan
}

// withoutHidden returns a catalog without the hidden plan.
func (g *gate) withoutHidden(catalog []byte) []byte {
	var body struct {
		Services []map[string]any `json:"services"`
	}
	if json.Unmarshal(catalog, &body) != nil {
		return catalog
	}
	for _, service := range body.Services {
		service["plans"] = slices.DeleteFunc(service["plans"].([]any), func(plan any) bool { return plan.(map[string]any)["name"] == g.hidden })
	}
	catalog, _ = json.Marshal(body)
	return catalog
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sent, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(sent))
	r.Header.Del("If-None-Match")
	answer := httptest.NewRecorder()
	g.broker.ServeHTTP(answer, r)
	g.mu.Lock()
	if !strings.Contains(r.URL.Path, "service_bindings") {
		g.bodies[r.Method] = sent
	}
	body := answer.Body.Bytes()
	if r.URL.Path == "/v2/catalog" {
		body = g.withoutHidden(body)
	}
	switch key := r.URL.Path; {
	case r.Method == http.MethodPut && answer.Code < 300:
		g.there[key] = true
		delete(g.deleting, key)
	case r.Method == http.MethodDelete && (answer.Code == http.StatusOK || answer.Code == http.StatusGone):
		delete(g.there, key)
	case r.Method == http.MethodDelete && answer.Code == http.StatusAccepted:
		g.deleting[key] = pollOf(r, body)
	case r.Method == http.MethodGet && answer.Code == http.StatusGone:
		delete(g.there, strings.TrimSuffix(key, "/last_operation"))
	}
	instead := g.instead
	g.mu.Unlock()
	if instead != nil && instead(w, r) {
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body)
}

// pollOf returns the poll of a deletion that the broker has accepted.
func pollOf(deletion *http.Request, accepted []byte) *http.Request {
	var said struct {
		Operation string `json:"operation"`
	}
	_ = json.Unmarshal(accepted, &said)
	poll := httptest.NewRequest(http.MethodGet, deletion.URL.Path+"/last_operation?operation="+url.QueryEscape(said.Operation), nil)
	poll.Header = deletion.Header.Clone()
	return poll
}

// left returns what the broker has. It asks the broker for deletions that nobody may have polled to their end.
func (g *gate) left() (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, poll := range g.deleting {
		answer := httptest.NewRecorder()
		if g.broker.ServeHTTP(answer, poll); answer.Code == http.StatusGone {
			delete(g.there, key)
			delete(g.deleting, key)
		}
	}
	for key := range g.there {
		keys = append(keys, key)
	}
	return keys
}
