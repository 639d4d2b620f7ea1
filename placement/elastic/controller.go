package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// Controller creates clusters for instances that fit nowhere, adds them to the inventory and gives them
// back (v1alpha1.Elastic). All of its state is on the hub: its own instances, labelled with their
// policy, and the member clusters made from them. Each pass continues from there, so that a kill leaves
// nothing half done and nothing twice: an instance's name follows from its policy and the lowest free
// number.
//
//	no instance → being made → delivered → member cluster → retired → member cluster gone → no instance
type Controller struct {
	// Client reads from the cache: a stale read fails when it is written.
	Client client.Client
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Catalog that knows the plans of the clusters.
	Catalog *catalog.Catalog
	// Inventory in which instances wait for room.
	Inventory *placement.Inventory
	// Join registers Sluice on the cluster that was made for an instance on a management
	// cluster, and returns the access of that member cluster. It is idempotent.
	Join func(ctx context.Context, management, instance string, member *v1alpha1.MemberCluster) (v1alpha1.ClusterAccess, error)
	// Leadership of this replica; nil means that there is no other.
	Leadership interface{ Confirm(context.Context) error }
	// Clock; nil means the real one.
	Clock clock.WithTicker

	// of selects the objects of a policy, or of all policies if it is empty.
	of func(policy string) client.ListOption

	mu sync.Mutex
	// promises describe, by the name of a waiting instance, what is being made for it.
	promises map[string]string
	// idle is since when no instance is placed on a cluster. It starts anew after a restart.
	idle map[string]time.Time
}

// SetupWithManager registers the controller, which runs on the leader only, and its index.
func (e *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if e.Clock == nil {
		e.Clock = clock.RealClock{}
	}
	e.of = func(policy string) client.ListOption { return client.MatchingFields{fieldPolicy: policy} }
	e.idle = map[string]time.Time{}
	return errors.Join(indexPolicies(mgr), mgr.Add(e))
}

// every is the time between two passes.
const every = time.Second

// NeedLeaderElection returns true: only the leader creates clusters.
func (*Controller) NeedLeaderElection() bool { return true }

// Start makes a pass every second, until the context ends.
func (e *Controller) Start(ctx context.Context) error {
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
				log.FromContext(ctx).Error(err, "Could not see to elastic clusters")
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
	i := slices.IndexFunc(s.members, func(m v1alpha1.MemberCluster) bool { return m.Name == v1alpha1.MadeClusterName(instance.Name) })
	if i < 0 {
		return nil
	}
	return &s.members[i]
}

// see advances each cluster of one policy by one step, and begins the clusters that are needed.
func (e *Controller) see(ctx context.Context, p *placement.Policy, promises map[string]string) error {
	has, err := e.fleet(ctx, e.of(p.Name))
	if err != nil {
		return err
	}
	t, err := newTemplate(p, e.Catalog.Snapshot())
	if err != nil {
		return err
	}
	var problems []error
	coming := map[string]string{} // its progress, by the name of the cluster
	for i := range has.instances {
		progress, err := e.advance(ctx, t, &has.instances[i], has.member(&has.instances[i]))
		if err != nil {
			problems = append(problems, err)
		}
		if progress != "" {
			coming[v1alpha1.MadeClusterName(has.instances[i].Name)] = progress
		}
	}
	problems = append(problems, e.makeMore(ctx, t, has, coming, promises))
	return errors.Join(problems...)
}

// makeMore begins the clusters that waiting instances need, and sets their promises.
func (e *Controller) makeMore(ctx context.Context, t *template, has *fleet, coming map[string]string, promises map[string]string) error {
	tried := &trial{template: t, has: t.measured(e.Inventory.Snapshot(), has), room: max(int(t.Elastic.AtMost)-len(has.instances), 0)}
	for name := range coming {
		tried.coming = append(tried.coming, name)
	}
	slices.Sort(tried.coming)
	snapshot := e.Inventory.Snapshot()
	for i := range has.instances {
		instance := &has.instances[i]
		if c := t.growing(snapshot, instance, has.member(instance)); c != nil {
			tried.growing = append(tried.growing, c)
			coming[c.Name] = "it grows" // for the promises; the cluster exists already
		}
	}
	tried.growths = t.growths(snapshot, has)
	wanted := tried.demand(e.Inventory)
	begin, hindrance, err := e.mayBegin(t, has, wanted.more)
	for instance, cluster := range wanted.waits {
		switch progress, made := coming[cluster]; {
		case wanted.grow[cluster] > 0:
			promises[instance] = fmt.Sprintf("policy %s has cluster %s grow by %d for it", t.Name, cluster, wanted.grow[cluster])
		case made:
			promises[instance] = fmt.Sprintf("policy %s has cluster %s made for it: %s", t.Name, cluster, progress)
		case hindrance != "":
			promises[instance] = fmt.Sprintf("policy %s would have a cluster made for it, but %s", t.Name, hindrance)
		default:
			promises[instance] = fmt.Sprintf("policy %s has a cluster made for it", t.Name)
		}
	}
	if err != nil {
		return err
	}
	for i := range tried.growths {
		g := &tried.growths[i]
		if workers := wanted.grow[g.cluster.Name]; workers > 0 {
			if err := e.grow(ctx, g, workers); err != nil {
				return err
			}
		}
	}
	taken := map[string]bool{}
	for i := range has.instances {
		taken[has.instances[i].Name] = true
	}
	for ordinal := 1; begin > 0; ordinal++ {
		order := t.order(e.Namespace, ordinal)
		if taken[order.Name] {
			continue
		}
		log.FromContext(ctx).Info("Making a cluster", "policy", t.Name, "cluster", v1alpha1.MadeClusterName(order.Name), "for", len(wanted.waits))
		err := e.Client.Create(ctx, order)
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache does not show it yet
		}
		if err != nil {
			return fmt.Errorf("order a cluster: %w", err)
		}
		begin--
	}
	return nil
}

// grow updates a cluster to more workers, as its owner would.
func (e *Controller) grow(ctx context.Context, g *growth, workers int) error {
	parameters := map[string]any{}
	if raw := g.instance.Spec.Desired.Raw(); raw != nil {
		if err := json.Unmarshal(raw, &parameters); err != nil {
			return fmt.Errorf("read the parameters of %s: %w", g.instance.Name, err)
		}
	}
	pools, _ := parameters["workers"].(map[string]any)
	if pools == nil {
		pools = map[string]any{}
	}
	pools[g.pool] = int(g.now) + workers
	parameters["workers"] = pools
	document, err := json.Marshal(parameters)
	if err != nil {
		return err
	}
	log.FromContext(ctx).Info("Growing a cluster", "cluster", g.cluster.Name, "pool", g.pool, "from", g.now, "to", int(g.now)+workers)
	g.instance.Spec.Desired.Parameters = &runtime.RawExtension{Raw: document}
	err = e.Client.Update(ctx, g.instance) // a conflict is retried with the new state
	if err != nil {
		return fmt.Errorf("have cluster %s grow: %w", g.cluster.Name, err)
	}
	return nil
}

// mayBegin returns how many of the needed clusters may be begun now, and what prevents the
// others.
func (e *Controller) mayBegin(t *template, has *fleet, needed int) (begin int, hindrance string, err error) {
	if needed == 0 {
		return 0, "", nil
	}
	spent := int64(0)
	for i := range has.instances {
		last := &has.instances[i]
		if until := t.coolsUntil(last); until.After(e.Clock.Now()) {
			hindrance = "the last one was begun only at " + last.CreationTimestamp.UTC().Format(time.TimeOnly)
			if failedToMake(last) {
				hindrance = "the last one failed: " + last.Status.Operation.Description
			}
			return 0, hindrance + "; the next one waits until " + until.UTC().Format(time.TimeOnly) + " UTC", nil
		}
		if d := has.instances[i].Status.Decision; d != nil && len(d.Placements) > 0 && d.Placements[0].PricePerHour != nil {
			spent += d.Placements[0].PricePerHour.ScaledValue(-9)
		}
	}
	fork := e.Inventory.Fork()
	for begin < needed {
		order := t.order(e.Namespace, len(has.instances)+begin+1)
		r, err := placement.NewRequest(order.Name, t.plan, t.parameters)
		if err != nil {
			return begin, "", err
		}
		r = fork.Snapshot().Govern(r, placement.ConsumerOf(order))
		r.At = e.Clock.Now()
		d, err := fork.Place(r)
		if unplaceable, ok := placement.AsUnplaceable(err); ok {
			return begin, "no management cluster takes it: " + unplaceable.Error(), nil
		}
		if err != nil {
			return begin, "", err
		}
		budget := placement.PriceOf(t.Elastic.Budget)
		if price := d.Placements[0].Price; budget != nil && price != nil {
			if price.Currency != budget.Currency {
				return begin, fmt.Sprintf("it costs %s, and the budget is in %s", price, budget.Currency), nil
			}
			if spent += price.NanoPerHour; spent > budget.NanoPerHour {
				return begin, fmt.Sprintf("with it all would cost %s, and the budget is %s", placement.Price{Currency: budget.Currency, NanoPerHour: spent}, budget), nil
			}
		}
		begin++
	}
	return begin, "", nil
}

// advance advances one cluster by one step. progress describes what is missing until it is a
// member cluster that takes placements; empty if it is one, or is being given back.
func (e *Controller) advance(ctx context.Context, t *template, instance *v1alpha1.ServiceInstance, member *v1alpha1.MemberCluster) (progress string, err error) {
	op := instance.Status.Operation
	switch {
	case !instance.DeletionTimestamp.IsZero():
		return "", nil
	case instance.Annotations[v1alpha1.AnnotationRetired] != "":
		return "", e.giveBack(ctx, instance, member)
	case failedToMake(instance) && t.coolsUntil(instance).After(e.Clock.Now()):
		return "", nil // the next one waits as long, and states why
	case failedToMake(instance):
		log.FromContext(ctx).Info("A cluster could not be made", "policy", t.Name, "cluster", v1alpha1.MadeClusterName(instance.Name), "reason", op.Description)
		return "", e.retire(ctx, instance)
	case instance.Status.Delivered == nil:
		if op == nil || op.Description == "" {
			return "begun", nil
		}
		return op.Description, nil
	case member == nil:
		return "it is there, and joins the inventory", e.takeIn(ctx, t, instance)
	}
	c := e.Inventory.Snapshot().Cluster(member.Name)
	if c == nil || !c.Ready || !c.AccessVerified || len(c.Allocatable) == 0 {
		return "it is there, and joins the inventory", nil
	}
	if e.idleFor(member.Name) >= time.Duration(t.Elastic.IdleSeconds)*time.Second {
		return "", e.retire(ctx, instance)
	}
	return "", nil
}

func failedToMake(instance *v1alpha1.ServiceInstance) bool {
	op := instance.Status.Operation
	return op != nil && op.State == v1alpha1.StateFailed && instance.Status.Delivered == nil
}

// coolsUntil returns when the next cluster may be begun after this one.
func (t *template) coolsUntil(instance *v1alpha1.ServiceInstance) time.Time {
	return instance.CreationTimestamp.Add(time.Duration(t.Elastic.CoolDownSeconds) * time.Second)
}

// idleFor returns how long nothing has been placed on a cluster, as far as this process knows.
func (e *Controller) idleFor(cluster string) time.Duration {
	if len(e.Inventory.Snapshot().Reservations(cluster)) > 0 {
		delete(e.idle, cluster)
		return 0
	}
	if _, known := e.idle[cluster]; !known {
		e.idle[cluster] = e.Clock.Now()
	}
	return e.Clock.Since(e.idle[cluster])
}

// takeIn makes the cluster a member cluster.
func (e *Controller) takeIn(ctx context.Context, t *template, instance *v1alpha1.ServiceInstance) error {
	placed := instance.Status.Delivered.Decision.Placements
	if len(placed) == 0 {
		return nil
	}
	var addOns []v1alpha1.AddOn
	if made := placed[0].Made; made != nil {
		addOns = made.AddOns
	}
	member := t.member(v1alpha1.MadeClusterName(instance.Name), e.Namespace, addOns)
	var err error
	if member.Spec.Access, err = e.Join(ctx, placed[0].Cluster, instance.Name, member); err != nil {
		return fmt.Errorf("take cluster %s into the inventory: %w", member.Name, err)
	}
	err = e.Client.Create(ctx, member)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("take cluster %s into the inventory: %w", member.Name, err)
	}
	return nil
}

// retire records that the cluster is to be given back, before anything else is done. Only the
// leader knows that nothing is placed there.
func (e *Controller) retire(ctx context.Context, instance *v1alpha1.ServiceInstance) error {
	if e.Leadership != nil {
		if err := e.Leadership.Confirm(ctx); err != nil {
			return err
		}
	}
	log.FromContext(ctx).Info("Giving a cluster back", "cluster", v1alpha1.MadeClusterName(instance.Name))
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationRetired))
	err := e.Client.Patch(ctx, instance, patch)
	return client.IgnoreNotFound(err)
}

// giveBack removes the cluster from the inventory, which waits until nothing is placed there
// any more, and then deletes it.
func (e *Controller) giveBack(ctx context.Context, instance *v1alpha1.ServiceInstance, member *v1alpha1.MemberCluster) error {
	var object client.Object = instance
	if member != nil {
		object = member
		delete(e.idle, member.Name)
	}
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := e.Client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())}) // not a new one of the same name
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("give back cluster %s: %w", v1alpha1.MadeClusterName(instance.Name), err)
	}
	return nil
}

// seeToOrphans retires the clusters of policies that make clusters no more, as soon as nothing
// is placed on them.
func (e *Controller) seeToOrphans(ctx context.Context, policies []*placement.Policy) error {
	has, err := e.fleet(ctx, e.of(""))
	if err != nil {
		return err
	}
	var problems []error
	for i := range has.instances {
		instance := &has.instances[i]
		of := instance.Labels[v1alpha1.LabelElastic]
		if !instance.DeletionTimestamp.IsZero() || slices.ContainsFunc(policies, func(p *placement.Policy) bool { return p.Name == of }) {
			continue
		}
		member := has.member(instance)
		switch {
		case instance.Annotations[v1alpha1.AnnotationRetired] != "":
			problems = append(problems, e.giveBack(ctx, instance, member))
		case member == nil || len(e.Inventory.Snapshot().Reservations(member.Name)) == 0:
			problems = append(problems, e.retire(ctx, instance))
		}
	}
	return errors.Join(problems...)
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
