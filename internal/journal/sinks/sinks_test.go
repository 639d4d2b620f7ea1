package sinks_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
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
	hub       client.Client
	namespace string
	journals  *journal.Journals
	keys      *seal.Keyset
	stop      func() // of the deliveries
}

func newWorld(t testing.TB) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	w := &world{TB: t, namespace: hubtest.Namespace(t)}
	w.must(v1alpha1.AddToScheme(scheme))
	hub, err := client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
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
	m, err := ctrl.NewManager(hubtest.Start(w.TB).Config, ctrl.Options{
		Scheme: w.hub.Scheme(), Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
	})
	w.must(err)
	c := &sinks.Controller{Client: m.GetClient(), Live: m.GetAPIReader(), Cache: m.GetCache(), Keys: w.keys, Namespace: w.namespace, Hub: "hub-1"}
	w.must(c.SetupWithManager(m))
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

// listener is a sink's server.
type listener struct {
	*httptest.Server
	key string

	mu     sync.Mutex
	got    []cloudevents.Event // accepted, in their order
	answer func(cloudevents.Event) int
	accept func(cloudevents.Event) // called with each event that is accepted; may be nil
	wrong  []string
}

// listen makes a sink that accepts everything, until its answer is changed.
func (w *world) listen(change func(*v1alpha1.EventSinkSpec)) (*listener, *v1alpha1.EventSink) {
	w.Helper()
	l := &listener{key: sinks.NewKey()}
	l.Server = httptest.NewTLSServer(l)
	w.Cleanup(l.Close)
	sealed, err := w.keys.Seal([]byte(l.key), sinks.Owner(w.namespace, "sink"))
	w.must(err)
	sink := &v1alpha1.EventSink{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "sink"}, Spec: v1alpha1.EventSinkSpec{
		URL: l.URL + "/events?for=sluice", Addresses: []string{"127.0.0.1/32"}, Key: v1alpha1.EventSinkKey{Sealed: sealed},
		CABundle: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.Certificate().Raw})),
	}}
	if change != nil {
		change(&sink.Spec)
	}
	w.must(w.hub.Create(w.Context(), sink))
	w.Cleanup(func() {
		for _, wrong := range l.wrong {
			w.Error(wrong)
		}
	})
	return l, sink
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

// accepted returns the events that the sink has accepted, as "subject sequence type", each once, and by subject.
func (l *listener) accepted() (events []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.got {
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

// gets waits until the sink has accepted exactly some events.
func (w *world) gets(l *listener, want ...string) {
	w.Helper()
	w.until(func() string {
		if got := l.accepted(); !slices.Equal(got, want) {
			return fmt.Sprintf("the sink got %q, want %q", got, want)
		}
		return ""
	})
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

const (
	placed    = v1alpha1.EventPlaced
	delivered = v1alpha1.EventDelivered
)

// TestDelivery: a sink gets what happens to instances from its creation on, to their end, and those of which the
// status has only the latest.
func TestDelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.order("cf", "one")
	l, sink := w.listen(nil)
	w.is(sink, metav1.ConditionTrue, "accepts")
	w.happen(one, placed, delivered)
	two := w.order("cf", "two")
	w.happen(two, slices.Repeat([]v1alpha1.EventType{placed}, 20)...)
	w.remove(one)
	want := instance("one", "ordered", "placed", "delivered", "removed")
	got := func() []string {
		return append(want, instance("two", append([]string{"ordered"}, slices.Repeat([]string{"placed"}, 20)...)...)...)
	}()
	w.until(func() string {
		// The order is from about the time of the sink's creation, and may or may not be among them.
		return cmp.Diff(got[1:], slices.DeleteFunc(l.accepted(), func(e string) bool { return e == want[0] }))
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.got[slices.IndexFunc(l.got, func(e cloudevents.Event) bool { return e.Type() == "dev.sluice.instance.delivered" })]
	var data journal.Entry
	w.must(e.DataAs(&data))
	if e.Source() != "urn:sluice:hub-1" || e.ID() != fmt.Sprintf("%s-3", one.UID) || e.Subject() != "one" || !e.Time().Equal(one.Status.Events[2].At.Time) ||
		e.Extensions()["partitionkey"] != string(one.UID) || data.UID != one.UID || data.Platform != "cf" || !slices.Equal(data.Clusters, []string{"eu"}) {
		t.Errorf("the event is %s", e)
	}
}

// TestSelection: a sink gets the events of its platform for which its filter is true.
func TestSelection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, sink := w.listen(func(s *v1alpha1.EventSinkSpec) {
		s.Platform, s.Filter = "cf", `event.type in ["Delivered", "Removed"] && "eu" in event.clusters`
	})
	w.is(sink, metav1.ConditionTrue, "accepts")
	for _, platform := range []string{"cf", "korifi"} {
		w.happen(w.order(platform, "of-"+platform), placed, delivered)
	}
	w.gets(l, "of-cf 3 instance.delivered")
	sink.Spec.Platform = "korifi"
	w.must(w.hub.Update(t.Context(), sink))
	w.gets(l, "of-cf 3 instance.delivered", "of-korifi 3 instance.delivered")
}

// TestRefusal: what a sink does not accept is sent again until it does, in the order of each instance; the sink says
// so meanwhile. Others do not wait for an instance of which one event is refused.
func TestRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, sink := w.listen(nil)
	w.is(sink, metav1.ConditionTrue, "accepts")
	l.answers(func(e cloudevents.Event) int {
		if e.Subject() == "bad" {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	bad := w.order("cf", "bad")
	w.happen(bad, placed)
	w.happen(w.order("cf", "good"), placed)
	w.gets(l, instance("good", "ordered", "placed")...)
	l.answers(func(cloudevents.Event) int { return http.StatusInternalServerError })
	w.happen(bad, delivered)
	w.is(sink, metav1.ConditionFalse, "it answered 500 Internal Server Error")
	l.answers(nil)
	w.gets(l, append(instance("bad", "ordered", "placed", "delivered"), instance("good", "ordered", "placed")...)...)
	w.is(sink, metav1.ConditionTrue, "accepts")
}

// TestRestart: what happens while Sluice is not there is delivered when it is back.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, sink := w.listen(nil)
	one, two := w.order("cf", "one"), w.order("cf", "two")
	w.gets(l, append(instance("one", "ordered"), instance("two", "ordered")...)...)
	w.until(func() string {
		w.must(w.hub.Get(t.Context(), client.ObjectKeyFromObject(sink), sink))
		if sink.Status.DeliveredUntil == nil {
			return "the status does not say how far the delivery is"
		}
		return ""
	})
	w.stop()
	w.happen(one, placed)
	w.remove(one)
	w.happen(two, placed)
	w.happen(w.order("cf", "three"), placed)
	w.deliver()
	w.gets(l, slices.Concat(instance("one", "ordered", "placed", "removed"), instance("three", "ordered", "placed"), instance("two", "ordered", "placed"))...)
}

// TestHistories: over random histories, with a sink that refuses a third of the requests and a Sluice that restarts, each
// event is accepted at least once, for the first time in its order, and none is made up.
func TestHistories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, sink := w.listen(nil)
	w.is(sink, metav1.ConditionTrue, "accepts")
	l.answers(func(cloudevents.Event) int {
		if rand.IntN(3) == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	all := map[string][]string{}
	var mu sync.Mutex
	var writers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() {
			id := fmt.Sprintf("i-%d", n)
			i, types := w.order("cf", id), []string{"ordered"}
			for range rand.IntN(40) {
				w.happen(i, placed)
				types = append(types, "placed")
			}
			if rand.IntN(2) == 0 {
				w.remove(i)
				types = append(types, "removed")
			}
			mu.Lock()
			defer mu.Unlock()
			all[id] = instance(id, types...)
		})
	}
	for range 3 {
		w.stop()
		w.deliver()
	}
	writers.Wait()
	var want []string
	for n := range 8 {
		want = append(want, all[fmt.Sprintf("i-%d", n)]...)
	}
	w.gets(l, want...)
}

// TestInvalid: a sink that cannot be used as it is described says why.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(*v1alpha1.EventSinkSpec)
		want   string
	}{
		"another sink's key": {func(s *v1alpha1.EventSinkSpec) { s.Key.Sealed = []byte("of somebody else") }, "unseal its key"},
		"no expression":      {func(s *v1alpha1.EventSinkSpec) { s.Filter = "event.type ==" }, "filter: column 14: Syntax error"},
		"no condition":       {func(s *v1alpha1.EventSinkSpec) { s.Filter = "event.kind + event.type" }, "filter: is of type dyn, want bool"},
		"no such field":      {func(s *v1alpha1.EventSinkSpec) { s.Filter = `event.typ == "Placed"` }, "filter: no such key: typ"},
		"no certificate":     {func(s *v1alpha1.EventSinkSpec) { s.CABundle = "none" }, "caBundle: contains no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			_, sink := w.listen(row.change)
			w.is(sink, metav1.ConditionFalse, row.want)
		})
	}
}

// TestAddress: a sink at an address that is not public is not reached unless it is listed.
func TestAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, sink := w.listen(func(s *v1alpha1.EventSinkSpec) { s.Addresses = []string{"10.0.0.0/8"} })
	w.order("cf", "one")
	w.is(sink, metav1.ConditionFalse, "address 127.0.0.1 is not public")
	sink.Spec.Addresses = []string{"127.0.0.0/8"}
	w.must(w.hub.Update(t.Context(), sink))
	w.gets(l, instance("one", "ordered")...)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for key, ok := range map[string]bool{
		sinks.NewKey():                           true,
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": true, // of the specification
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":       false,
		"whsec_c2hvcnQ=":                         false,
		"whsec_?":                                false,
		"":                                       false,
	} {
		err := sinks.CheckKey(key)
		if (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
		if err != nil && key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}
