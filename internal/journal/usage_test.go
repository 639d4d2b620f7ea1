package journal_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/usage"
)

// began is when the first instance was delivered.
var began = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// deliver writes that an instance is delivered to a cluster at a price, so many minutes after it was for the first time.
// Killed, the process gets no further than the journal.
func (w *world) deliver(i *v1alpha1.ServiceInstance, minute int, price int64, isKilled bool) {
	w.Helper()
	after := &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{{
		Cluster: "berlin", Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}, PricePerHour: resource.NewQuantity(price, resource.DecimalSI), Currency: "EUR",
	}}}}
	written := i.DeepCopy()
	written.Status.Usage = usage.Next(i.Status.Usage, i.Status.Delivered, after, began.Add(time.Duration(minute)*time.Minute), func(string) string { return "acme" })
	written.Status.Delivered = after
	w.must(w.Trim(w.Context(), written))
	if !isKilled {
		w.must(w.hub.Status().Update(w.Context(), written))
		written.DeepCopyInto(i)
	}
}

// used returns the cost of so many minutes, and the seconds on clusters.
func (w *world) used(minutes int) (cost string, seconds int64) {
	w.Helper()
	q := usage.Query{Window: usage.Window{From: began, To: began.Add(time.Duration(minutes) * time.Minute)}}
	read, err := usage.Read(w.Context(), w.hub, w.namespace, q)
	w.must(err)
	sums, err := usage.Sums(read, q)
	w.must(err)
	for _, sum := range sums { // one for each currency
		cost, seconds = sum.Cost.String(), seconds+sum.Seconds
	}
	return cost, seconds
}

// journals returns the journals' numbers of periods.
func (w *world) journals() map[string]int {
	w.Helper()
	var list v1alpha1.JournalList
	w.must(w.hub.List(w.Context(), &list, client.InNamespace(w.namespace)))
	periods := map[string]int{}
	for _, j := range list.Items {
		periods[j.Name] = len(j.Spec.Usage)
	}
	return periods
}

// TestUsage: no minute is lost or doubled while an instance's usage moves to its journal, wherever the process is killed,
// nor when the instance is removed; and the status stays small.
func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	var want int64 // 60 times the cost
	for minute := range 60 {
		price := int64(minute%7 + 1)
		if minute%3 == 0 {
			w.deliver(i, minute, price+100, true)
		}
		w.deliver(i, minute, price, false)
		want += price
		if cost, seconds := w.used(minute + 1); seconds != int64(minute+1)*60 || cost != trimmed(want) {
			t.Fatalf("after %d minutes: %d seconds for %s, want %s", minute+1, seconds, cost, trimmed(want))
		}
		if n := len(i.Status.Usage); n > v1alpha1.MostUsagePeriods+2 {
			t.Errorf("the status has %d periods", n)
		}
	}
	for range 2 { // killed after the first
		last := i.DeepCopy()
		last.Status.Usage = usage.Next(i.Status.Usage, i.Status.Delivered, nil, began.Add(time.Hour), nil)
		v1alpha1.AddEvent(&last.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NewMicroTime(began.Add(time.Hour))})
		w.must(w.End(t.Context(), last))
		if cost, seconds := w.used(60); seconds != 3600 || cost != trimmed(want) {
			t.Fatalf("while it is removed: %d seconds for %s", seconds, cost)
		}
	}
	w.must(w.hub.Delete(t.Context(), i))
	if cost, seconds := w.used(120); seconds != 3600 || cost != trimmed(want) {
		t.Errorf("after the end: %d seconds for %s, want %s", seconds, cost, trimmed(want))
	}
}

// trimmed formats a sixtieth, as Decimal does.
func trimmed(sixtieths int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.9f", float64(sixtieths)/60), "0"), ".")
}

// TestUsageOfManyPeriods: a journal with too many periods passes the older ones on, also if the process is killed in
// between, and none is lost or doubled.
func TestUsageOfManyPeriods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.order("one")
	minute := 0
	for range v1alpha1.MostJournalPeriods - 4 {
		i.Status.Delivered = &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{{
			Cluster: "berlin", Reserved: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(minute+1), resource.DecimalSI)},
		}}}}
		i.Status.Usage = append(i.Status.Usage, v1alpha1.UsagePeriod{
			Cluster: "berlin", From: metav1.NewTime(began.Add(time.Duration(minute) * time.Minute)), To: ptr(metav1.NewTime(began.Add(time.Duration(minute+1) * time.Minute))),
			Reserved: i.Status.Delivered.Decision.Placements[0].Reserved,
		})
		minute++
	}
	i.Status.Usage = append(i.Status.Usage, v1alpha1.UsagePeriod{Cluster: "berlin", From: metav1.NewTime(began.Add(time.Duration(minute) * time.Minute))})
	w.must(w.hub.Status().Update(t.Context(), i))
	for range 40 {
		w.deliver(i, minute, 1+int64(minute%2), true)
		w.deliver(i, minute, int64(minute%2), false)
		minute++
	}
	if _, seconds := w.used(minute); seconds != 60*int64(minute) {
		t.Errorf("%d seconds after %d minutes", seconds, minute)
	}
	kept := w.journals()
	if len(kept) != 2 || kept[string(i.UID)] > v1alpha1.MostJournalPeriods {
		t.Errorf("the journals have %v", kept)
	}
}

// TestUsageIsKeptLonger: the usage of what is gone stays when its events go by age or number, until it is old itself. Journals
// with nothing to remove are not read one by one.
func TestUsageIsKeptLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for days := range 4 {
		i := w.order(fmt.Sprint(days))
		ended := began.Add(-time.Duration(days) * 24 * time.Hour)
		i.Status.Usage = []v1alpha1.UsagePeriod{{Cluster: "berlin", From: metav1.NewTime(ended.Add(-time.Minute)), To: ptr(metav1.NewTime(ended))}}
		v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NewMicroTime(ended)})
		w.must(w.End(t.Context(), i))
		w.must(w.hub.Delete(t.Context(), i))
	}
	asked := 0
	live := interceptor.NewClient(w.hub, interceptor.Funcs{Get: func(ctx context.Context, hub client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		asked++
		return hub.Get(ctx, key, o, options...)
	}})
	r := &journal.Retention{Client: w.hub, Live: live, Namespace: w.namespace, Age: 36 * time.Hour, Most: 1, UsageAge: 60 * time.Hour, Clock: clocktesting.NewFakePassiveClock(began)}
	for _, want := range []int{3, 0} { // 1 and 2 lose their events, 3 all; then there is nothing to do
		asked = 0
		removed, err := r.Run(t.Context())
		w.must(err)
		read, err := usage.Read(t.Context(), w.hub, w.namespace, usage.Query{Window: usage.Window{From: began.AddDate(0, 0, -9), To: began}})
		w.must(err)
		if removed != want || len(read) != 3 || len(w.journals()) != 3 || len(w.read("0")) != 1 || len(w.read("1"))+len(w.read("2")) != 0 {
			t.Errorf("%d are removed, want %d; there is usage of %d, and journals %v", removed, want, len(read), w.journals())
		}
		if asked > want {
			t.Errorf("%d journals are read to remove %d", asked, want)
		}
	}
}

func ptr[T any](v T) *T { return &v }
