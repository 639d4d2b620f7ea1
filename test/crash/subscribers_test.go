//go:build faults

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// subscriber is a server that an event sink tells what happens.
type subscriber struct {
	name string // of its sink
	// flags of the sink, and which events they select.
	flags   []string
	selects func(event) bool
	// isUnreliable: of five requests, one is refused, and one is taken without an answer.
	isUnreliable bool
	// report is called with what is wrong with a request.
	report func(error)

	signer *standardwebhooks.Webhook
	since  time.Time // when the sink was created, in seconds

	mu       sync.Mutex
	requests int
	got      []event           // each once, in the order in which they came first
	bodies   map[string]string // of each event, by its id
}

// event is one thing that happened, and the resource to which it did: as sinks are told, and as `sluice events` lists it.
type event struct {
	v1alpha1.EventSubject
	UID types.UID `json:"uid"`
	v1alpha1.Event
	text string // the whole, in one form
}

func (e event) id() string { return fmt.Sprintf("%s-%d-%d", e.UID, e.Sequence, e.At.UnixMicro()) }

// subscribe adds the subscribers of a bed: one that is told everything and is often away, and one that is told of its platform's instances.
func (b *bed) subscribe(ctx context.Context, t *testing.T) {
	t.Helper()
	b.told = []*subscriber{
		{name: "everything", selects: func(event) bool { return true }, isUnreliable: true},
		{
			name: "billing", flags: []string{"--platform", platformName, "--filter", `event.kind == "ServiceInstance"`},
			selects: func(e event) bool { return e.Platform == platformName && e.Kind == v1alpha1.KindServiceInstance },
		},
	}
	for _, s := range b.told {
		s.report, s.bodies = b.report, map[string]string{}
		if err := s.start(ctx, t, b.server); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts the server, and adds its sink.
func (s *subscriber) start(ctx context.Context, t *testing.T, at *server) error {
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the specification of Standard Webhooks
	var err error
	if s.signer, err = standardwebhooks.NewWebhook(key); err != nil {
		return err
	}
	if err := os.WriteFile(at.path("sink.key"), []byte(key), 0o600); err != nil {
		return err
	}
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	add := []string{"sink", "add", s.name, "--url", listener.URL, "--address", "127.0.0.1/32", "--key-file", at.path("sink.key")}
	if err := at.operate(ctx, slices.Concat(add, s.flags)...); err != nil {
		return err
	}
	return at.withHub(ctx, func(c client.Client) error {
		var sink v1alpha1.EventSink
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: s.name}, &sink)
		s.since = sink.CreationTimestamp.Time
		return err
	})
}

func (s *subscriber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // Sluice was killed meanwhile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.isUnreliable && s.requests%5 == 2 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if err := s.take(r.Header, body); err != nil {
		s.report(fmt.Errorf("subscriber %s was sent %s: %w", s.name, body, err))
	}
	if s.isUnreliable && s.requests%5 == 4 {
		panic(http.ErrAbortHandler) // ends the connection
	}
}

// take keeps an event that is signed, and not another one than it was before.
func (s *subscriber) take(header http.Header, body []byte) error {
	if err := s.signer.Verify(body, header); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	var sent cloudevents.Event
	if err := json.Unmarshal(body, &sent); err != nil {
		return err
	}
	e, err := readEvent(sent.Data())
	if err = errors.Join(err, sent.Validate()); err != nil {
		return err
	}
	if sent.ID() != e.id() || header.Get(standardwebhooks.HeaderWebhookID) != e.id() || !sent.Time().Equal(e.At.Time) {
		return fmt.Errorf("its attributes are not those of event %s", e.id())
	}
	before, isKnown := s.bodies[e.id()]
	if isKnown && before != string(body) {
		return fmt.Errorf("event %s was %s before", e.id(), before)
	}
	if !isKnown {
		s.bodies[e.id()] = string(body)
		s.got = append(s.got, e)
	}
	return nil
}

// readEvent decodes an event.
func readEvent(text []byte) (e event, err error) {
	var whole any
	if err = errors.Join(json.Unmarshal(text, &e), json.Unmarshal(text, &whole)); err != nil {
		return e, fmt.Errorf("decode event %s: %w", text, err)
	}
	same, err := json.Marshal(whole) // with its fields in order
	e.text = string(same)
	return e, err
}

// received returns the events that the subscriber has got, each once, in the order in which they came first; and the number of
// requests.
func (s *subscriber) received() ([]event, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got), s.requests
}

// journal returns all events that the hub has.
func (b *bed) journal(ctx context.Context) ([]event, error) {
	out, err := b.output(ctx, "events", "-o", "json")
	if err != nil {
		return nil, err
	}
	var texts []json.RawMessage
	if err := json.Unmarshal(out, &texts); err != nil {
		return nil, fmt.Errorf("decode the events: %w", err)
	}
	all := make([]event, 0, len(texts))
	for _, text := range texts {
		e, err := readEvent(text)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// everythingIsTold waits until each subscriber has got all events of the hub that it is to get, and checks that those of one
// resource came in their order, and that the hub has all of them as they came. The hub keeps the events of what is gone for
// longer than a test lasts.
func (b *bed) everythingIsTold(ctx context.Context, t *testing.T) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	happened, err := b.journal(ctx)
	if err != nil {
		return err
	}
	for _, s := range b.told {
		began := time.Now()
		if err := until(ctx, func(context.Context) error { return s.lacks(happened) }); err != nil {
			return fmt.Errorf("subscriber %s: %w", s.name, err)
		}
		got, requests := s.received()
		now, err := b.journal(ctx) // more may have happened to clusters
		if err != nil {
			return err
		}
		if err := s.check(got, now); err != nil {
			return fmt.Errorf("subscriber %s: %w", s.name, err)
		}
		t.Logf("subscriber %-10s got %3d events in %4d requests, the last ones after %4.1f s", s.name, len(got), requests, time.Since(began).Seconds())
	}
	return nil
}

// lacks returns an error if an event has not come that has happened since the sink was created.
func (s *subscriber) lacks(happened []event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range happened {
		if _, isHere := s.bodies[e.id()]; !isHere && s.selects(e) && !e.At.Time.Before(s.since) {
			return fmt.Errorf("lost: it has %d events, and not %s", len(s.got), e.text)
		}
	}
	return nil
}

// check checks the order of what has come, and that it has happened.
func (s *subscriber) check(got, happened []event) error {
	hub, last := map[string]event{}, map[types.UID]event{}
	for _, e := range happened {
		hub[e.id()] = e
	}
	for _, e := range got {
		if before := last[e.UID]; e.Sequence <= before.Sequence {
			return fmt.Errorf("out of order: %s came after %s", e.text, before.text)
		}
		last[e.UID] = e
		if is := hub[e.id()]; is.text != e.text || !s.selects(e) {
			return fmt.Errorf("invented: it got %s, and the hub has %q", e.text, is.text)
		}
	}
	return nil
}
