package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errDeleted reports that the awaited object has been deleted.
var errDeleted = errors.New("deleted")

// rewatch is the pause before a broken watch is started again.
const rewatch = 100 * time.Millisecond

// await watches one object, starting from the given state, until done returns true. It
// always returns the last known state. The error is errDeleted if the object, or this
// incarnation of it, is gone, and the context's error if the context ends first. list is an
// empty list of the object's kind.
func await[T client.Object](ctx context.Context, hub client.WithWatch, object T, list client.ObjectList, done func(T) bool) (T, error) {
	for !done(object) {
		latest, err := follow(ctx, hub, object, list, done)
		object = latest
		if err != nil {
			return object, err
		}
		if done(object) {
			break
		}
		// The watch has ended, as servers may do at any time. Events may have been missed.
		select {
		case <-ctx.Done():
			return object, ctx.Err()
		case <-time.After(rewatch):
		}
		fresh := object.DeepCopyObject().(T)
		if err := hub.Get(ctx, client.ObjectKeyFromObject(object), fresh); apierrors.IsNotFound(err) || err == nil && fresh.GetUID() != object.GetUID() {
			return object, errDeleted
		} else if err != nil {
			return object, fmt.Errorf("read %s: %w", object.GetName(), err)
		}
		object = fresh
	}
	return object, nil
}

// follow watches the object once. It returns nil when done returns true or the watch has
// ended.
func follow[T client.Object](ctx context.Context, hub client.WithWatch, object T, list client.ObjectList, done func(T) bool) (T, error) {
	events, err := hub.Watch(ctx, list, &client.ListOptions{
		Namespace:     object.GetNamespace(),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", object.GetName()),
		Raw:           &metav1.ListOptions{ResourceVersion: object.GetResourceVersion()},
	})
	if err != nil {
		if ctx.Err() != nil {
			return object, ctx.Err()
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return object, nil
		}
		return object, fmt.Errorf("watch %s: %w", object.GetName(), err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return object, ctx.Err()
		case event, open := <-events.ResultChan():
			if !open || event.Type == watch.Error {
				return object, ctx.Err()
			}
			seen, ok := event.Object.(T)
			if !ok {
				continue // a bookmark of another type
			}
			if event.Type == watch.Deleted || seen.GetUID() != object.GetUID() {
				return object, errDeleted
			}
			if object = seen; done(object) {
				return object, nil
			}
		}
	}
}
