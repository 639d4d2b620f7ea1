package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/external"
)

// Controller orders clusters for instances that fit nowhere, and gives them back (v1alpha1.Elastic).
// Their driver adds them to the inventory before they are delivered, and takes them out again before they
// are deleted. All of the controller's state is on the hub: its own instances, labelled with their policy,
// and the member clusters made from them. Each pass continues from there, so that a kill leaves nothing
// half done and nothing twice: an instance's name follows from its policy and the lowest free number.
type Controller struct {
	// Client reads from the cache: a stale read fails when it is written.
	Client client.Client
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Catalog that knows the plans of the clusters.
	Catalog *catalog.Catalog
	// Inventory in which instances wait for room.
	Inventory *placement.Inventory
	// Filled is closed when the inventory shows what the hub has; nil means that it does.
	Filled <-chan struct{}
	// Forecast of orders; nil if nobody makes one.
	Forecast func() external.Forecast
	// Leadership of this replica; nil means that there is no other.
	Leadership interface{ Confirm(context.Context) error }
	// Hold returns an error while the hub, restored from a backup, may lack instances that clusters carry; nil means that
	// it lacks none. Meanwhile no cluster is given back: it may be in use.
	Hold func(context.Context) error
	// Clock; nil means the real one.
	Clock clock.WithTicker

	// of selects the objects of a policy, or of all policies if it is empty.
	of func(policy string) client.ListOption

	mu sync.Mutex
	// promises describe, by the name of a waiting instance, what is being made for it.
	promises map[string]string
	// idle is since when a cluster has not been used. It starts anew after a restart.
	idle map[string]time.Time
	// silent is since when a cluster that has been made takes no placements. It starts anew after a restart.
	silent map[string]time.Time
	// peered are the clusters that operators keep peered, as of this pass.
	peered map[string]bool
}

// SetupWithManager registers the controller, which runs on the leader only, and its index.
func (e *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if e.Clock == nil {
		e.Clock = clock.RealClock{}
	}
	e.of = func(policy string) client.ListOption { return client.MatchingFields{fieldPolicy: policy} }
	e.idle, e.silent = map[string]time.Time{}, map[string]time.Time{}
	return errors.Join(indexPolicies(mgr), mgr.Add(e))
}

// patience is how long Sluice waits for a made cluster that takes no placements. A restart of its API server takes less,
// and making another cluster takes about as long.
const patience = 5 * time.Minute

// every is the time between two passes.
const every = time.Second

// NeedLeaderElection returns true: only the leader creates clusters.
func (*Controller) NeedLeaderElection() bool { return true }

// Start makes a pass every second from when the inventory is filled, until the context ends. Without the reservations
// and policies of the hub, a pass would give back the clusters in use.
func (e *Controller) Start(ctx context.Context) error {
	if e.Filled != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-e.Filled:
		}
	}
	tick := e.Clock.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			err := e.look(ctx)
			if err != nil && err.Error() != said {
				log.FromContext(ctx).Error(err, "Could not reconcile elastic clusters")
				said = err.Error()
			} else if err == nil {
				said = ""
			}
		}
	}
}

// Promise returns what is being made for an instance that fits nowhere; empty if nothing is.
func (e *Controller) Promise(instance string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.promises[instance]
}

// look makes a pass over every policy's clusters.
func (e *Controller) look(ctx context.Context) error {
	if err := e.readPeerings(ctx); err != nil {
		return err
	}
	var policies []*placement.Policy
	for _, p := range e.Inventory.Snapshot().Policies() {
		if p.Elastic != nil {
			policies = append(policies, p)
		}
	}
	promises := map[string]string{}
	var problems []error
	for _, p := range policies {
		if err := e.see(ctx, p, promises); err != nil {
			problems = append(problems, fmt.Errorf("policy %s: %w", p.Name, err))
		}
	}
	problems = append(problems, e.seeToOrphans(ctx, policies))
	e.tell(promises)
	return errors.Join(problems...)
}

// tell wakes the instances whose promise has changed.
func (e *Controller) tell(promises map[string]string) {
	e.mu.Lock()
	before := e.promises
	e.promises = promises
	e.mu.Unlock()
	for instance, promise := range promises {
		if before[instance] != promise {
			e.Inventory.Wake(instance)
		}
	}
}

// fleet is the clusters of a policy.
type fleet struct {
	instances []v1alpha1.ServiceInstance
	members   []v1alpha1.MemberCluster
}

func (e *Controller) fleet(ctx context.Context, which client.ListOption) (*fleet, error) {
	var instances v1alpha1.ServiceInstanceList
	if err := e.Client.List(ctx, &instances, client.InNamespace(e.Namespace), which); err != nil {
		return nil, fmt.Errorf("list its instances: %w", err)
	}
	var members v1alpha1.MemberClusterList
	if err := e.Client.List(ctx, &members, client.InNamespace(e.Namespace), which); err != nil {
		return nil, fmt.Errorf("list its member clusters: %w", err)
	}
	return &fleet{instances.Items, members.Items}, nil
}

// member returns the member cluster made from an instance; nil if there is none yet.
func (s *fleet) member(instance *v1alpha1.ServiceInstance) *v1alpha1.MemberCluster {
	i := slices.IndexFunc(s.members, func(m v1alpha1.MemberCluster) bool { return m.Name == v1alpha1.InstanceClusterName(instance.Name) })
	if i < 0 {
		return nil
	}
	return &s.members[i]
}

// see advances each cluster of one policy by one step, and begins the clusters that are needed. Clusters
// are given back also while the policy's plan or parameters are not valid.
func (e *Controller) see(ctx context.Context, p *placement.Policy, promises map[string]string) error {
	has, err := e.fleet(ctx, e.of(p.Name))
	if err != nil {
		return err
	}
	expects := e.expectations(p)
	var problems []error
	coming := map[string]string{} // its progress, by the name of the cluster
	for i := range has.instances {
		progress, err := e.advance(ctx, p, expects, &has.instances[i], has.member(&has.instances[i]))
		if err != nil {
			problems = append(problems, err)
		}
		if progress != "" {
			coming[v1alpha1.InstanceClusterName(has.instances[i].Name)] = progress
		}
	}
	t, err := newTemplate(p, e.Catalog.Snapshot())
	if err == nil {
		err = e.makeMore(ctx, t, expects, has, coming, promises)
	}
	return errors.Join(append(problems, err)...)
}

// advance advances one cluster by one step. progress describes what is missing until it is a
// member cluster that takes placements; empty if it is one, is being given back, or is not counted on.
func (e *Controller) advance(ctx context.Context, p *placement.Policy, expects *expectations, instance *v1alpha1.ServiceInstance, member *v1alpha1.MemberCluster) (progress string, err error) {
	op, name := instance.Status.Operation, v1alpha1.InstanceClusterName(instance.Name)
	switch {
	case !instance.DeletionTimestamp.IsZero():
		e.forget(name)
		return "", nil
	case instance.Status.IsFailedProvision() && coolsUntil(p, instance).After(e.Clock.Now()):
		return "", nil // the next one waits as long, and states why
	case instance.Status.IsFailedProvision():
		log.FromContext(ctx).Info("A cluster could not be created", "policy", p.Name, "cluster", name, "reason", op.Description)
		return "", e.giveBack(ctx, instance)
	case instance.Status.Delivered == nil:
		e.forget(name)
		if op == nil || op.Description == "" {
			return "begun", nil
		}
		return op.Description, nil
	}
	if silence, is := e.silentFor(name, member); is && silence < patience {
		delete(e.idle, name) // instances wait for it, and are placed on it next
		return "it is made, and is not ready at the moment", nil
	}
	if e.idleFor(name) >= time.Duration(p.Elastic.IdleSeconds)*time.Second && !expects.need(name) {
		return "", e.giveBack(ctx, instance)
	}
	return "", nil
}

// coolsUntil returns when the next cluster may be begun after this one.
func coolsUntil(p *placement.Policy, instance *v1alpha1.ServiceInstance) time.Time {
	return v1alpha1.CreatedOf(instance).Add(time.Duration(p.Elastic.CoolDownSeconds) * time.Second)
}

// fieldPolicy is the index of the manager's cache for the objects of a policy: a hub may hold
// a hundred thousand instances that belong to none.
const fieldPolicy = "elastic"

// indexPolicies registers the index.
func indexPolicies(mgr ctrl.Manager) error {
	by := func(object client.Object) []string {
		if policy := object.GetLabels()[v1alpha1.LabelElastic]; policy != "" {
			return []string{policy, ""}
		}
		return nil
	}
	for _, kind := range []client.Object{&v1alpha1.ServiceInstance{}, &v1alpha1.MemberCluster{}} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), kind, fieldPolicy, by); err != nil {
			return err
		}
	}
	return nil
}
