package journal

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Watch calls do with each event of a namespace: first with those that there are, the oldest first, then
// with others as they happen. Each is given once, and those of one resource in their order. It goes on through
// interruptions of the connection, and ends with the context, or with the first error of do.
func Watch(ctx context.Context, hub client.WithWatch, namespace string, do func(Entry) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := map[types.UID]int64{}
	all, err := Read(ctx, hub, namespace, func(Entry) bool { return true })
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := do(e); err != nil {
			return err
		}
		seen[e.UID] = max(seen[e.UID], e.Sequence)
	}
	changed := make(chan client.Object)
	for _, kind := range Kinds {
		go follow(ctx, hub, namespace, kind.New(), kind.List(), changed)
	}
	go follow(ctx, hub, namespace, &v1alpha1.Journal{}, &v1alpha1.JournalList{}, changed)
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-changed:
			uid, latest := entriesOf(o)
			entries, err := since(ctx, hub, namespace, uid, latest, seen[uid])
			if err != nil {
				return fmt.Errorf("read the journal of %s: %w", uid, err)
			}
			for _, e := range entries {
				if err := do(e); err != nil {
					return err
				}
				seen[uid] = e.Sequence
			}
		}
	}
}

// follow sends each object of a kind that there is, or that changes, until the context ends.
func follow(ctx context.Context, hub client.WithWatch, namespace string, kind client.Object, list client.ObjectList, changed chan<- client.Object) {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, Raw: &o, Limit: o.Limit, Continue: o.Continue}
	}
	send := func(o any) {
		select {
		case changed <- o.(client.Object):
		case <-ctx.Done():
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			page := list.DeepCopyObject().(client.ObjectList)
			return page, hub.List(ctx, page, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return hub.Watch(ctx, list.DeepCopyObject().(client.ObjectList), options(o))
		},
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: kind,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: send, UpdateFunc: func(_, o any) { send(o) }},
	})
	informer.RunWithContext(ctx)
}
