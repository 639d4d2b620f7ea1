package elastic

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// The number of clusters that a policy needs is found by trial. All waiting requests are placed
// on a copy of the inventory that includes the clusters being made. Requests that still fit
// nowhere are tried with one cluster more. A cluster is needed if with it a request is placed
// that was not before. So nothing is made for a request that fails for any reason other than
// capacity: it would not be placed on the new cluster either.

// template is a policy's section elastic, with the resources that it refers to.
type template struct {
	*placement.Policy
	plan       *catalog.Plan
	parameters json.RawMessage
	asked      catalog.ClusterParameters
	// worker has the capacity of a worker of each pool for workloads, and shape what decides how a cluster joins.
	worker map[string]placement.Resources
	shape  *v1alpha1.ClusterShape
	// like is a ready cluster of the policy; nil if there is none.
	like *placement.Cluster
}

// newTemplate looks up the plan of a policy's clusters.
func newTemplate(p *placement.Policy, plans *catalog.Snapshot) (*template, error) {
	plan, err := plans.Plan(p.Elastic.ServiceID, p.Elastic.PlanID)
	if err != nil {
		return nil, err
	}
	t := &template{Policy: p, plan: plan, worker: map[string]placement.Resources{}}
	if p.Elastic.Parameters != nil {
		t.parameters = p.Elastic.Parameters.Raw
	}
	if err := plan.ValidateCreate(t.parameters); err != nil {
		return nil, err
	}
	if t.asked, err = plan.ClusterParameters(t.parameters); err != nil {
		return nil, err
	}
	for _, pool := range plan.Cluster.Workers {
		t.worker[pool.Name] = placement.ResourcesOf(pool.Machine)
	}
	t.shape = &v1alpha1.ClusterShape{Version: plan.Cluster.Versions[0], AddOnsSold: plan.Cluster.AddOns, Member: p.Member(plan.Cluster)}
	if err := plan.RenderAddOns(t.order("", 0), t.shape, t.parameters); err != nil {
		return nil, err
	}
	return t, nil
}

// supposed returns a member cluster of the template as if it were ready: registration makes it enforce rules for pods. Its
// storage classes are those of another one. Of the first one they are not known, so it has none.
func (t *template) supposed(name string) *placement.Cluster {
	mc := placement.Supposed(name, t.shape)
	for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified, v1alpha1.ConditionRulesEnforced} {
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Supposed"})
	}
	mc.Status.Holes = &v1alpha1.Holes{} // of no nodes
	c := placement.ClusterOf(mc, metav1.Now().Time)
	if t.like != nil {
		c.StorageClasses, c.Unguarded = t.like.StorageClasses, t.like.Unguarded
	}
	return c.WithNodes(t.nodes(t.asked.Workers, nil))
}

// nodes returns the workers of a cluster, by their number in each pool, beyond those that it has.
func (t *template) nodes(of, has map[string]int32) (nodes []placement.Resources) {
	for _, pool := range t.plan.Cluster.Workers {
		for range of[pool.Name] - has[pool.Name] {
			nodes = append(nodes, t.worker[pool.Name])
		}
	}
	return nodes
}

// growth is how many more workers one of the template's clusters can have.
type growth struct {
	cluster  *placement.Cluster // in its current size
	instance *v1alpha1.ServiceInstance
	pool     string
	now      int32
	more     int
	worker   placement.Resources
}

// grown returns the cluster with the given number of workers more.
func (g *growth) grown(workers int) *placement.Cluster {
	return g.cluster.WithNodes(slices.Repeat([]placement.Resources{g.worker}, workers))
}

// manager returns the name of its management cluster.
func (g *growth) manager() string {
	return strings.Join(g.instance.Status.Delivered.Decision.Clusters(), " ") // it is one
}

// parameters returns those of the cluster with the given number of workers more.
func (g *growth) parameters(workers int) (json.RawMessage, error) {
	all := map[string]any{}
	if raw := g.instance.Spec.Desired.Raw(); raw != nil {
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, fmt.Errorf("read the parameters of %s: %w", g.instance.Name, err)
		}
	}
	pools, _ := all["workers"].(map[string]any)
	if pools == nil {
		pools = map[string]any{}
	}
	pools[g.pool] = int(g.now) + workers
	all["workers"] = pools
	return json.Marshal(all)
}

// machines returns the number of machines of a new cluster; growing by more than that is no
// cheaper.
func (t *template) machines() int {
	n := 0
	if cp := t.plan.Cluster.ControlPlane; cp != nil {
		n += int(t.asked.ControlPlane)
	}
	for _, workers := range t.asked.Workers {
		n += int(workers)
	}
	return n
}

// growths returns the ready clusters of the template that the plan allows to grow, each by its
// first pool that can.
func (t *template) growths(s *placement.Snapshot, has *fleet) (all []growth) {
	for i := range has.instances {
		instance := &has.instances[i]
		member := has.member(instance)
		if member == nil || !member.DeletionTimestamp.IsZero() || !instance.IsSettled() ||
			instance.Status.Operation.State == v1alpha1.StateFailed {
			continue
		}
		c := s.Cluster(member.Name)
		asked, err := t.plan.ClusterParameters(instance.Spec.Desired.Raw())
		if c == nil || !c.Ready || err != nil {
			continue
		}
		for _, pool := range t.plan.Cluster.Workers {
			if now := asked.Workers[pool.Name]; pool.Max > now {
				all = append(all, growth{c, instance, pool.Name, now, min(int(pool.Max-now), t.machines()), t.worker[pool.Name]})
				break
			}
		}
	}
	return all
}

// growing returns a cluster of the template that was told to grow, in its future size; nil if
// it was not.
func (t *template) growing(s *placement.Snapshot, instance *v1alpha1.ServiceInstance, member *v1alpha1.MemberCluster) *placement.Cluster {
	d := instance.Status.Delivered
	if member == nil || d == nil || instance.Generation == instance.Status.ObservedGeneration && instance.Status.Operation.State != v1alpha1.StateInProgress {
		return nil
	}
	c := s.Cluster(member.Name)
	was, err := t.plan.ClusterParameters(d.State.Raw())
	will, err2 := t.plan.ClusterParameters(instance.Spec.Desired.Raw())
	if c == nil || err != nil || err2 != nil {
		return nil
	}
	return c.WithNodes(t.nodes(will.Workers, was.Workers))
}

// demand is the number of clusters that a template must create, and the instances that wait for
// each of its clusters.
type demand struct {
	// more is the number of clusters needed beyond those that exist or are being made.
	more int
	// grow is the number of workers to add, by cluster.
	grow map[string]int
	// waits is, by waiting instance, the name of the cluster on which it will be placed. A
	// cluster that is not begun yet is described by what prevents that.
	waits map[string]string
	// fit is the number of expected orders that fit now, and come that of those that will.
	fit, come int
}

// trial computes what a template has to make.
type trial struct {
	template *template
	// coming are the template's clusters that are being made, and growing those that are
	// growing.
	coming  []string
	growing []*placement.Cluster
	// growths are the clusters that could grow.
	growths []growth
	// room is how many more clusters are allowed.
	room int
	// expected orders are placed after everything that waits.
	expected []placement.Request
}

// demand computes the demand by trial.
func (t *trial) demand(inventory *placement.Inventory) demand {
	n := demand{waits: map[string]string{}, grow: map[string]int{}}
	var waiting []placement.Request
	snapshot := inventory.Snapshot()
	for _, r := range inventory.Parked() {
		if r.Shape == nil && t.template.Concerns(r.Consumer) && snapshot.Preemption(r.ID) == nil { // whoever leaves for it waits then
			waiting = append(waiting, r)
		}
	}
	waiting = append(waiting, t.expected...)
	if len(waiting) == 0 {
		return n
	}
	expected := map[string]bool{}
	for i := range t.expected {
		expected[t.expected[i].ID] = true
	}
	fork := inventory.Fork()
	place := func(on string) (left []placement.Request) {
		for _, r := range waiting {
			d, err := fork.Place(r)
			switch {
			case err != nil:
				left = append(left, r)
			case expected[r.ID] && on == "":
				n.fit++
			case expected[r.ID]:
				n.come++
			case on != "" && d.Uses(on):
				n.waits[r.ID] = on
			}
		}
		return left
	}
	waiting = place("") // a cluster may have become free in the meantime
	for _, name := range t.coming {
		fork.UpsertCluster(t.template.supposed(name))
		waiting = place(name)
	}
	for _, c := range t.growing {
		fork.UpsertCluster(c)
		waiting = place(c.Name)
	}
	// hopeful reports whether a cluster, as it would be, takes any waiting request. If not, no
	// more of it are tried.
	hopeful := func(c *placement.Cluster) bool {
		fork.UpsertCluster(c)
		s := fork.Snapshot()
		return slices.ContainsFunc(waiting, func(r placement.Request) bool { return placement.Accepts(r, s, c.Name) })
	}
	for i := range t.growths {
		g := &t.growths[i]
		if !hopeful(g.grown(g.more)) {
			fork.UpsertCluster(g.cluster)
			continue
		}
		for workers := 1; workers <= g.more && len(waiting) > 0; workers++ {
			fork.UpsertCluster(g.grown(workers))
			if left := place(g.cluster.Name); len(left) < len(waiting) {
				waiting, n.grow[g.cluster.Name] = left, workers
			}
		}
		fork.UpsertCluster(g.grown(n.grow[g.cluster.Name]))
	}
	// One cluster alone may not help a request for several.
	for tried := 1; tried <= min(t.room, n.more+widest(waiting)) && len(waiting) > 0; tried++ {
		name := fmt.Sprintf("%s %d", placement.SupposedName, tried)
		if !hopeful(t.template.supposed(name)) {
			break
		}
		if left := place(name); len(left) < len(waiting) {
			waiting, n.more = left, tried
		}
	}
	return n
}

// widest returns the largest number of clusters that one of the requests may want.
func widest(requests []placement.Request) int {
	n := 1
	for i := range requests {
		n = max(n, requests[i].ClusterCount(), len(requests[i].Components))
	}
	return n
}

// measure makes the workers of the template what those of a ready cluster have, if there is one. Its nodes and its own pods
// may leave less than the plan says. Without this, clusters for a request that does not fit would be made without end.
func (t *template) measure(s *placement.Snapshot, all *fleet) {
	if t.measureBy(s, all, (*v1alpha1.ServiceInstance).IsSettled); t.like == nil {
		// One that grows may have other workers than it was delivered with, but they count for no more than the plan says.
		t.measureBy(s, all, func(i *v1alpha1.ServiceInstance) bool {
			return i.DeletionTimestamp.IsZero() && i.Status.Delivered != nil
		})
	}
}

// measureBy is measure by the first ready cluster that counts.
func (t *template) measureBy(s *placement.Snapshot, all *fleet, counts func(*v1alpha1.ServiceInstance) bool) {
	for i := range all.instances {
		instance := &all.instances[i]
		member := all.member(instance)
		if member == nil || !counts(instance) {
			continue
		}
		c := s.Cluster(member.Name)
		asked, err := t.plan.ClusterParameters(instance.Status.Delivered.State.Raw())
		if c == nil || !c.Ready || len(c.Allocatable) == 0 || err != nil {
			continue
		}
		t.like = c
		planned, workers := placement.WorkerResources(t.plan.Cluster, asked), int64(len(t.nodes(asked.Workers, nil)))
		has := func(name corev1.ResourceName) int64 { return max(c.Allocatable[name]-c.ForeignUse[name], 0) }
		for _, worker := range t.worker {
			for name, amount := range planned {
				if amount > 0 {
					worker[name] = min(worker[name], part(worker[name], has(name), amount))
				}
			}
			for name := range c.Allocatable {
				if _, is := planned[name]; !is {
					worker[name] = has(name) / max(workers, 1)
				}
			}
		}
		return
	}
}

// part returns an amount times has/of, rounded down.
func part(amount, has, of int64) int64 {
	product := new(big.Int).Mul(big.NewInt(amount), big.NewInt(has))
	return product.Div(product, big.NewInt(of)).Int64()
}

// order returns Sluice's own instance for making a cluster.
func (t *template) order(namespace string, ordinal int) *v1alpha1.ServiceInstance {
	return t.plan.Own(namespace, fmt.Sprintf("%s-%d", t.Name, ordinal), map[string]string{v1alpha1.LabelElastic: t.Name}, t.parameters)
}
