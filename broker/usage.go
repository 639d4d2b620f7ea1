package broker

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// defaultInstances and defaultHeldBytes limit what a platform may keep on the hub.
	defaultInstances = 50_000
	defaultHeldBytes = 512 << 20
	// objectBytes is the number of bytes that an instance or a binding counts in addition to its
	// request.
	objectBytes = 4 << 10
	// unseenFor is how long an object is counted that the cache does not show.
	unseenFor = time.Minute
	// countTime is how long a request waits, after a start, for everything to be counted.
	countTime = 30 * time.Second
)

// Limits are the greatest amounts that a platform may keep on the hub.
type Limits struct {
	// Instances that exist at the same time.
	Instances int64
	// Bytes of its instances and bindings: the bytes that it sent, of which the hub stores up to
	// three copies, plus 4 KiB for each.
	Bytes int64
}

// Usage counts what each platform keeps on the hub. It follows the manager's cache and
// counts at once what this replica creates; it learns of other replicas' objects within
// moments. Concurrent requests may therefore exceed a limit, by no more than their own
// number.
type Usage struct {
	clock     clock.PassiveClock
	counted   chan struct{} // closed when the objects that were there before have been counted
	mu        sync.Mutex
	objects   map[string]weight    // by kind and name
	unseen    map[string]time.Time // when those were created that the cache has not shown yet
	platforms map[string]Limits    // the sum for each platform
	quotas    quotas
}

// weight is the usage of one object.
type weight struct {
	platform string
	Limits
	// instance is the name of a binding's instance; holders are those of an instance.
	instance string
	holders  []string
}

// NewUsage returns an empty count, which is of use once Follow has counted what is there.
func NewUsage(c clock.PassiveClock) *Usage {
	return &Usage{clock: c, counted: make(chan struct{}), objects: map[string]weight{}, unseen: map[string]time.Time{}, platforms: map[string]Limits{}, quotas: newQuotas()}
}

// Follow counts the objects in the cache until ctx ends.
func (u *Usage) Follow(ctx context.Context, in ctrlcache.Cache) error {
	var seen []cache.InformerSynced
	for _, kind := range []client.Object{&v1alpha1.ServiceInstance{}, &v1alpha1.ServiceBinding{}, &v1alpha1.PlacementPolicy{}} {
		informer, err := in.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { u.see(o.(client.Object)) },
			UpdateFunc: func(_, o any) { u.see(o.(client.Object)) },
			DeleteFunc: u.drop,
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // the cache stops with ctx
		seen = append(seen, registration.HasSynced)
	}
	if cache.WaitForCacheSync(ctx.Done(), seen...) {
		close(u.counted)
	}
	<-ctx.Done()
	return nil
}

// admit returns an error if a platform may not keep an object, which replaces an object of
// the same name; nil if it may. After a start it blocks until everything is counted, for at most
// countTime.
func (u *Usage) admit(ctx context.Context, platform *Platform, o client.Object) error {
	if err := u.awaitCount(ctx); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.check(platform, o)
	if err != nil && u.forget() {
		err = u.check(platform, o)
	}
	return err
}

// awaitCount blocks until everything is counted. Once it is, it returns nil even if ctx has ended: a
// request is carried out although its client has hung up.
func (u *Usage) awaitCount(ctx context.Context) error {
	select {
	case <-u.counted:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	select {
	case <-u.counted:
		return nil
	case <-ctx.Done():
		return &Error{Status: http.StatusServiceUnavailable, Code: codeUnavailable, RetryAfter: time.Second, Err: ctx.Err(),
			Description: "The service broker has just started, and is still counting what the platform keeps."}
	}
}

// check returns an error if, by the present count, a platform may not keep an object.
func (u *Usage) check(platform *Platform, o client.Object) error {
	held, added, before := u.platforms[platform.Name], weigh(o).Limits, u.objects[keyOf(o)].Limits
	switch {
	case added.Instances > before.Instances && held.Instances >= platform.Limits.Instances:
		return limitReached("It has %d service instances, which is as many as it may have at once", held.Instances)
	case added.Bytes > before.Bytes && held.Bytes+added.Bytes-before.Bytes > platform.Limits.Bytes:
		return limitReached("Its service instances and bindings take %d bytes of the %d that they may", held.Bytes, platform.Limits.Bytes)
	}
	return nil
}

func limitReached(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeLimitReached, Description: "The platform has reached a limit of this broker. " +
		fmt.Sprintf(format, args...) + ". Delete some that are not needed any more, or ask the broker's operator to raise the limit."}
}

// forget stops counting what the cache has not shown for too long: it was created and deleted
// while the cache did not look. It reports whether there was any.
func (u *Usage) forget() (forgot bool) {
	for key, since := range u.unseen {
		if u.clock.Since(since) > unseenFor {
			u.replace(key, weight{})
			forgot = true
		}
	}
	return forgot
}

// put counts an object that was created just now.
func (u *Usage) put(o client.Object) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count(o)
}

func (u *Usage) count(o client.Object) {
	key := keyOf(o)
	if _, seen := u.objects[key]; !seen {
		u.replace(key, weigh(o))
		u.unseen[key] = u.clock.Now()
	}
}

// withdraw stops counting an object that could not be created, unless the cache shows it.
func (u *Usage) withdraw(o client.Object) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, unseen := u.unseen[keyOf(o)]; unseen {
		u.replace(keyOf(o), weight{})
	}
}

// see counts an object in the state that the cache shows.
func (u *Usage) see(o client.Object) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if policy, ok := o.(*v1alpha1.PlacementPolicy); ok {
		u.quotas.policies[policy.Name] = policy
		return
	}
	u.replace(keyOf(o), weigh(o))
}

// drop stops counting an object. The cache may have missed the object's last state.
func (u *Usage) drop(o any) {
	if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = missed.Obj
	}
	if gone, ok := o.(client.Object); ok {
		u.mu.Lock()
		defer u.mu.Unlock()
		if policy, ok := gone.(*v1alpha1.PlacementPolicy); ok {
			delete(u.quotas.policies, policy.Name)
			return
		}
		u.replace(keyOf(gone), weight{})
	}
}

func (u *Usage) replace(key string, now weight) {
	delete(u.unseen, key)
	if before, counted := u.objects[key]; counted {
		u.add(before.platform, -before.Instances, -before.Bytes)
		u.quotas.add(key, before, -1)
		delete(u.objects, key)
	}
	if now.platform != "" {
		u.add(now.platform, now.Instances, now.Bytes)
		u.quotas.add(key, now, 1)
		u.objects[key] = now
	}
}

func (u *Usage) add(platform string, instances, bytes int64) {
	held := u.platforms[platform]
	held.Instances, held.Bytes = held.Instances+instances, held.Bytes+bytes
	u.platforms[platform] = held
}

func keyOf(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }

func keyOfInstance(name string) string {
	return fmt.Sprintf("%T %s", &v1alpha1.ServiceInstance{}, name)
}

func weigh(o client.Object) weight {
	w := weight{Limits: Limits{Bytes: objectBytes}}
	var identity *v1alpha1.OriginatingIdentity
	switch o := o.(type) {
	case *v1alpha1.ServiceInstance:
		w.platform, w.Instances, identity, w.holders = o.Spec.Platform, 1, o.Spec.OriginatingIdentity, holdersOf(o)
		w.Bytes += int64(len(rawOf(o.Spec.Desired.Parameters)) + len(rawOf(o.Spec.Desired.Context)))
	case *v1alpha1.ServiceBinding:
		w.platform, identity, w.instance = o.Spec.Platform, o.Spec.OriginatingIdentity, o.Spec.InstanceName
		w.Bytes += int64(len(rawOf(o.Spec.Parameters)) + len(rawOf(o.Spec.Context)) + len(rawOf(o.Spec.BindResource)))
	}
	if identity != nil {
		w.Bytes += int64(len(identity.Value.Raw))
	}
	return w
}
