package sinks_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/journal/sinks"
)

const (
	placed    = v1alpha1.EventPlaced
	delivered = v1alpha1.EventDelivered
)

// TestDelivery: a sink gets what happens to instances from its creation on, to their end, and those of which the
// status has only the latest.
func TestDelivery(t *testing.T) {
	each(t, func(w *world, r receiver, _ *v1alpha1.EventSink) {
		one := w.order("cf", "one")
		w.happen(one, placed, delivered)
		two := w.order("cf", "two")
		w.happen(two, slices.Repeat([]v1alpha1.EventType{placed}, 20)...)
		w.remove(one)
		w.gets(r, append(instance("one", "ordered", "placed", "delivered", "removed"),
			instance("two", append([]string{"ordered"}, slices.Repeat([]string{"placed"}, 20)...)...)...)...)
		got := r.stored()
		e := got[slices.IndexFunc(got, func(e cloudevents.Event) bool { return e.Type() == "dev.sluice.instance.delivered" })]
		var data journal.Entry
		w.must(e.DataAs(&data))
		if e.Source() != "urn:sluice:hub-1" || e.ID() != fmt.Sprintf("%s-3-%d", one.UID, one.Status.Events[2].At.UnixMicro()) || e.Subject() != "one" || !e.Time().Equal(one.Status.Events[2].At.Time) ||
			e.Extensions()["partitionkey"] != string(one.UID) || data.UID != one.UID || data.Platform != "cf" || !slices.Equal(data.Clusters, []string{"eu"}) {
			w.Errorf("the event is %s", e)
		}
	})
}

// TestUnreachable: what a server that is not reached misses is delivered when it is back; the sink says so meanwhile.
func TestUnreachable(t *testing.T) {
	each(t, func(w *world, r receiver, sink *v1alpha1.EventSink) {
		one := w.order("cf", "one")
		w.gets(r, instance("one", "ordered")...)
		net := r.network()
		net.set(func() { net.isCut = true })
		w.happen(one, placed)
		w.is(sink, metav1.ConditionFalse, "it does not accept events")
		w.happen(one, delivered)
		w.happen(w.order("cf", "two"), placed)
		net.set(func() { net.isCut = false })
		w.gets(r, append(instance("one", "ordered", "placed", "delivered"), instance("two", "ordered", "placed")...)...)
		w.is(sink, metav1.ConditionTrue, "accepts")
	})
}

// TestHanging: a server that takes what it is sent, and does not answer for a while, gets everything afterwards.
func TestHanging(t *testing.T) {
	each(t, func(w *world, r receiver, sink *v1alpha1.EventSink) {
		one := w.order("cf", "one")
		w.gets(r, instance("one", "ordered")...)
		net := r.network()
		net.set(func() { net.isHeld = true })
		w.happen(one, placed)
		two := w.order("cf", "two")
		w.until(net.holds)
		w.happen(one, delivered)
		w.happen(two, placed)
		if got := accepted(r); len(got) != 1 {
			w.Errorf("the sink got %q while it was held", got)
		}
		net.set(func() { net.isHeld = false })
		w.gets(r, append(instance("one", "ordered", "placed", "delivered"), instance("two", "ordered", "placed")...)...)
	})
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
	each(t, func(w *world, r receiver, sink *v1alpha1.EventSink) {
		one, two := w.order("cf", "one"), w.order("cf", "two")
		w.gets(r, append(instance("one", "ordered"), instance("two", "ordered")...)...)
		w.until(func() string {
			w.must(w.hub.Get(w.Context(), client.ObjectKeyFromObject(sink), sink))
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
		w.gets(r, slices.Concat(instance("one", "ordered", "placed", "removed"), instance("three", "ordered", "placed"), instance("two", "ordered", "placed"))...)
	})
}

// TestAwayForLong: how far the delivery is does not go past an event that a server has not accepted, however often Sluice
// restarts meanwhile: the next restart would leave it out.
func TestAwayForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := newListener(w)
	l.answers(func(cloudevents.Event) int { return http.StatusServiceUnavailable })
	w.stop()
	ago := func(minutes int) metav1.MicroTime {
		return metav1.NewMicroTime(time.Now().Add(-time.Duration(minutes) * time.Minute).Truncate(time.Microsecond))
	}
	sink := w.add(l, l.key, func(*v1alpha1.EventSinkSpec) {})
	sink.Annotations = map[string]string{v1alpha1.AnnotationCreated: ago(20).UTC().Format(time.RFC3339)}
	w.must(w.hub.Update(t.Context(), sink))
	until := ago(4)
	sink.Status.DeliveredUntil = &until
	w.must(w.hub.Status().Update(t.Context(), sink))
	one := w.order("cf", "one")
	one.Status.Events[0].At = ago(3)
	w.must(w.hub.Status().Update(t.Context(), one))

	w.deliver()
	w.is(sink, metav1.ConditionFalse, "does not accept")
	if got := sink.Status.DeliveredUntil; !got.Equal(&until) {
		t.Errorf("all is said to be delivered until %s, and an event of %s is not", got, one.Status.Events[0].At)
	}
	l.answers(nil)
	w.gets(l, instance("one", "ordered")...)
	w.until(func() string {
		w.must(w.hub.Get(t.Context(), client.ObjectKeyFromObject(sink), sink))
		if !until.Before(sink.Status.DeliveredUntil) {
			return "the status does not say that the delivery has gone on"
		}
		return ""
	})
}

// TestHistories: over random histories, with a server over HTTP that refuses each event up to three times, or connections to
// another one that end at any time, and a Sluice that restarts, each event is accepted at least once, for the first time in
// its order, and none is made up.
func TestHistories(t *testing.T) {
	each(t, func(w *world, r receiver, _ *v1alpha1.EventSink) {
		if l, is := r.(*listener); !is {
			r.network().set(func() { r.network().isFragile = true })
		} else {
			refusals := map[string]int{}
			l.answers(func(e cloudevents.Event) int {
				if refusals[e.ID()] < 3 && rand.IntN(3) == 0 { // after nine, the pauses were longer than the test waits
					refusals[e.ID()]++
					return http.StatusServiceUnavailable
				}
				return http.StatusOK
			})
		}
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
		w.gets(r, want...)
	})
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
	each(t, func(w *world, r receiver, sink *v1alpha1.EventSink) {
		sink.Spec.Addresses = []string{"10.0.0.0/8"}
		w.must(w.hub.Update(w.Context(), sink))
		w.order("cf", "one")
		w.is(sink, metav1.ConditionFalse, "address 127.0.0.1 is not public")
		sink.Spec.Addresses = []string{"127.0.0.0/8"}
		w.must(w.hub.Update(w.Context(), sink))
		w.gets(r, instance("one", "ordered")...)
	})
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
		err := sinks.Check(&v1alpha1.EventSinkSpec{URL: "https://sink.example"}, key)
		if (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
		if err != nil && key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

var errForbidden = apierrors.NewForbidden(corev1.Resource("secrets"), "key-of-sink", errors.New("no rule"))

// TestSecretRefusedOnce: a sink of which the Secret was refused once is delivered to again within seconds.
func TestSecretRefusedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, sink := w.listen(nil)
	w.is(sink, metav1.ConditionTrue, "accepts")
	w.stop()
	var asked atomic.Int32
	w.secrets = func(s *corev1.Secret) error {
		if asked.Add(1) == 1 {
			return errForbidden
		}
		s.Data = map[string][]byte{sinks.SecretKey: []byte(l.key)}
		return nil
	}
	w.deliver()
	sink.Spec.Key = v1alpha1.EventSinkKey{SecretName: "key-of-sink"}
	w.must(w.hub.Update(t.Context(), sink))
	w.is(sink, metav1.ConditionFalse, "which Sluice may not read")
	refused := time.Now()
	w.order("cf", "one")
	w.gets(l, instance("one", "ordered")...)
	if took := time.Since(refused); took > 30*time.Second {
		t.Errorf("nothing was delivered for %s", took)
	}
}

// TestUnreadableSecret: a sink of which the key is in a Secret that Sluice cannot read says so, and what to do about it, also
// if it was ready before. How far the delivery has come is known.
func TestUnreadableSecret(t *testing.T) {
	t.Parallel()
	forbidden := func(*corev1.Secret) error { return errForbidden }
	for name, one := range map[string]struct {
		secrets func(*corev1.Secret) error
		says    string
	}{
		"none on an embedded hub": {nil, "this hub has no Secrets, so the key of Secret key-of-sink is to be given again: `sluice sink add sink --key-file FILE`"},
		"no right":                {forbidden, "its key is in Secret key-of-sink, which Sluice may not read: allow it (memberClusterSecrets=true of the Helm chart)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			_, sink := w.listen(nil)
			w.is(sink, metav1.ConditionTrue, "accepts")
			w.stop()
			w.secrets = one.secrets
			w.deliver()
			sink.Spec.Key = v1alpha1.EventSinkKey{SecretName: "key-of-sink"}
			w.must(w.hub.Update(t.Context(), sink))
			w.is(sink, metav1.ConditionFalse, one.says)
			w.deliveredUntil(sink)
		})
	}
}

// deliveredUntil checks the metric of how far the delivery to the only sink has come, by which an alert fires. It is that of
// the status, or the time at which the sink was made.
func (w *world) deliveredUntil(sink *v1alpha1.EventSink) {
	w.Helper()
	until := sink.CreationTimestamp.Time
	if at := sink.Status.DeliveredUntil; at != nil && at.After(until) {
		until = at.Time
	}
	w.must(testutil.CollectAndCompare(w.sinks, strings.NewReader(fmt.Sprintf(`# HELP sluice_event_sink_delivered_timestamp_seconds Time before which a sink has accepted all events.
# TYPE sluice_event_sink_delivered_timestamp_seconds gauge
sluice_event_sink_delivered_timestamp_seconds{sink="sink"} %v
`, float64(until.UnixMilli())/1000)), "sluice_event_sink_delivered_timestamp_seconds"))
}
