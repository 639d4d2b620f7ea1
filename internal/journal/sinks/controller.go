package sinks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Reasons of the condition Ready of a sink.
const (
	reasonDelivering = "Delivering"
	reasonRefusing   = "Refusing" // it does not accept events
	reasonInvalid    = "Invalid"  // it cannot be used as it is described
)

// keyEvery is the time between two looks at whether the Secret of a sink has another key.
const keyEvery = time.Minute

// refusedEvery is that time while the Secret cannot be used. The sink gets no events until then, so it is short.
const refusedEvery = 5 * time.Second

// Controller sends events to the EventSinks of the hub while this replica leads.
type Controller struct {
	// Client of the hub; its reads may come from a cache.
	Client client.Client
	// Live reads the hub without a cache.
	Live client.Reader
	// Cache of instances and bindings.
	Cache cache.Cache
	// Keys unseal the keys of sinks.
	Keys *seal.Keyset
	// Namespace of Sluice's resources.
	Namespace string
	// Hub is the hub's ID, the source of the CloudEvents.
	Hub string

	mu      sync.Mutex
	running map[string]*running
	// unusable has the times before which all events were delivered to the sinks that cannot be used as they are described.
	unusable map[string]time.Time
}

// running is a sender at work.
type running struct {
	*sender
	from  origin
	stop  context.CancelFunc
	ended chan struct{}
}

// origin is the state of a sink that a sender was made from.
type origin struct {
	uid        types.UID
	generation int64
	key        string
}

// SetupWithManager adds the controller to a manager; it runs on the leader only.
func (c *Controller) SetupWithManager(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		For(&v1alpha1.EventSink{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(requeue.OnConflict(c))
}

// Reconcile starts and stops the delivery to a sink. The delivery outlives the call, and ends with its context.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	sink := &v1alpha1.EventSink{}
	if err := c.Client.Get(ctx, request.NamespacedName, sink); err != nil {
		if client.IgnoreNotFound(err) == nil {
			c.replace(ctx, request.Name, nil, nil)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	key, err := c.key(ctx, sink)
	var next *running
	if err == nil {
		next, err = c.prepare(sink, key)
	}
	var invalid *invalidError
	if err != nil && !errors.As(err, &invalid) {
		return reconcile.Result{}, err
	}
	var refused *v1alpha1.EventSink
	if invalid != nil {
		refused = sink
	}
	c.replace(ctx, request.Name, next, refused)
	if invalid != nil && v1alpha1.SetCondition(&sink.Status.Conditions, sink.Generation, v1alpha1.ConditionReady, metav1.ConditionFalse, reasonInvalid, invalid.Error()) {
		if err := c.Client.Status().Update(ctx, sink); err != nil {
			return reconcile.Result{}, err
		}
	}
	if sink.Spec.Key.SecretName == "" {
		return reconcile.Result{}, nil
	}
	if invalid != nil {
		return reconcile.Result{RequeueAfter: refusedEvery}, nil
	}
	return reconcile.Result{RequeueAfter: keyEvery}, nil
}

// invalidError means that a sink cannot be used as it is described.
type invalidError struct{ error }

// SecretKey is the key of a Secret that has the key of a sink.
const SecretKey = "key"

// Owner returns the associated data that a sink's key is sealed with. It has no UID, because the key is sealed before
// the EventSink is created with it.
func Owner(namespace, name string) []byte { return seal.Owner("EventSink", namespace, name, "") }

// key returns the key of a sink; empty if it has none.
func (c *Controller) key(ctx context.Context, sink *v1alpha1.EventSink) (string, error) {
	name := sink.Spec.Key.SecretName
	if name == "" && len(sink.Spec.Key.Sealed) == 0 {
		return "", nil
	}
	if name == "" {
		key, err := c.Keys.Unseal(sink.Spec.Key.Sealed, Owner(sink.Namespace, sink.Name))
		if err != nil {
			return "", &invalidError{fmt.Errorf("unseal its key: %w: add the sink again", err)}
		}
		return string(key.Reveal()), nil
	}
	var secret corev1.Secret
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: sink.Namespace, Name: name}, &secret)
	switch {
	case meta.IsNoMatchError(err):
		return "", &invalidError{fmt.Errorf("this hub has no Secrets, so the key of Secret %s is to be given again: `sluice sink add %s --key-file FILE`", name, sink.Name)}
	case apierrors.IsForbidden(err):
		return "", &invalidError{fmt.Errorf("its key is in Secret %s, which Sluice may not read: allow it (memberClusterSecrets=true of the Helm chart)", name)}
	case client.IgnoreNotFound(err) != nil:
		return "", err
	}
	key := secret.Data[SecretKey]
	if err != nil || len(key) == 0 {
		return "", &invalidError{fmt.Errorf("there is no Secret %s with the key %s: create it", name, SecretKey)}
	}
	return string(key), nil
}

// prepare returns the delivery to a sink, which does not run yet; the one that runs, if it is the same.
func (c *Controller) prepare(sink *v1alpha1.EventSink, key string) (*running, error) {
	from := origin{sink.UID, sink.Generation, key}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.running[sink.Name]; now != nil && now.from == from {
		return now, nil
	}
	s, err := newSender(c, sink, key)
	if err != nil {
		return nil, &invalidError{err}
	}
	return &running{sender: s, from: from}, nil
}

// replace stops the delivery to a sink, and starts another one unless it is nil, as the sink is refused or gone. It starts
// and stops nothing if it is the same.
func (c *Controller) replace(ctx context.Context, name string, next *running, refused *v1alpha1.EventSink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unusable, name)
	if refused != nil {
		if c.unusable == nil {
			c.unusable = map[string]time.Time{}
		}
		c.unusable[name] = deliveredUntil(refused)
	}
	now := c.running[name]
	if now == next {
		return
	}
	if now != nil {
		now.stop()
		<-now.ended
		delete(c.running, name)
	}
	if next == nil {
		return
	}
	ctx, next.stop = context.WithCancel(ctx)
	next.ended = make(chan struct{})
	if c.running == nil {
		c.running = map[string]*running{}
	}
	c.running[name] = next
	go func() {
		defer close(next.ended)
		next.run(ctx)
	}()
}
