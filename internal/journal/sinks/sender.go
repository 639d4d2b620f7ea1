package sinks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/pages"
)

// slack is the longest time from when an event happens, by the clock of the replica that writes it, until it is seen
// by the one that sends it.
const slack = 5 * time.Minute

// Retries of one resource, and of the sink as a whole while it accepts nothing.
const (
	firstRetry   = 200 * time.Millisecond
	slowestRetry = 30 * time.Second
)

// resource is one with events, in one of its lives.
type resource struct {
	kind, name string
	uid        types.UID
}

// sender sends one sink the events that happen from a time on.
type sender struct {
	*Controller
	sink *v1alpha1.EventSink
	from time.Time
	// begin is the time before which all events were delivered when the sender was made.
	begin  time.Time
	filter *filter
	target target
	queue  workqueue.TypedRateLimitingInterface[resource]

	mu sync.Mutex
	// sent is the last event of each resource that needs not be sent any more.
	sent map[types.UID]int64
	// waiting and underway are the resources with events to send, and the time since when they may have some.
	waiting, underway map[resource]time.Time
	// complete: all resources that had events to send at the start are among them.
	complete bool
	// failure is the answer to the last request; nil if the sink has accepted it. While it accepts none, there are pauses,
	// each longer than the one before; no request is sent before resume.
	failure error
	pauses  int
	resume  time.Time
	// accepted and refused are the numbers of requests.
	accepted, refused int
}

func newSender(c *Controller, sink *v1alpha1.EventSink, key string) (*sender, error) {
	filter, err := newFilter(sink.Spec.Filter)
	if err != nil {
		return nil, err
	}
	target, err := newTarget(&sink.Spec, key, c.Client, c.Namespace)
	if err != nil {
		return nil, err
	}
	from, begin := v1alpha1.CreatedOf(sink).Time, deliveredUntil(sink)
	if begin.Add(-slack).After(from) {
		from = begin.Add(-slack)
	}
	return &sender{
		Controller: c, sink: sink, from: from, begin: begin, filter: filter, target: target,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[resource](firstRetry, slowestRetry)),
		sent:  map[types.UID]int64{}, waiting: map[resource]time.Time{}, underway: map[resource]time.Time{},
	}, nil
}

// deliveredUntil returns the time before which all events were delivered to a sink, by its status.
func deliveredUntil(sink *v1alpha1.EventSink) time.Time {
	created := v1alpha1.CreatedOf(sink).Time
	if until := sink.Status.DeliveredUntil; until != nil && until.After(created) {
		return until.Time
	}
	return created
}

// run sends events until the context ends.
func (s *sender) run(ctx context.Context) {
	defer s.target.close()
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	defer workers.Wait()
	defer s.queue.ShutDown()
	for _, kind := range journal.Kinds {
		stop, err := s.follow(ctx, kind.New())
		if err != nil {
			log.FromContext(ctx).Error(err, "Events are not delivered", "sink", s.sink.Name) // the cache has ended
			return
		}
		defer stop()
	}
	if err := s.ended(ctx); err != nil {
		return
	}
	s.report(ctx)
}

// follow notes each resource of a kind that there is, changes or goes, until stop is called. It returns when those that
// there are have been noted.
func (s *sender) follow(ctx context.Context, kind client.Object) (stop func(), err error) {
	informer, err := s.Cache.GetInformer(ctx, kind, cache.BlockUntilSynced(true))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.note,
		UpdateFunc: func(_, o any) { s.note(o) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			s.add(resourceOf(o.(journal.Subject))) // its journal has its end
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	stop = func() { _ = informer.RemoveEventHandler(registration) }
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		stop()
		return nil, ctx.Err()
	}
	return stop, nil
}

func resourceOf(o journal.Subject) resource {
	return resource{o.Subject().Kind, o.GetName(), v1alpha1.UIDOf(o)}
}

// note queues a resource that has events to send.
func (s *sender) note(o any) {
	of := o.(journal.Subject)
	events := *of.History()
	s.mu.Lock()
	sent, known := s.sent[v1alpha1.UIDOf(of)]
	s.mu.Unlock()
	switch last := v1alpha1.LastSequence(events); {
	case last == 0, known && last <= sent:
	case !known && events[len(events)-1].At.Time.Before(s.from):
	default:
		s.add(resourceOf(of))
	}
}

// add queues a resource.
func (s *sender) add(r resource) {
	s.mu.Lock()
	if _, isWaiting := s.waiting[r]; !isWaiting {
		s.waiting[r] = time.Now()
		if !s.complete { // it may have waited in an earlier life
			s.waiting[r] = s.begin
		}
	}
	s.mu.Unlock()
	s.queue.Add(r)
}

// ended queues the resources that have gone since the time from which events are sent. It tries until that succeeds, or
// the context ends.
func (s *sender) ended(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, firstRetry, true, func(ctx context.Context) (bool, error) {
		err := pages.Each(ctx, s.Live, &v1alpha1.JournalList{}, func(o client.Object) error {
			if j := o.(*v1alpha1.Journal); j.Spec.EndedAt != nil && !j.Spec.EndedAt.Time.Before(s.from) {
				s.add(resource{j.Spec.Kind, j.Spec.Name, types.UID(j.Name)})
			}
			return nil
		}, client.InNamespace(s.Namespace))
		if err != nil {
			log.FromContext(ctx).Error(err, "Journals are not read, of which the events are to be delivered", "sink", s.sink.Name)
			return false, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.complete = true
		return true, nil
	})
}

// next sends the events of the next resource. It reports whether there will be another one.
func (s *sender) next(ctx context.Context) bool {
	r, ends := s.queue.Get()
	if ends {
		return false
	}
	defer s.queue.Done(r)
	s.mu.Lock()
	s.underway[r] = s.waiting[r]
	delete(s.waiting, r)
	s.mu.Unlock()
	err := s.send(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.underway, r)
		s.queue.Forget(r)
		return true
	}
	s.waiting[r] = s.underway[r]
	delete(s.underway, r)
	s.queue.AddRateLimited(r)
	return true
}

// send sends the events of a resource that are not sent yet, in their order, until one is not accepted.
func (s *sender) send(ctx context.Context, r resource) error {
	object, err := s.read(ctx, r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	last, known := s.sent[r.uid]
	s.mu.Unlock()
	if object != nil && !known {
		// Older events need not be looked for in the journal.
		if events := *object.History(); len(events) > 0 && events[0].At.Time.Before(s.from) {
			last = events[0].Sequence
		}
	}
	entries, err := journal.Since(ctx, s.Live, s.Namespace, r.uid, object, last)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.At.Time.Before(s.from) && (s.sink.Spec.Platform == "" || s.sink.Spec.Platform == e.Platform) && s.filter.selects(ctx, e) {
			if err := s.post(ctx, e); err != nil {
				return err
			}
			s.queue.Forget(r) // what is refused next is tried again as soon as a first event
		}
		s.mu.Lock()
		s.sent[r.uid] = e.Sequence
		s.mu.Unlock()
	}
	if object == nil {
		s.mu.Lock()
		delete(s.sent, r.uid)
		s.mu.Unlock()
	}
	return nil
}

// read returns a resource; nil if it is gone.
func (s *sender) read(ctx context.Context, r resource) (journal.Subject, error) {
	at := slices.IndexFunc(journal.Kinds, func(kind journal.Kind) bool { return kind.Name == r.kind })
	if at < 0 {
		return nil, nil // of a journal that a later version has written
	}
	object := journal.Kinds[at].New()
	err := s.Cache.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: r.name}, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil || v1alpha1.UIDOf(object) != r.uid {
		return nil, nil
	}
	return object, nil
}

// post sends an event, not before a pause has ended that a failure began.
func (s *sender) post(ctx context.Context, e journal.Entry) error {
	s.mu.Lock()
	resume := s.resume
	s.mu.Unlock()
	if err := pause(ctx, resume); err != nil {
		return err
	}
	err := s.deliver(ctx, e)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
	if err == nil {
		s.accepted++
		s.pauses, s.resume = 0, time.Time{}
		return nil
	}
	s.refused++
	if s.resume.Equal(resume) { // the first one after the pause
		s.resume = time.Now().Add(min(firstRetry<<min(s.pauses, 10), slowestRetry))
		s.pauses++
	}
	return err
}

// deliver sends an event, for at most guarded.Timeout.
func (s *sender) deliver(ctx context.Context, e journal.Entry) error {
	event, err := cloudEvent(s.Hub, e)
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", event.ID(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, guarded.Timeout)
	defer cancel()
	return s.target.deliver(ctx, event, encoded)
}

// pause waits until a time, or until the context ends, which is an error.
func pause(ctx context.Context, until time.Time) error {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// position returns the time before which all events are delivered, zero until it is known which there are; and why the
// sink does not accept them, if so.
func (s *sender) position() (until time.Time, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.complete {
		return time.Time{}, s.failure
	}
	until = time.Now()
	for _, all := range []map[resource]time.Time{s.waiting, s.underway} {
		for _, since := range all {
			if since.Before(until) {
				until = since
			}
		}
	}
	return until, s.failure
}

// report writes how far the delivery is into the status, until the context ends: at once whether the sink accepts
// events, the rest every minute.
func (s *sender) report(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.write(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "The status of an event sink is not written", "sink", s.sink.Name)
		}
	}, time.Second)
}

// reportEvery is the time between two writes of a status without news.
const reportEvery = time.Minute

func (s *sender) write(ctx context.Context) error {
	until, failure := s.position()
	sink := &v1alpha1.EventSink{}
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(s.sink), sink); err != nil {
		return client.IgnoreNotFound(err) // it is about to be stopped
	}
	if sink.UID != s.sink.UID || sink.Generation != s.sink.Generation {
		return nil // likewise
	}
	condition, reason, message := metav1.ConditionTrue, reasonDelivering, "it accepts events"
	if failure != nil {
		condition, reason = metav1.ConditionFalse, reasonRefusing
		message = fmt.Sprintf("it does not accept events: %v; they are sent again", failure)
	}
	isNew := v1alpha1.SetCondition(&sink.Status.Conditions, sink.Generation, v1alpha1.ConditionReady, condition, reason, message)
	before := sink.Status.DeliveredUntil
	if !until.IsZero() && (before == nil || until.Sub(before.Time) >= reportEvery) {
		at := metav1.NewMicroTime(until)
		sink.Status.DeliveredUntil, isNew = &at, true
	}
	if !isNew {
		return nil
	}
	return s.Client.Status().Update(ctx, sink)
}
