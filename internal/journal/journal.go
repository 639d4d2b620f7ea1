package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// metered is a resource with usage.
type metered interface {
	Metered() *[]v1alpha1.UsagePeriod
}

// usageOf returns the usage of a resource; that of a binding is always empty.
func usageOf(of Subject) *[]v1alpha1.UsagePeriod {
	if m, ok := of.(metered); ok {
		return m.Metered()
	}
	return &[]v1alpha1.UsagePeriod{}
}

// agreed is a resource with contracts.
type agreed interface {
	Agreed() *[]v1alpha1.Contract
}

// contractsOf returns the contracts of a resource; those of a binding are always none.
func contractsOf(of Subject) *[]v1alpha1.Contract {
	if a, ok := of.(agreed); ok {
		return a.Agreed()
	}
	return &[]v1alpha1.Contract{}
}

// Trim moves the older half of a resource's events to its journal once there are more than
// v1alpha1.MostEvents, the usage that ended before the last change once there are more than
// v1alpha1.MostUsagePeriods of that, and all ended contracts but the last once there are more than
// v1alpha1.MostContracts. Call it before the write of the status that has the rest. A kill in between leaves
// both in both places, which the next call puts right.
func (j *Journals) Trim(ctx context.Context, of Subject) error {
	events, usage, contracts := of.History(), usageOf(of), contractsOf(of)
	older, earlier, former := 0, 0, 0
	if len(*events) > v1alpha1.MostEvents {
		older = len(*events) - v1alpha1.MostEvents/2
	}
	if n := settled(*usage); n > v1alpha1.MostUsagePeriods {
		earlier = n
	}
	if n := ended(*contracts); n > v1alpha1.MostContracts {
		former = n - 1 // the last may have been ended by the write that is to come
	}
	if older == 0 && earlier == 0 && former == 0 {
		return nil
	}
	err := j.write(ctx, of, func(kept *v1alpha1.JournalSpec) {
		kept.Events = after(kept.Events, (*events)[:older])
		kept.Usage = v1alpha1.MergeUsage(kept.Usage, (*usage)[:earlier])
		kept.Contracts = v1alpha1.MergeContracts(kept.Contracts, (*contracts)[:former])
	})
	if err != nil {
		return err
	}
	*events = append([]v1alpha1.Event(nil), (*events)[older:]...)
	*usage = append([]v1alpha1.UsagePeriod(nil), (*usage)[earlier:]...)
	*contracts = append([]v1alpha1.Contract(nil), (*contracts)[former:]...)
	return nil
}

// ended returns the number of contracts, which come first, that have ended.
func ended(contracts []v1alpha1.Contract) (n int) {
	for n < len(contracts) && !contracts[n].IsInForce() {
		n++
	}
	return n
}

// settled returns the number of periods, which come first, that ended before the last change. So the hub has them: the
// last change may be one that is yet to be written, and would be another if Sluice were killed before that.
func settled(usage []v1alpha1.UsagePeriod) (n int) {
	last := v1alpha1.LastUsageChange(usage)
	for n < len(usage) && usage[n].To.Before(&last) {
		n++
	}
	return n
}

// End keeps all events, the usage and the contracts of a resource that is about to be removed: call it when nothing is
// left but the finalizer, and all periods and contracts have ended. It may be repeated, also with other events than before: those of the last
// call count. It returns a conflict if the hub does not have the resource as it is given: sinks may have been told the end of
// one that is gone, and the cache shows it a while longer.
func (j *Journals) End(ctx context.Context, of Subject) error {
	if err := j.confirm(ctx, of); err != nil {
		return fmt.Errorf("end the journal of %s %s: %w", of.Subject().Kind, of.GetName(), err)
	}
	events, usage, contracts := *of.History(), *usageOf(of), *contractsOf(of)
	return j.write(ctx, of, func(kept *v1alpha1.JournalSpec) {
		kept.Events = slices.DeleteFunc(kept.Events, func(e v1alpha1.Event) bool { return e.Sequence >= events[0].Sequence })
		kept.Events = append(kept.Events, events...)
		kept.Usage = v1alpha1.MergeUsage(kept.Usage, usage)
		kept.Contracts = v1alpha1.MergeContracts(kept.Contracts, contracts)
		kept.EndedAt = &events[len(events)-1].At
	})
}

// Redact changes the messages of all events that are kept of a resource by a function. It is idempotent if that is.
func (j *Journals) Redact(ctx context.Context, of Subject, redact func(string) string) error {
	err := retry.OnError(retry.DefaultRetry, isRace, func() error {
		kept := &v1alpha1.Journal{}
		if err := j.Live.Get(ctx, client.ObjectKey{Namespace: of.GetNamespace(), Name: string(v1alpha1.UIDOf(of))}, kept); err != nil {
			return client.IgnoreNotFound(err)
		}
		changed := false
		for i := range kept.Spec.Events {
			e := &kept.Spec.Events[i]
			message := v1alpha1.Cut(redact(e.Message), v1alpha1.LongestEventMessage)
			changed = changed || message != e.Message
			e.Message = message
		}
		if !changed {
			return nil
		}
		return j.Client.Update(ctx, kept)
	})
	if err != nil {
		return fmt.Errorf("redact the journal of %s %s: %w", of.Subject().Kind, of.GetName(), err)
	}
	return nil
}

// confirm returns a conflict if the hub does not have a resource as it is given.
func (j *Journals) confirm(ctx context.Context, of Subject) error {
	now := of.DeepCopyObject().(Subject)
	err := j.Live.Get(ctx, client.ObjectKeyFromObject(of), now)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && now.GetUID() == of.GetUID() && now.GetResourceVersion() == of.GetResourceVersion() {
		return nil
	}
	kind := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: of.Subject().Kind}
	return apierrors.NewConflict(kind, of.GetName(), errors.New("it has changed, or is gone"))
}

// write changes the journal of a resource, which it creates if there is none.
func (j *Journals) write(ctx context.Context, of Subject, change func(*v1alpha1.JournalSpec)) error {
	err := retry.OnError(retry.DefaultRetry, isRace, func() error {
		kept := &v1alpha1.Journal{}
		err := j.Live.Get(ctx, client.ObjectKey{Namespace: of.GetNamespace(), Name: string(v1alpha1.UIDOf(of))}, kept)
		isNew := apierrors.IsNotFound(err)
		if err != nil && !isNew {
			return err
		}
		change(&kept.Spec)
		if n := len(kept.Spec.Events); n > v1alpha1.MostJournalEvents {
			kept.Spec.Events = kept.Spec.Events[n-v1alpha1.MostJournalEvents:]
		}
		if kept.Spec.Events == nil {
			kept.Spec.Events = []v1alpha1.Event{} // null is not valid
		}
		if err := j.page(ctx, of, &kept.Spec); err != nil {
			return err
		}
		if !isNew {
			return j.Client.Update(ctx, kept)
		}
		kept.ObjectMeta = metav1.ObjectMeta{Namespace: of.GetNamespace(), Name: string(v1alpha1.UIDOf(of))}
		kept.Spec.EventSubject = of.Subject()
		return j.Client.Create(ctx, kept)
	})
	if err != nil {
		return fmt.Errorf("write the journal of %s %s: %w", of.Subject().Kind, of.GetName(), err)
	}
	return nil
}

// page moves the usage and the contracts that a journal has too much of, the oldest first, to journals of their own. A
// kill before the journal itself is written leaves them in both, which the next call puts right.
func (j *Journals) page(ctx context.Context, of Subject, kept *v1alpha1.JournalSpec) error {
	for len(kept.Usage) > v1alpha1.MostJournalPeriods {
		older := kept.Usage[:v1alpha1.MostJournalPeriods/2]
		first := sha256.Sum256([]byte(older[0].Cluster + " " + older[0].From.UTC().Format(time.RFC3339)))
		err := j.addPage(ctx, of, v1alpha1.JournalPage+hex.EncodeToString(first[:8]), older[len(older)-1].To, v1alpha1.JournalSpec{Usage: older})
		if err != nil {
			return err
		}
		kept.Usage = kept.Usage[len(older):]
	}
	for len(kept.Contracts) > v1alpha1.MostJournalContracts {
		older := kept.Contracts[:v1alpha1.MostJournalContracts/2]
		err := j.addPage(ctx, of, v1alpha1.JournalContracts+strconv.FormatInt(older[0].Number, 10), older[len(older)-1].To, v1alpha1.JournalSpec{Contracts: older})
		if err != nil {
			return err
		}
		kept.Contracts = kept.Contracts[len(older):]
	}
	return nil
}

// addPage creates a further journal of a resource, unless there is one of that name. End is when the last of it ended.
func (j *Journals) addPage(ctx context.Context, of Subject, name string, end *metav1.Time, page v1alpha1.JournalSpec) error {
	last := metav1.NewMicroTime(end.Time)
	page.EventSubject, page.EndedAt, page.Events = of.Subject(), &last, []v1alpha1.Event{}
	return client.IgnoreAlreadyExists(j.Client.Create(ctx, &v1alpha1.Journal{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.GetNamespace(), Name: string(v1alpha1.UIDOf(of)) + name}, Spec: page,
	}))
}

// isRace reports whether somebody else has just written the same journal.
func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
