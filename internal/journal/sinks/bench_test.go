package sinks_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// BenchmarkBacklog sends a sink what it has missed, of so many instances with ten events each. The sink checks each
// signature, on the same processors.
func BenchmarkBacklog(b *testing.B) {
	for _, instances := range []int{100, 1000} {
		b.Run(fmt.Sprintf("instances=%d", instances), func(b *testing.B) {
			w := newWorld(b)
			const each = 10
			l, sink := w.listen(nil)
			w.is(sink, metav1.ConditionTrue, "accepts")
			w.stop()
			for n := range instances {
				i := w.order("cf", fmt.Sprint(n))
				for range each - 1 {
					v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: placed, At: metav1.NowMicro(), Clusters: []string{"eu"}})
				}
				w.must(w.hub.Status().Update(w.Context(), i))
			}
			events := instances * each
			for b.Loop() {
				var got int
				all := make(chan struct{})
				l.accepts(func(cloudevents.Event) {
					if got++; got == events {
						close(all)
					}
				})
				w.deliver()
				<-all
				b.StopTimer()
				w.stop()
				b.StartTimer()
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkSteady measures the time from an event to its arrival at the sink, at 100 events a second.
func BenchmarkSteady(b *testing.B) {
	w := newWorld(b)
	l, sink := w.listen(nil)
	w.is(sink, metav1.ConditionTrue, "accepts")
	var instances []*v1alpha1.ServiceInstance
	for n := range 10 {
		instances = append(instances, w.order("cf", fmt.Sprint(n)))
	}
	var took []time.Duration
	var arrived sync.WaitGroup
	w.until(func() string {
		if n := len(accepted(l)); n != len(instances) {
			return fmt.Sprint(n)
		}
		return ""
	})
	l.accepts(func(e cloudevents.Event) {
		took = append(took, time.Since(e.Time()))
		arrived.Done()
	})
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	n := 0
	for b.Loop() {
		<-pace.C
		arrived.Add(1)
		w.happen(instances[n%len(instances)], placed)
		n++
	}
	arrived.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
