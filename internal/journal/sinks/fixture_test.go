package sinks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/journal/sinks"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

const patience = time.Minute

// world is a hub with instances and bindings that have events, and Sluice's deliveries.
type world struct {
	testing.TB
	config    *rest.Config
	hub       client.Client
	namespace string
	journals  *journal.Journals
	keys      *seal.Keyset
	secrets   func(*corev1.Secret) error // answers reads of Secrets; nil for the hub's answer
	sinks     *sinks.Controller
	stop      func() // of the deliveries
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, hubtest.Start(t).Config, hubtest.Namespace(t))
}

func newWorldOn(t testing.TB, config *rest.Config, namespace string) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	w := &world{TB: t, config: config, namespace: namespace}
	w.must(errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)))
	hub, err := client.New(config, client.Options{Scheme: scheme})
	w.must(err)
	w.hub, w.journals = hub, &journal.Journals{Client: hub, Live: hub}
	w.keys, err = seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	w.must(err)
	w.deliver()
	t.Cleanup(func() { w.stop() })
	return w
}

// deliver starts the deliveries, as a process of Sluice does.
func (w *world) deliver() {
	w.Helper()
	m, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: w.hub.Scheme(), Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
	})
	w.must(err)
	w.sinks = &sinks.Controller{Client: m.GetClient(), Live: liveReader{m.GetAPIReader(), w.secrets}, Cache: m.GetCache(), Keys: w.keys, Namespace: w.namespace, Hub: "hub-1"}
	w.must(w.sinks.SetupWithManager(m))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}

// liveReader reads from a hub of which another one may answer for the Secrets.
type liveReader struct {
	client.Reader
	secrets func(*corev1.Secret) error
}

func (r liveReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if secret, ok := o.(*corev1.Secret); ok && r.secrets != nil {
		return r.secrets(secret)
	}
	return r.Reader.Get(ctx, key, o, options...)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// until waits until a function reports nothing that is missing.
func (w *world) until(missing func() string) {
	w.Helper()
	said := ""
	err := wait.PollUntilContextTimeout(w.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		said = missing()
		return said == "", nil
	})
	if err != nil {
		w.Fatal(said)
	}
}

func (w *world) order(platform, id string) *v1alpha1.ServiceInstance {
	w.Helper()
	i := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.InstanceName(platform, id)},
		Spec:       v1alpha1.ServiceInstanceSpec{Platform: platform, InstanceID: id, ServiceID: "s", Desired: v1alpha1.InstanceState{PlanID: "p"}},
	}
	w.must(w.hub.Create(w.Context(), i))
	w.happen(i, v1alpha1.EventOrdered)
	return i
}

// happen writes events into the status, one by one, as the controllers do.
func (w *world) happen(i *v1alpha1.ServiceInstance, types ...v1alpha1.EventType) {
	w.Helper()
	for _, e := range types {
		v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: e, At: metav1.NowMicro(), Clusters: []string{"eu"}})
		w.must(w.journals.Trim(w.Context(), i))
		w.must(w.hub.Status().Update(w.Context(), i))
	}
}

// remove ends an instance's journal, and deletes it.
func (w *world) remove(i *v1alpha1.ServiceInstance) {
	w.Helper()
	v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NowMicro()})
	w.must(w.journals.End(w.Context(), i))
	w.must(w.hub.Delete(w.Context(), i))
}

// listener is an HTTP server.
type listener struct {
	*httptest.Server
	key  string
	gate *gate

	mu     sync.Mutex
	got    []cloudevents.Event // accepted, in their order
	answer func(cloudevents.Event) int
	accept func(cloudevents.Event) // called with each event that is accepted; may be nil
	wrong  []string
}

func newListener(w *world) *listener {
	w.Helper()
	l := &listener{key: sinks.NewKey(), gate: newGate(w)}
	l.Server = httptest.NewUnstartedServer(l)
	_ = l.Server.Listener.Close()
	l.Server.Listener = l.gate
	l.StartTLS()
	w.Cleanup(func() {
		l.gate.set(func() { l.gate.isHeld = false })
		l.Close()
		for _, wrong := range l.wrong {
			w.Error(wrong)
		}
	})
	return l
}

// listen makes a sink that accepts everything, until its answer is changed.
func (w *world) listen(change func(*v1alpha1.EventSinkSpec)) (*listener, *v1alpha1.EventSink) {
	w.Helper()
	l := newListener(w)
	return l, w.add(l, l.key, change)
}

func (l *listener) describe(spec *v1alpha1.EventSinkSpec) {
	spec.URL = l.URL + "/events?for=sluice"
	spec.CABundle = bundleOf(l.Server)
}

func (l *listener) network() *gate { return l.gate }

func (l *listener) stored() []cloudevents.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

func (l *listener) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var e cloudevents.Event
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	verifier, keyErr := standardwebhooks.NewWebhook(l.key)
	switch {
	case err != nil, keyErr != nil, e.Validate() != nil:
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %v %v %v", body, err, keyErr, e.Validate()))
	case verifier.Verify(body, r.Header) != nil:
		l.wrong = append(l.wrong, "the signature does not match")
	case r.Method != http.MethodPost || r.URL.String() != "/events?for=sluice" || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/cloudevents+json"):
		l.wrong = append(l.wrong, fmt.Sprint(r.Method, r.URL, r.Header))
	}
	if l.answer != nil {
		if code := l.answer(e); code != http.StatusOK {
			rw.WriteHeader(code)
			return
		}
	}
	l.got = append(l.got, e)
	if l.accept != nil {
		l.accept(e)
	}
}

// accepts has a function called with each event that the sink accepts from now on.
func (l *listener) accepts(accept func(cloudevents.Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accept = accept
}

// answers changes what the sink answers.
func (l *listener) answers(answer func(cloudevents.Event) int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// is waits until the condition Ready of a sink has a status, and a message with some words.
func (w *world) is(sink *v1alpha1.EventSink, status metav1.ConditionStatus, words string) {
	w.Helper()
	w.until(func() string {
		w.must(w.hub.Get(w.Context(), client.ObjectKeyFromObject(sink), sink))
		ready := meta.FindStatusCondition(sink.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != status || !strings.Contains(ready.Message, words) {
			return fmt.Sprintf("the condition is %+v, want %s with %q", ready, status, words)
		}
		return ""
	})
}

func instance(id string, types ...string) (events []string) {
	for n, e := range types {
		events = append(events, fmt.Sprintf("%s %d instance.%s", id, n+1, e))
	}
	return events
}
