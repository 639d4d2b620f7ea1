package probe

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

const token = "token-of-the-probe-in-fra"

// world is a server with the instance of the probe of cluster fra.
type world struct {
	*testing.T
	server  *Server
	url     string
	hub     client.Client
	changes *controllertest.FakeInformer
	fra     *v1alpha1.ServiceInstance
	results chan result
	// end ends the lead.
	end func()
}

// result is a call of Results.
type result struct {
	kind, cluster string
	took          time.Duration
	err           error
}

func (w *world) Pinged(cluster string, _ time.Time, latency time.Duration, err error) {
	w.results <- result{"ping", cluster, latency, err}
}

func (w *world) Transferred(cluster string, _ time.Time, took time.Duration, err error) {
	w.results <- result{"transfer", cluster, took, err}
}

func (w *world) Started(cluster string, _ time.Time, took time.Duration) {
	w.results <- result{"start", cluster, took, nil}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	keys, err := seal.Open(t.TempDir() + "/keyset.json")
	must(t, err)
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	w := &world{T: t, results: make(chan result, 10_000)}
	w.fra = probeOf(t, "fra", keys)
	ordered := probeOf(t, "ordered", keys)
	delete(ordered.Labels, v1alpha1.LabelMeasure)
	deleted := probeOf(t, "deleted", keys)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{v1alpha1.Finalizer}
	strange := probeOf(t, "strange", keys)
	strange.Status.SealedSecrets = []byte("sealed with other keys")
	bare := probeOf(t, "bare", keys)
	bare.Status.SealedSecrets = nil
	w.hub = fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.fra, ordered, deleted, strange, bare).Build()
	informers := &informertest.FakeInformers{Scheme: scheme}
	w.changes, err = informers.FakeInformerFor(t.Context(), &v1alpha1.ServiceInstance{})
	must(t, err)
	w.server = NewServer(Options{
		Results: w, Every: 200 * time.Millisecond, Hub: w.hub, Instances: informers, Namespace: "sluice", Keys: keys, Logger: slog.New(slog.DiscardHandler),
	})
	server := httptest.NewServer(w.server.Handler(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// nameOf returns the name of the instance of a cluster's probe.
func nameOf(cluster string) string {
	return v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID(cluster))
}

// probeOf returns the delivered probe of a cluster, with the token.
func probeOf(t *testing.T, cluster string, keys *seal.Keyset) *v1alpha1.ServiceInstance {
	t.Helper()
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "sluice", Name: nameOf(cluster), UID: types.UID(cluster), Labels: map[string]string{v1alpha1.LabelMeasure: cluster},
	}}
	i.Status.Delivered = &v1alpha1.DeliveredState{}
	var err error
	i.Status.SealedSecrets, err = workload.Secrets{v1alpha1.ProbeSecret: seal.Redact([]byte(token))}.SealInstance(i, keys)
	must(t, err)
	return i
}

// leads makes the server that of the leader until the test ends, or w.end is called.
func (w *world) leads() {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Start(ctx) }()
	w.end = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		ended <- nil
	}
	w.Cleanup(w.end)
	w.until("it leads", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return w.server.leading != nil
	})
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("wait until %s", what)
		}
	}
}

// next waits for a result of a kind that is, or is not, an error.
func (w *world) next(kind string, fails bool) result {
	w.Helper()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case r := <-w.results:
			if r.kind == kind && (r.err != nil) == fails {
				return r
			}
		case <-deadline:
			w.Fatalf("wait for a %s that fails: %t", kind, fails)
		}
	}
}

// within returns the results that come within a simulated time.
func (w *world) within(after time.Duration) []result {
	time.Sleep(after)
	synctest.Wait()
	return w.left()
}

// left takes the results that are there.
func (w *world) left() (results []result) {
	for len(w.results) > 0 {
		results = append(results, <-w.results)
	}
	return results
}

// probe runs the client as the probe of fra, with a start, until the returned function is called.
func (w *world) probe(start string) (end func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&Client{Broker: w.url, Instance: nameOf("fra"), Start: start, Token: func() (string, error) { return token, nil }, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	end = func() { cancel(); <-ended }
	w.Cleanup(end)
	return end
}

// startsAnew asks for a new pod, as the change of its instance does.
func (w *world) startsAnew(start string) (asked time.Time) {
	w.Helper()
	before := w.fra.DeepCopy()
	must(w.T, w.hub.Get(w.Context(), client.ObjectKeyFromObject(w.fra), w.fra))
	w.fra.Spec.Desired.Parameters = &runtime.RawExtension{Raw: []byte(`{"start":"` + start + `"}`)}
	must(w.T, w.hub.Update(w.Context(), w.fra))
	asked = time.Now()
	w.changes.Update(before, w.fra.DeepCopy())
	return asked
}

// is waits until the connection of a cluster's probe has a state, for a reason.
func (w *world) is(cluster string, state metav1.ConditionStatus, why string) {
	w.Helper()
	w.until(cluster+" is "+string(state)+" "+why, func() bool {
		is, because := w.server.Connection(cluster)
		return is == state && strings.Contains(because, why)
	})
}

// dial connects as the probe of fra.
func (w *world) dial() *websocket.Conn {
	w.Helper()
	conn, _, err := websocket.Dial(w.Context(), w.url+Prefix+nameOf("fra"), &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	must(w.T, err)
	conn.SetReadLimit(TransferBytes)
	w.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// ask sends a request, and returns the answer and its body.
func (w *world) ask(method, name, authorization string) (*http.Response, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+Prefix+name, nil)
	must(w.T, err)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer, err := http.DefaultClient.Do(r)
	must(w.T, err)
	defer answer.Body.Close()
	body := make([]byte, 1024)
	n, _ := answer.Body.Read(body)
	return answer, string(body[:n])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// untilEnd reads until a connection ends, and returns the reason.
func untilEnd(t *testing.T, conn *websocket.Conn) error {
	for {
		if _, _, err := conn.Read(t.Context()); err != nil {
			return err
		}
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu    sync.Mutex
	wrote *sync.Cond
	text  strings.Builder
}

func newLines() *lines {
	l := &lines{}
	l.wrote = sync.NewCond(&l.mu)
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote.Broadcast()
	return l.text.Write(p)
}

// await returns once the log has a text.
func (l *lines) await(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.text.String(), text) {
		l.wrote.Wait()
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
