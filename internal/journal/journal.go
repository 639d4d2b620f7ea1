package journal

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Subject is a resource with events.
type Subject interface {
	client.Object
	Subject() v1alpha1.EventSubject
	History() *[]v1alpha1.Event
}

// Journals writes Journals to the hub. Safe for concurrent use.
type Journals struct {
	Client client.Client
	// Live reads the hub without a cache: journals are read so rarely that a cache of all would be a waste.
	Live client.Reader
}

// Trim moves the older half of a resource's events to its journal once there are more than
// v1alpha1.MostEvents. Call it before the write of the status that has the rest. A kill in between leaves
// events in both places, which the next call puts right.
func (j *Journals) Trim(ctx context.Context, of Subject) error {
	events := of.History()
	older := len(*events) - v1alpha1.MostEvents/2
	if len(*events) <= v1alpha1.MostEvents {
		return nil
	}
	err := j.write(ctx, of, func(kept *v1alpha1.JournalSpec) { kept.Events = after(kept.Events, (*events)[:older]) })
	if err != nil {
		return err
	}
	*events = append([]v1alpha1.Event(nil), (*events)[older:]...)
	return nil
}

// End keeps all events of a resource that is about to be removed: call it when nothing is left but the
// finalizer. It may be repeated, also with other events than before: those of the last call count.
func (j *Journals) End(ctx context.Context, of Subject) error {
	events := *of.History()
	return j.write(ctx, of, func(kept *v1alpha1.JournalSpec) {
		kept.Events = slices.DeleteFunc(kept.Events, func(e v1alpha1.Event) bool { return e.Sequence >= events[0].Sequence })
		kept.Events = append(kept.Events, events...)
		kept.EndedAt = &events[len(events)-1].At
	})
}

// write changes the journal of a resource, which it creates if there is none.
func (j *Journals) write(ctx context.Context, of Subject, change func(*v1alpha1.JournalSpec)) error {
	err := retry.OnError(retry.DefaultRetry, isRace, func() error {
		kept := &v1alpha1.Journal{}
		err := j.Live.Get(ctx, client.ObjectKey{Namespace: of.GetNamespace(), Name: string(of.GetUID())}, kept)
		isNew := apierrors.IsNotFound(err)
		if err != nil && !isNew {
			return err
		}
		change(&kept.Spec)
		if n := len(kept.Spec.Events); n > v1alpha1.MostJournalEvents {
			kept.Spec.Events = kept.Spec.Events[n-v1alpha1.MostJournalEvents:]
		}
		if !isNew {
			return j.Client.Update(ctx, kept)
		}
		kept.ObjectMeta = metav1.ObjectMeta{Namespace: of.GetNamespace(), Name: string(of.GetUID())}
		kept.Spec.EventSubject = of.Subject()
		return j.Client.Create(ctx, kept)
	})
	if err != nil {
		return fmt.Errorf("write the journal of %s %s: %w", of.Subject().Kind, of.GetName(), err)
	}
	return nil
}

// isRace reports whether somebody else has just written the same journal.
func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
