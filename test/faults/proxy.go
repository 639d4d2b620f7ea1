package faults

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Fault answers a request in the API server's place; pass answers as the server does.
type Fault func(w http.ResponseWriter, r *http.Request, pass http.Handler)

// Faults that the tests go through.
var Faults = map[string]Fault{
	"429":                      status(429, "TooManyRequests"),
	"500":                      text(500, "internal error"),
	"503":                      text(503, "<html>maintenance</html>"),
	"401":                      status(401, "Unauthorized"),
	"a login page's 401":       text(401, "log in"),
	"a firewall's 403":         text(403, "blocked"),
	"reset":                    reset,
	"lost answers":             lose,
	"truncated":                truncate,
	"html":                     text(200, "<html>log in</html>"),
	"a redirect":               redirect,
	"slow":                     slow,
	"404":                      text(404, "default backend - 404"),
	"404 with a Status":        status(404, "NotFound"),
	"an empty object":          text(200, "{}"),
	"an empty list":            text(200, `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`),
	"success without a reason": text(200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`),
}

// Hang answers nothing until the caller gives up.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

func text(code int, body string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		if body[0] == '{' {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func status(code int, reason string) Fault {
	return text(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":%q,"details":{},"code":%d}`, reason, code))
}

func reset(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// lose has the server do what it was asked for, and the caller not learn of it.
func lose(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// truncate breaks the connection in the middle of an answer.
func truncate(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	recorded := httptest.NewRecorder()
	pass.ServeHTTP(recorded, r)
	body := recorded.Body.Bytes()
	w.Header().Set("Content-Type", recorded.Header().Get("Content-Type"))
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(recorded.Code)
	_, _ = w.Write(body[:len(body)/2])
	panic(http.ErrAbortHandler)
}

func redirect(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	if r.URL.Path == "/login" {
		text(200, "<html>log in</html>")(w, r, nil)
		return
	}
	http.Redirect(w, r, "/login", http.StatusFound)
}

func slow(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	select {
	case <-time.After(time.Second):
		pass.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// Rule is a fault and the requests that it happens to.
type Rule struct {
	Fault Fault
	// Of says whether it happens to a request with a body.
	Of func(r *http.Request, body []byte) bool

	hits atomic.Int32
}

// Hits is how often it has happened.
func (r *Rule) Hits() int { return int(r.hits.Load()) }

// Proxy passes requests on to an API server, except those that a rule is for.
type Proxy struct {
	server *httptest.Server
	mu     sync.Mutex
	rules  []*Rule
}

// Start starts a proxy for the length of a test, in front of the API server that config
// reaches. Callers keep their own credentials.
func Start(t testing.TB, config *rest.Config) *Proxy {
	t.Helper()
	transport, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p := &Proxy{}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rule := p.ruleFor(r); rule != nil {
			rule.hits.Add(1)
			rule.Fault(w, r, pass)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

func (p *Proxy) ruleFor(r *http.Request) *Rule {
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	if len(rules) == 0 {
		return nil
	}
	var body []byte
	if r.Method != http.MethodGet {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	for _, rule := range rules {
		if rule.Of(r, body) {
			return rule
		}
	}
	return nil
}

// Break has a rule hold from now on.
func (p *Proxy) Break(rule *Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, rule)
}

// Heal ends a rule.
func (p *Proxy) Heal(rule *Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = slices.DeleteFunc(p.rules, func(r *Rule) bool { return r == rule })
}

// Through has a kubeconfig lead through the proxy.
func (p *Proxy) Through(kubeconfig []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = p.server.URL
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	}
	return clientcmd.Write(*config)
}
