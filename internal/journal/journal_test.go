package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/journal"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// world is a hub with instances, and journals of them.
type world struct {
	*testing.T
	hub       client.WithWatch
	namespace string
	*journal.Journals
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub, err := client.NewWithWatch(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, hub: hub, namespace: hubtest.Namespace(t), Journals: &journal.Journals{Client: hub, Live: hub}}
}

// must ends the test with an error.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) order(id string) *v1alpha1.ServiceInstance {
	w.Helper()
	i := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.InstanceName("cf", id)},
		Spec:       v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: id, ServiceID: "s", OrganizationGUID: "o", Desired: v1alpha1.InstanceState{PlanID: "p"}},
	}
	w.must(w.hub.Create(w.Context(), i))
	return i
}

// happen writes the status after so many events more, one by one, as the controllers do.
func (w *world) happen(i *v1alpha1.ServiceInstance, many int) {
	w.Helper()
	for range many {
		v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: v1alpha1.EventPlaced, At: metav1.NowMicro()})
		w.must(w.Trim(w.Context(), i))
		w.must(w.hub.Status().Update(w.Context(), i))
	}
}

// remove ends an instance's journal, and deletes it.
func (w *world) remove(i *v1alpha1.ServiceInstance) {
	w.Helper()
	v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NowMicro()})
	w.must(w.End(w.Context(), i))
	w.must(w.hub.Delete(w.Context(), i))
}

// read returns the events of an instance, as "sequence type".
func (w *world) read(id string) (events []string) {
	w.Helper()
	for _, e := range w.entries(id) {
		events = append(events, fmt.Sprint(e.Sequence, " ", e.Type))
	}
	return events
}

// entries returns the events of an instance.
func (w *world) entries(id string) []journal.Entry {
	w.Helper()
	entries, err := journal.Read(w.Context(), w.hub, w.namespace, func(e journal.Entry) bool { return e.InstanceID == id })
	w.must(err)
	return entries
}

// placed are so many events, as read returns them.
func placed(many int) (events []string) {
	for n := range many {
		events = append(events, fmt.Sprint(n+1, " Placed"))
	}
	return events
}

// TestJournal: no event is lost or given twice while the older ones move to the journal, nor when the
// instance is removed; the status stays small.
func TestJournal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	for _, many := range []int{1, v1alpha1.MostEvents - 1, 1, 20} {
		before := len(w.read("one"))
		w.happen(i, many)
		if got := w.read("one"); !slices.Equal(got, placed(before+many)) {
			t.Fatalf("after %d events: %v", before+many, got)
		}
		if n := len(i.Status.Events); n == 0 || n > v1alpha1.MostEvents {
			t.Errorf("the status has %d events", n)
		}
	}
	all, err := journal.Of(t.Context(), w.hub, i)
	w.must(err)
	if len(all) != 37 || v1alpha1.LastSequence(all) != 37 {
		t.Errorf("the instance has %d events, the last is %d", len(all), v1alpha1.LastSequence(all))
	}
	w.remove(i)
	if got, want := w.read("one"), append(placed(37), "38 Removed"); !slices.Equal(got, want) {
		t.Errorf("after the end: %v", got)
	}
}

// TestEventsThatMoveWhileTheyAreRead: whatever happens before one of the lists is read, no event is missed or given twice
// that happened before.
func TestEventsThatMoveWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	happens := map[string]func(w *world, i *v1alpha1.ServiceInstance){
		"the older half moves": func(w *world, i *v1alpha1.ServiceInstance) { w.happen(i, 1) },
		"all move":             func(w *world, i *v1alpha1.ServiceInstance) { w.happen(i, 40) },
		"it is removed":        func(w *world, i *v1alpha1.ServiceInstance) { w.remove(i) },
	}
	for what, happens := range happens {
		for _, before := range []client.ObjectList{&v1alpha1.ServiceInstanceList{}, &v1alpha1.ServiceBindingList{}, &v1alpha1.JournalList{}} {
			t.Run(fmt.Sprintf("%s before %T", what, before), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				i := w.order("one")
				w.happen(i, v1alpha1.MostEvents)
				w.hub = interceptor.NewClient(w.hub, interceptor.Funcs{List: func(ctx context.Context, hub client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if fmt.Sprintf("%T", list) == fmt.Sprintf("%T", before) {
						happens(w, i)
					}
					return hub.List(ctx, list, options...)
				}})
				got := w.read("one")
				want := placed(max(len(got), v1alpha1.MostEvents))
				if slices.Contains(got, "17 Removed") {
					want = append(placed(v1alpha1.MostEvents), "17 Removed")
				}
				if !slices.Equal(got, want) {
					t.Errorf("read %v", got)
				}
			})
		}
	}
}

// TestJournalKilled: a process that is killed after a journal is written, and before the resource is, writes
// nothing twice. If it ends a journal again, in its next life, only what it knows then counts.
func TestJournalKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	w.happen(i, v1alpha1.MostEvents)
	killed := i.DeepCopy()
	v1alpha1.AddEvent(&killed.Status.Events, v1alpha1.Event{Type: v1alpha1.EventFailed, At: metav1.NowMicro()})
	w.must(w.Trim(t.Context(), killed)) // and the status is not written
	if got := w.read("one"); !slices.Equal(got, placed(v1alpha1.MostEvents)) {
		t.Errorf("killed after the older half moved: %v", got)
	}
	w.happen(i, 1)
	for _, lastLife := range []bool{false, false, true} {
		again := i.DeepCopy()
		if lastLife {
			v1alpha1.AddEvent(&again.Status.Events, v1alpha1.Event{Type: v1alpha1.EventFailed, At: metav1.NowMicro()})
		}
		v1alpha1.AddEvent(&again.Status.Events, v1alpha1.Event{Type: v1alpha1.EventOrdered, At: metav1.NowMicro()})
		v1alpha1.AddEvent(&again.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NowMicro()})
		w.must(w.End(t.Context(), again)) // and the instance stays
	}
	w.must(w.hub.Delete(t.Context(), i))
	if got, want := w.read("one"), append(placed(v1alpha1.MostEvents+1), "18 Failed", "19 Ordered", "20 Removed"); !slices.Equal(got, want) {
		t.Errorf("removed in its third life: %v", got)
	}
}

// TestAJournalEndsWithItsResource: a process whose cache lags behind the hub does not end a journal once more. Sinks have been
// told the end that it has.
func TestAJournalEndsWithItsResource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	before := i.DeepCopy()
	w.happen(i, 1)
	stale := i.DeepCopy()
	ends := func(of *v1alpha1.ServiceInstance) error {
		v1alpha1.AddEvent(&of.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NowMicro()})
		return w.End(t.Context(), of)
	}
	if err := ends(before); !apierrors.IsConflict(err) {
		t.Errorf("ended as it was before its last change: %v", err)
	}
	w.remove(i)
	last := w.entries("one")
	if err := ends(stale); !apierrors.IsConflict(err) {
		t.Errorf("ended though it is gone: %v", err)
	}
	if now := w.entries("one"); len(now) != 2 || !equality.Semantic.DeepEqual(now, last) {
		t.Errorf("its events were %+v and are %+v", last, now)
	}
}

// TestJournalIsBounded: a journal drops its oldest events, and fits into the API server's limit whatever
// is in them.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	for range v1alpha1.MostJournalEvents + 5 {
		v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{
			Type: v1alpha1.EventPlaced, At: metav1.NowMicro(), Message: strings.Repeat("ü", 5000), Clusters: slices.Repeat([]string{strings.Repeat("c", 30)}, 100),
		})
	}
	w.must(w.End(t.Context(), i))
	if got := w.read("one"); len(got) != v1alpha1.MostJournalEvents || got[0] != "6 Placed" {
		t.Errorf("%d events are kept, the first is %s", len(got), got[0])
	}
}

// TestWatch: events are given once and in order: those that there were, those that happen, those that the
// status has no more, and the last one of an instance that is removed.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	w.happen(i, 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	began, enough := make(chan struct{}), errors.New("enough")
	ended := make(chan error)
	go func() {
		ended <- journal.Watch(ctx, w.hub, w.namespace, func(e journal.Entry) error {
			if got = append(got, fmt.Sprint(e.Sequence, " ", e.Type)); len(got) == 20 {
				close(began)
			}
			if e.Type == v1alpha1.EventRemoved {
				return enough
			}
			return nil
		})
	}()
	<-began
	w.happen(i, 20)
	w.remove(i)
	if err := <-ended; !errors.Is(err, enough) {
		t.Fatalf("it ended with %v after %v", err, got)
	}
	if want := append(placed(40), "41 Removed"); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestRetention: journals go by age and by number, the oldest first; those of resources that exist stay.
func TestRetention(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, row := range map[string]struct {
		age  time.Duration
		most int
		left string
	}{
		"for ever":  {left: "0 1 2 3"},
		"by age":    {age: 36 * time.Hour, left: "0 1"},
		"by number": {most: 1, left: "0"},
		"by both":   {age: 60 * time.Hour, most: 3, left: "0 1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.happen(w.order("lives"), 40)
			now := time.Now()
			for days := range 4 {
				i := w.order(fmt.Sprint(days))
				v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NewMicroTime(now.Add(-time.Duration(days) * day))})
				w.must(w.End(t.Context(), i))
				w.must(w.hub.Delete(t.Context(), i))
			}
			r := &journal.Retention{Client: w.hub, Live: w.hub, Namespace: w.namespace, Age: row.age, Most: row.most, Clock: clocktesting.NewFakePassiveClock(now)}
			removed, err := r.Run(t.Context())
			w.must(err)
			var left []string
			for days := range 4 {
				if len(w.read(fmt.Sprint(days))) > 0 {
					left = append(left, fmt.Sprint(days))
				}
			}
			if got := strings.Join(left, " "); got != row.left || removed != 4-len(left) || len(w.read("lives")) != 40 {
				t.Errorf("%d are removed, %q are left, want %q", removed, got, row.left)
			}
		})
	}
}
