package gauges

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/placement"
)

// Gauges are the metrics. Start must run for them to have values. They are safe for concurrent use.
type Gauges struct {
	cache cache.Cache
	names journal.Names
	clock clock.PassiveClock

	mu sync.Mutex
	// instances and bindings by plan and state.
	instances, bindings map[group]int
	// waiting instances by name, since when they do.
	waiting map[string]waiter
	// reserved on each cluster by instances.
	reserved map[string]placement.Resources
	clusters map[string]*placement.Cluster
	ready    map[string]bool // the clusters that take instances
	// peerings that there are, and whether they are ready.
	peerings map[pair]bool
}

// plan is a plan by its ids.
type plan struct{ serviceID, planID string }

// group is a state of a plan's instances or bindings.
type group struct {
	plan
	state string
}

type waiter struct {
	plan
	since time.Time
}

// pair is the two clusters of a peering.
type pair struct{ consumer, provider string }

// New returns gauges of what a cache has.
func New(in cache.Cache, names journal.Names, clock clock.PassiveClock) *Gauges {
	return &Gauges{
		cache: in, names: names, clock: clock, instances: map[group]int{}, bindings: map[group]int{}, waiting: map[string]waiter{},
		reserved: map[string]placement.Resources{}, clusters: map[string]*placement.Cluster{}, ready: map[string]bool{}, peerings: map[pair]bool{},
	}
}

// NeedLeaderElection makes every replica follow the cache.
func (*Gauges) NeedLeaderElection() bool { return false }

// Start follows the cache until ctx ends.
func (g *Gauges) Start(ctx context.Context) error {
	for _, kind := range []client.Object{&v1alpha1.ServiceInstance{}, &v1alpha1.ServiceBinding{}, &v1alpha1.MemberCluster{}, &v1alpha1.Peering{}} {
		informer, err := g.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { g.see(nil, o) },
			UpdateFunc: g.see,
			DeleteFunc: func(o any) {
				if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				g.see(o, nil)
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }() // the cache stops with ctx
	}
	<-ctx.Done()
	return nil
}

// see replaces what an object counted, nil if it is new, by what it counts, nil if it is gone.
func (g *Gauges) see(was, is any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(was, -1)
	g.count(is, 1)
}

// count adds what an object counts, or takes it back.
func (g *Gauges) count(o any, sign int) {
	switch o := o.(type) {
	case *v1alpha1.ServiceInstance:
		of := plan{o.Spec.ServiceID, o.StateInForce().PlanID}
		state := stateOfInstance(o)
		if o.Spec.Pool == nil { // the consumer's counts, by which a pool has ordered it
			add(g.instances, group{of, state}, sign)
		}
		if delete(g.waiting, o.Name); state == stateWaiting && sign > 0 {
			g.waiting[o.Name] = waiter{of, o.Status.Operation.StartedAt.Time}
		}
		for cluster, held := range placement.Ledger(&o.Status) {
			if g.reserved[cluster] == nil {
				g.reserved[cluster] = placement.Resources{}
			}
			for name, amount := range held {
				add(g.reserved[cluster], name, int64(sign)*amount)
			}
			if len(g.reserved[cluster]) == 0 {
				delete(g.reserved, cluster)
			}
		}
	case *v1alpha1.ServiceBinding:
		if o.IsOfPool() {
			return
		}
		add(g.bindings, group{plan{o.Spec.ServiceID, o.Spec.PlanID}, stateOfBinding(o)}, sign)
	case *v1alpha1.MemberCluster:
		delete(g.clusters, o.Name)
		delete(g.ready, o.Name)
		if sign > 0 {
			g.clusters[o.Name] = placement.ClusterOf(o, g.clock.Now())
			g.ready[o.Name] = meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReady)
		}
	case *v1alpha1.Peering:
		of := pair{o.Spec.Consumer, o.Spec.Provider}
		delete(g.peerings, of)
		if sign > 0 {
			g.peerings[of] = meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReady)
		}
	}
}

// add adds an amount, and drops what is zero.
func add[K comparable, V int | int64](to map[K]V, key K, amount V) {
	if to[key] += amount; to[key] == 0 {
		delete(to, key)
	}
}

// capacity is an amount of a resource in a region.
type capacity struct {
	region string
	name   corev1.ResourceName
}
