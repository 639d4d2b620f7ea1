package journal_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
	"github.com/sluice-dev/sluice/internal/journal"
)

// agree writes that so many cores are delivered to an instance, at that minute. Killed, the process gets no further than
// the journal.
func (w *world) agree(i *v1alpha1.ServiceInstance, minute int, cores int64, isKilled bool) {
	w.Helper()
	at := began.Add(time.Duration(minute) * time.Minute)
	after := &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: v1alpha1.Decision{
		Terms:      &v1alpha1.Terms{At: metav1.NewTime(at)},
		Placements: []v1alpha1.Placement{{Cluster: "berlin", Reserved: corev1.ResourceList{"cpu": *resource.NewQuantity(cores, resource.DecimalSI)}}},
	}}
	written := i.DeepCopy()
	written.Status.Contracts = contracts.Next(i, i.Status.Contracts, i.Status.Delivered, after, at)
	written.Status.Delivered = after
	w.must(w.Trim(w.Context(), written))
	if !isKilled {
		w.must(w.hub.Status().Update(w.Context(), written))
		written.DeepCopyInto(i)
	}
}

// agreed checks that an instance has had so many contracts, each of as many cores as its number, which name one another.
func (w *world) agreed(i *v1alpha1.ServiceInstance, many int, isInForce bool) {
	w.Helper()
	all, err := contracts.Read(w.Context(), w.hub, w.namespace, i.Name)
	w.must(err)
	former := ""
	for n, a := range all {
		c := a.Contract
		if c.Number != int64(n+1) || c.Clusters[0].Reserved["cpu"] != resource.NewQuantity(int64(n+1), resource.DecimalSI).String() || c.Former != former {
			w.Fatalf("contract %d of %d is %+v of %+v", n+1, len(all), c, c.Clusters)
		}
		former = a.Digest
	}
	if len(all) != many || isInForce != (all[len(all)-1].EndedAt == nil) {
		w.Fatalf("there are %d contracts, want %d", len(all), many)
	}
}

// TestContracts: none is lost, doubled or changed while they move to an instance's journals, wherever the process is
// killed, nor when the instance is removed; the status and each journal stay small; they go with the usage, not the events.
func TestContracts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	const many = v1alpha1.MostJournalContracts + 10
	for n := range many {
		if n%3 == 0 {
			w.agree(i, n, 1000, true)
		}
		w.agree(i, n, int64(n+1), false)
		if n%10 == 0 {
			w.agreed(i, n+1, true)
		}
		if kept := len(i.Status.Contracts); kept > v1alpha1.MostContracts+1 {
			t.Errorf("the status has %d contracts", kept)
		}
	}
	end := began.Add(many * time.Minute)
	for range 2 { // killed after the first
		last := i.DeepCopy()
		last.Status.Contracts = contracts.Next(i, i.Status.Contracts, i.Status.Delivered, nil, end)
		v1alpha1.AddEvent(&last.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NewMicroTime(end)})
		w.must(w.End(t.Context(), last))
	}
	w.must(w.hub.Delete(t.Context(), i))
	w.agreed(i, many, false)
	var journals v1alpha1.JournalList
	w.must(w.hub.List(t.Context(), &journals, client.InNamespace(w.namespace)))
	for _, j := range journals.Items {
		if len(j.Spec.Contracts) > v1alpha1.MostJournalContracts {
			t.Errorf("journal %s has %d contracts", j.Name, len(j.Spec.Contracts))
		}
	}
	if len(journals.Items) != 2 {
		t.Errorf("there are %d journals", len(journals.Items))
	}
	clean := &journal.Retention{Client: w.hub, Live: w.hub, Namespace: w.namespace, Age: time.Hour, UsageAge: 48 * time.Hour, Clock: clocktesting.NewFakePassiveClock(end.Add(24 * time.Hour))}
	_, err := clean.Run(t.Context())
	w.must(err)
	w.agreed(i, many, false)
	clean.Clock = clocktesting.NewFakePassiveClock(end.Add(49 * time.Hour))
	_, err = clean.Run(t.Context())
	w.must(err)
	if all, err := contracts.Read(t.Context(), w.hub, w.namespace, i.Name); err != nil || len(all) != 0 {
		t.Errorf("after their time there are %d contracts, %v", len(all), err)
	}
}

// TestContractsOfALongLifeStay: the older ones, in journals of their own, go with the others after the instance, and
// not by their own age.
func TestContractsOfALongLifeStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	const many = v1alpha1.MostJournalContracts + 10
	for n := range many {
		w.agree(i, n, int64(n+1), false)
	}
	clean := func(at time.Time, removed int) {
		t.Helper()
		r := &journal.Retention{Client: w.hub, Live: w.hub, Namespace: w.namespace, Age: time.Hour, UsageAge: 48 * time.Hour, Clock: clocktesting.NewFakePassiveClock(at)}
		n, err := r.Run(t.Context())
		if w.must(err); n != removed {
			t.Errorf("at %s, %d journals are removed, want %d", at, n, removed)
		}
	}
	if n := len(w.journals()); n != 2 {
		t.Fatalf("there are %d journals", n)
	}
	end := began.Add(1000 * 24 * time.Hour)
	clean(end, 0)
	w.agreed(i, many, true)

	last := i.DeepCopy()
	last.Status.Contracts = contracts.Next(i, i.Status.Contracts, i.Status.Delivered, nil, end)
	v1alpha1.AddEvent(&last.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NewMicroTime(end)})
	w.must(w.End(t.Context(), last))
	w.must(w.hub.Delete(t.Context(), i))
	clean(end.Add(24*time.Hour), 1) // the events
	w.agreed(i, many, false)
	clean(end.Add(49*time.Hour), 2)
	if n := len(w.journals()); n != 0 {
		t.Errorf("%d journals are left", n)
	}
}
