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
	"time"
)

// gate lets a test look at what a broker is asked for.
type gate struct {
	broker http.Handler

	mu sync.Mutex
	// there are the instances and bindings that exist by the broker's answers.
	there map[string]bool
	// bodies are the last ones by method, hidden is the name of a plan that the catalog does not show.
	bodies map[string][]byte
	hidden string
	// instead, if set, is called with each request that was carried out. If it returns true, it has answered; if
	// it panics, nobody hears an answer.
	instead func(w http.ResponseWriter, r *http.Request) bool
}

func newGate(broker http.Handler) *gate {
	return &gate{broker: broker, there: map[string]bool{}, bodies: map[string][]byte{}}
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
	case r.Method == http.MethodDelete && (answer.Code == http.StatusOK || answer.Code == http.StatusGone):
		delete(g.there, key)
	case r.Method == http.MethodDelete && answer.Code == http.StatusAccepted:
		go g.awaitDeletion(r, body)
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

// awaitDeletion notes the end of a deletion that the broker carries out later, also if nobody polls it.
func (g *gate) awaitDeletion(of *http.Request, accepted []byte) {
	var said struct {
		Operation string `json:"operation"`
	}
	_ = json.Unmarshal(accepted, &said)
	for range 1000 {
		r := httptest.NewRequest(http.MethodGet, of.URL.Path+"/last_operation?operation="+url.QueryEscape(said.Operation), nil)
		r.Header = of.Header.Clone()
		answer := httptest.NewRecorder()
		g.broker.ServeHTTP(answer, r)
		if answer.Code == http.StatusGone {
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.there, of.URL.Path)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (g *gate) left() (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.there {
		keys = append(keys, key)
	}
	return keys
}
