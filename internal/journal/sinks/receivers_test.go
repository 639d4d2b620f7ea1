package sinks_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal/sinks"
)

// receiver is a server that stores events.
type receiver interface {
	// describe writes where it is.
	describe(*v1alpha1.EventSinkSpec)
	// stored returns the events that it has accepted, in their order.
	stored() []cloudevents.Event
	// network returns the gate in front of it.
	network() *gate
}

// receivers are the kinds of servers.
var receivers = map[string]func(w *world) (r receiver, key string){
	"HTTP":  func(w *world) (receiver, string) { l := newListener(w); return l, l.key },
	"NATS":  func(w *world) (receiver, string) { return newStream(w, nil), "pass" },
	"Kafka": func(w *world) (receiver, string) { return newFakeTopic(w), "pass" },
}

// each runs a test with each kind of server, to which events are sent.
func each(t *testing.T, test func(w *world, r receiver, sink *v1alpha1.EventSink)) {
	t.Parallel()
	for kind, start := range receivers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r, key := start(w)
			sink := w.add(r, key, nil)
			w.is(sink, metav1.ConditionTrue, "accepts")
			test(w, r, sink)
		})
	}
}

// add makes a sink of a server.
func (w *world) add(r receiver, key string, change func(*v1alpha1.EventSinkSpec)) *v1alpha1.EventSink {
	w.Helper()
	sink := &v1alpha1.EventSink{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "sink"}, Spec: v1alpha1.EventSinkSpec{Addresses: []string{"127.0.0.1/32"}}}
	if key != "" {
		sealed, err := w.keys.Seal([]byte(key), sinks.Owner(w.namespace, "sink"))
		w.must(err)
		sink.Spec.Key.Sealed = sealed
	}
	r.describe(&sink.Spec)
	if change != nil {
		change(&sink.Spec)
	}
	w.must(w.hub.Create(w.Context(), sink))
	return sink
}

// lets makes a sink of a server, and checks what it says when there is an event; nothing if the server accepts it.
func (w *world) lets(r receiver, key string, change func(*v1alpha1.EventSinkSpec), says string) {
	w.Helper()
	sink := w.add(r, key, change)
	w.order("cf", "one")
	if says != "" {
		w.is(sink, metav1.ConditionFalse, says)
		return
	}
	w.gets(r, instance("one", "ordered")...)
	w.is(sink, metav1.ConditionTrue, "accepts")
}

// accepted returns the events that a server has accepted, as "subject sequence type", each once, and by subject.
func accepted(r receiver) (events []string) {
	for _, e := range r.stored() {
		event := fmt.Sprintf("%s %s %s", e.Subject(), strings.TrimLeft(e.Extensions()["sequence"].(string), "0"), strings.TrimPrefix(e.Type(), "dev.sluice."))
		if !slices.Contains(events, event) {
			events = append(events, event)
		}
	}
	slices.SortStableFunc(events, func(a, b string) int {
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return events
}

// gets waits until a server has accepted exactly some events.
func (w *world) gets(r receiver, want ...string) {
	w.Helper()
	w.until(func() string {
		if diff := cmp.Diff(want, accepted(r)); diff != "" {
			return "what the sink got (-want +got):\n" + diff
		}
		return ""
	})
}

// gate is a listener whose connections can be cut, and held: what arrives then is not read by the server.
type gate struct {
	net.Listener

	mu        sync.Mutex
	changed   *sync.Cond
	isHeld    bool
	isCut     bool
	isFragile bool // one in so many reads ends its connection
	waiting   int  // reads that are held
	open      []net.Conn
}

var errCut = errors.New("the connection is cut")

func newGate(w *world) *gate {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	g := &gate{Listener: listener}
	g.changed = sync.NewCond(&g.mu)
	w.Cleanup(func() {
		g.set(func() { g.isHeld, g.isCut = false, true })
		_ = listener.Close()
	})
	return g
}

// set changes what happens to connections.
func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	if g.isCut {
		for _, c := range g.open {
			_ = c.Close()
		}
		g.open = nil
	}
	g.changed.Broadcast()
}

// holds reports what is missing until reads are held.
func (g *gate) holds() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == 0 {
		return "nothing waits for the server"
	}
	return ""
}

func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isCut {
		_ = c.Close()
	}
	g.open = append(g.open, c)
	return &gated{c, g}, nil
}

// relay passes what arrives on to a server, until the gate is closed.
func (g *gate) relay(server string) {
	for {
		from, err := g.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", server)
		if err != nil {
			_ = from.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(way[1], way[0])
				_ = way[0].Close()
				_ = way[1].Close()
			}()
		}
	}
}

// newCertificate returns how a server shows a certificate for 127.0.0.1, and the PEM that it is checked against.
func newCertificate() (*tls.Config, string) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}, bundleOf(s)
}

// bundleOf returns the PEM of a server's certificate.
func bundleOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

type gated struct {
	net.Conn
	gate *gate
}

func (c *gated) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	for c.gate.isHeld {
		c.gate.waiting++
		c.gate.changed.Wait()
		c.gate.waiting--
	}
	if c.gate.isFragile && rand.IntN(20) == 0 {
		_ = c.Close()
		return 0, errCut
	}
	return n, err
}
