package reader

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
)

// optional is an informer of objects that a cluster may not serve, or not to Sluice. That may begin and end at any time.
type optional struct {
	cache.SharedIndexInformer
	last atomic.Pointer[refusal]
}

// refusal is an answer that objects cannot be read, with the version of those that had been read before.
type refusal struct {
	at      time.Time
	version string
}

// refusalLasts is how long a refusal counts if the next answer is of the same version. The informer asks again within a
// minute.
const refusalLasts = 2 * time.Minute

// newOptional returns an informer for which some errors are refusals. It calls changed when its objects no longer count.
func newOptional(informer cache.SharedIndexInformer, refuses func(error) bool, changed func()) *optional {
	o := &optional{SharedIndexInformer: informer}
	// It fails only if the informer has been started.
	_ = o.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if !refuses(err) {
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
			return
		}
		counted := o.isRead()
		o.last.Store(&refusal{time.Now(), reflector.LastSyncResourceVersion()})
		if counted {
			changed()
		}
	})
	return o
}

// isRead reports whether the objects have been listed, and reading them was not refused since.
func (o *optional) isRead() bool {
	last := o.last.Load()
	return o.HasSynced() && (last == nil || o.LastSyncResourceVersion() != last.version || time.Since(last.at) > refusalLasts)
}

// isAnswered reports whether the objects have been listed, or that was refused.
func (o *optional) isAnswered() bool { return o.HasSynced() || o.last.Load() != nil }
