package journal

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Recorder counts and logs the events of resources, each once, when the hub has it. The events of a write whose
// answer was lost are recorded when the hub shows them. What a kill separates from its write is not recorded.
//
// A controller calls Read and, in the end, Done for each resource that it changes, and in between Written or
// Removed after each write. These methods are safe for concurrent use, for one resource one after the other. Of
// resources that several controllers write, each calls Wrote after its writes. No method blocks. A nil Recorder records
// nothing.
type Recorder struct {
	names    Names
	events   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	known    sync.Map // record by subject
}

// Names returns the names of a service offering and of one of its plans; "" if they are not in the catalog any more.
type Names func(serviceID, planID string) (service, plan string)

// Labels returns them as values of labels, which are never ids: "unknown" for what is not in the catalog.
func (n Names) Labels(serviceID, planID string) (service, plan string) {
	service, plan = n(serviceID, planID)
	return cmp.Or(service, "unknown"), cmp.Or(plan, "unknown")
}

// subject names a resource.
type subject struct {
	kind string
	types.NamespacedName
}

// record is how much of a resource is recorded.
type record struct {
	uid types.UID
	// last is the sequence number of the last event that is.
	last int64
	// isDoubtful reports that the answer to a write was lost.
	isDoubtful bool
	// removed is the resource with its last events, if that write is the one that removes it.
	removed Subject
}

// NewRecorder returns a Recorder. It is a collector of its metrics.
func NewRecorder(names Names) *Recorder {
	return &Recorder{
		names: names,
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_events_total",
			Help: "Events of instances, bindings, member clusters and peerings, by kind of resource, type of event, and service offering and plan if there are.",
		}, []string{"kind", "type", "service", "plan"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sluice_operation_duration_seconds",
			Help:    "Time from the begin of operations to their end, by service offering, plan, type, and result: succeeded or failed.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600},
		}, []string{"service", "plan", "operation", "result"}),
	}
}

// Read notes what the hub has of a resource, and records what an earlier write has written whose answer was
// lost.
func (r *Recorder) Read(ctx context.Context, of Subject) {
	if r == nil {
		return
	}
	now := record{uid: v1alpha1.UIDOf(of), last: v1alpha1.LastSequence(*of.History())}
	switch before, found := r.of(of); {
	case found && before.uid != now.uid:
		r.Gone(ctx, of.Subject().Kind, client.ObjectKeyFromObject(of))
	case found:
		r.record(ctx, of, before.last)
		before.last = max(before.last, now.last)
		now = before
	}
	r.known.Store(subjectOf(of), now)
}

// Written records the events of a resource after a write of its status; err is the result of the write.
func (r *Recorder) Written(ctx context.Context, of Subject, err error) {
	if r == nil {
		return
	}
	known, _ := r.of(of)
	switch {
	case err == nil:
		r.record(ctx, of, known.last)
		known = record{uid: v1alpha1.UIDOf(of), last: v1alpha1.LastSequence(*of.History())}
	case !isRefused(err):
		known.isDoubtful = true
	}
	r.known.Store(subjectOf(of), known)
}

// Wrote records the events of a resource after a sequence number, because they are on the hub now. Those of a write whose
// answer was lost are not recorded.
func (r *Recorder) Wrote(ctx context.Context, of Subject, after int64) {
	if r != nil {
		r.record(ctx, of, after)
	}
}

// Removed records the last events of a resource, as it was before the write that removes its finalizer; err is
// the result of the write. The resource must not be changed afterwards.
func (r *Recorder) Removed(ctx context.Context, of Subject, err error) {
	if r == nil {
		return
	}
	known, _ := r.of(of)
	switch {
	case err == nil:
		r.record(ctx, of, known.last)
		r.known.Delete(subjectOf(of))
	case apierrors.IsNotFound(err):
		r.Gone(ctx, of.Subject().Kind, client.ObjectKeyFromObject(of))
	case !isRefused(err):
		known.isDoubtful, known.removed = true, of
		r.known.Store(subjectOf(of), known)
	}
}

// Gone records the last events of a resource that is not there any more, if the answer to its removal was
// lost.
func (r *Recorder) Gone(ctx context.Context, kind string, key client.ObjectKey) {
	if r == nil {
		return
	}
	found, ok := r.known.LoadAndDelete(subject{kind, key})
	if !ok {
		return
	}
	if known := found.(record); known.removed != nil {
		r.record(ctx, known.removed, known.last)
	}
}

// Done forgets a resource, unless the answer to a write of it was lost.
func (r *Recorder) Done(of Subject) {
	if r == nil {
		return
	}
	if known, found := r.of(of); found && !known.isDoubtful {
		r.known.Delete(subjectOf(of))
	}
}

// of returns what is known of a resource.
func (r *Recorder) of(of Subject) (known record, found bool) {
	at, found := r.known.Load(subjectOf(of))
	if !found {
		return record{}, false
	}
	return at.(record), true
}

// isRefused reports whether an error shows that the hub has not written.
func isRefused(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

func subjectOf(of Subject) subject {
	return subject{of.Subject().Kind, client.ObjectKeyFromObject(of)}
}

// record counts and logs the events of a resource after a sequence number.
func (r *Recorder) record(ctx context.Context, of Subject, after int64) {
	subject := of.Subject()
	for _, e := range *of.History() {
		if e.Sequence <= after {
			continue
		}
		r.count(subject, e)
		if e.Type != v1alpha1.EventOrdered { // the request has its line
			_, plan := r.names(subject.ServiceID, e.PlanID)
			logEvent(ctx, subject, plan, e)
		}
	}
}

func (r *Recorder) count(of v1alpha1.EventSubject, e v1alpha1.Event) {
	service, plan := "", ""
	if of.ServiceID != "" {
		service, plan = r.names.Labels(of.ServiceID, e.PlanID)
	}
	r.events.WithLabelValues(of.Kind, string(e.Type), service, plan).Inc()
	if result := e.Ends(); result != "" && e.After != nil {
		r.duration.WithLabelValues(service, plan, string(e.Operation), string(result)).Observe(e.After.Seconds())
	}
}

// logEvent writes one line for an event.
func logEvent(ctx context.Context, subject v1alpha1.EventSubject, plan string, e v1alpha1.Event) {
	fields := []any{"instance", subject.InstanceID, "platform", subject.Platform, "plan", cmp.Or(plan, e.PlanID)}
	switch {
	case subject.BindingID != "":
		fields = append([]any{"binding", subject.BindingID}, fields...)
	case subject.InstanceID == "":
		fields = []any{"kind", subject.Kind, "name", subject.Name}
	}
	if e.Operation != "" {
		fields = append(fields, "operation", e.Operation)
	}
	if len(e.Clusters) > 0 {
		fields = append(fields, "clusters", strings.Join(e.Clusters, ","))
	}
	if e.Message != "" {
		fields = append(fields, "why", e.Message)
	}
	if e.After != nil {
		fields = append(fields, "after", e.After.Duration)
	}
	log.FromContext(ctx).Info(string(e.Type), fields...)
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(descriptions chan<- *prometheus.Desc) {
	r.events.Describe(descriptions)
	r.duration.Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(values chan<- prometheus.Metric) {
	r.events.Collect(values)
	r.duration.Collect(values)
}
