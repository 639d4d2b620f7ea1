package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
)

// Entry is an event, and the resource to which it happened. UID and Sequence identify it.
type Entry struct {
	v1alpha1.EventSubject
	UID types.UID `json:"uid"`
	v1alpha1.Event
}

// Read returns the events of a namespace that a filter selects, the oldest first: those in the status of
// resources, and those in journals. The reader must be live. What happens meanwhile may be missing. What happened before is
// not, and nothing is repeated.
func Read(ctx context.Context, hub client.Reader, namespace string, has func(Entry) bool) ([]Entry, error) {
	all := []Entry{}
	type span struct{ first, last int64 }
	known := map[types.UID]span{} // the events of each resource that were in its status
	var lists []client.ObjectList
	for _, kind := range Kinds {
		lists = append(lists, kind.List())
	}
	// Events go from a status to its journal. Read in this order, none is missed.
	lists = append(lists, &v1alpha1.JournalList{})
	for _, list := range lists {
		err := pages.Each(ctx, hub, list, func(o client.Object) error {
			uid, entries := entriesOf(o)
			before, isKnown := known[uid]
			for _, e := range entries {
				if (!isKnown || e.Sequence < before.first || e.Sequence > before.last) && has(e) {
					all = append(all, e)
				}
			}
			if !isKnown && len(entries) > 0 {
				known[uid] = span{entries[0].Sequence, entries[len(entries)-1].Sequence}
			}
			return nil
		}, client.InNamespace(namespace))
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(a.At.Compare(b.At.Time), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Sequence, b.Sequence))
	})
	return all, nil
}

// Of returns all events of one resource that is not removed, the oldest first.
func Of(ctx context.Context, hub client.Reader, resource Subject) ([]v1alpha1.Event, error) {
	var kept v1alpha1.Journal
	err := hub.Get(ctx, client.ObjectKey{Namespace: resource.GetNamespace(), Name: string(v1alpha1.UIDOf(resource))}, &kept)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	return after(kept.Spec.Events, *resource.History()), nil
}

// Since returns the events of a resource after the one with a sequence number, the oldest first: resource is nil if it
// is gone. It asks the hub only for what the resource itself has no more.
func Since(ctx context.Context, hub client.Reader, namespace string, uid types.UID, resource Subject, last int64) ([]Entry, error) {
	if resource == nil {
		return missing(ctx, hub, namespace, uid, last, math.MaxInt64)
	}
	_, entries := entriesOf(resource)
	return since(ctx, hub, namespace, uid, entries, last)
}

// since returns the events after a sequence number, of which a resource has the latest.
func since(ctx context.Context, hub client.Reader, namespace string, uid types.UID, latest []Entry, last int64) ([]Entry, error) {
	if len(latest) == 0 {
		return nil, nil
	}
	first := latest[0].Sequence
	if first <= last+1 {
		return slices.DeleteFunc(latest, func(e Entry) bool { return e.Sequence <= last }), nil
	}
	before, err := missing(ctx, hub, namespace, uid, last, first)
	return append(before, latest...), err
}

// after returns the events of a journal, and then those that it lacks.
func after(kept, latest []v1alpha1.Event) []v1alpha1.Event {
	last := v1alpha1.LastSequence(kept)
	return append(kept, slices.DeleteFunc(slices.Clone(latest), func(e v1alpha1.Event) bool { return e.Sequence <= last })...)
}

// entriesOf returns the UID of the resource that an object is, or whose journal it is, and the events in it.
func entriesOf(o client.Object) (types.UID, []Entry) {
	uid, subject, events := v1alpha1.UIDOf(o), v1alpha1.EventSubject{}, []v1alpha1.Event(nil)
	switch o := o.(type) {
	case *v1alpha1.Journal:
		uid, subject, events = types.UID(o.Name), o.Spec.EventSubject, o.Spec.Events
	case Subject:
		subject, events = o.Subject(), *o.History()
	}
	entries := make([]Entry, len(events))
	for i, e := range events {
		entries[i] = Entry{EventSubject: subject, UID: uid, Event: e}
	}
	return uid, entries
}

// missing returns the events of a resource between two sequence numbers, exclusive, that its journal has.
func missing(ctx context.Context, hub client.Reader, namespace string, uid types.UID, from, to int64) ([]Entry, error) {
	var kept v1alpha1.Journal
	err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: string(uid)}, &kept)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, entries := entriesOf(&kept)
	return slices.DeleteFunc(entries, func(e Entry) bool { return e.Sequence <= from || e.Sequence >= to }), nil
}

// User names an end user: by the member of the identity that OSB's profile defines for the platform
// (OSB 2.17 profile, "Originating Identity Header"), or else by the whole identity; "" if there is none.
func User(by *v1alpha1.OriginatingIdentity) string {
	if by == nil {
		return ""
	}
	var known struct {
		UserID   string `json:"user_id"`
		Username string `json:"username"`
	}
	if err := json.Unmarshal(by.Value.Raw, &known); err != nil {
		return string(by.Value.Raw)
	}
	return cmp.Or(known.Username, known.UserID, string(by.Value.Raw))
}
