package journal

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// transitions are the events of conditions, by their status. A condition that is false from its beginning has none.
var transitions = []struct {
	condition string
	is, isNot v1alpha1.EventType
}{
	{v1alpha1.ConditionReachable, "", v1alpha1.EventLost},
	{v1alpha1.ConditionReady, v1alpha1.EventReady, v1alpha1.EventNotReady},
	{v1alpha1.ConditionAdmitted, v1alpha1.EventAdmitted, v1alpha1.EventNotAdmitted},
	{v1alpha1.ConditionCordoned, v1alpha1.EventCordoned, v1alpha1.EventUncordoned},
	{v1alpha1.ConditionDrained, v1alpha1.EventDrained, ""},
}

// Transitions adds the events of the conditions of a resource that have changed since before, for the next write of its
// status, and moves older events to its journal if there are many. Clusters are those that the events are about.
func (j *Journals) Transitions(ctx context.Context, of Subject, before, now []metav1.Condition, at time.Time, clusters ...string) error {
	for _, t := range transitions {
		was, is := meta.FindStatusCondition(before, t.condition), meta.FindStatusCondition(now, t.condition)
		held, holds := was != nil && was.Status == metav1.ConditionTrue, is != nil && is.Status == metav1.ConditionTrue
		if held == holds {
			continue
		}
		e := v1alpha1.Event{Type: t.isNot, At: metav1.NewMicroTime(at), Clusters: clusters}
		if holds {
			e.Type = t.is
		}
		if is != nil {
			e.Message = is.Message
		}
		if e.Type == v1alpha1.EventNotReady && is != nil && is.Reason == v1alpha1.ReasonUnreachable {
			continue // it is lost
		}
		if e.Type != "" {
			v1alpha1.AddEvent(of.History(), e)
		}
	}
	return j.Trim(ctx, of)
}

// Ended writes the event of the end of a resource, and its journal. It comes before the resource is removed.
func (j *Journals) Ended(ctx context.Context, of Subject, at time.Time, clusters ...string) error {
	v1alpha1.AddEvent(of.History(), v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NewMicroTime(at), Clusters: clusters})
	return j.End(ctx, of)
}
