package placement

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// How many clusters a policy needs is worked out by trial: the inventory as it is, and
// with it the clusters that are being made already, is asked to place all that waits.
// What still fits nowhere is tried with one cluster more. A cluster is needed if
// something is placed with it that was not before. So nothing is made for a request
// that misses anything but capacity: it would not be placed on the new one either.

// template is a policy's section elastic, with what it refers to.
type template struct {
	*Policy
	plan       *catalog.Plan
	parameters json.RawMessage
	asked      catalog.ClusterParameters
	// has is what one of its clusters has for workloads.
	has Resources
}

// newTemplate looks up what a policy's clusters are.
func newTemplate(p *Policy, plans *catalog.Snapshot) (*template, error) {
	plan, err := plans.Plan(p.Elastic.ServiceID, p.Elastic.PlanID)
	if err != nil {
		return nil, err
	}
	t := &template{Policy: p, plan: plan}
	if p.Elastic.Parameters != nil {
		t.parameters = p.Elastic.Parameters.Raw
	}
	if err := plan.ValidateCreate(t.parameters); err != nil {
		return nil, err
	}
	if t.asked, err = plan.ClusterParameters(t.parameters); err != nil {
		return nil, err
	}
	t.has = workersHave(plan.Cluster, t.asked)
	return t, nil
}

// member is the member cluster that an instance of the template becomes which has these
// add-ons, without its access.
func (t *template) member(name, namespace string, addOns []v1alpha1.AddOn) *v1alpha1.MemberCluster {
	mc := t.Policy.member(name, namespace)
	takePart(&mc.Spec, addOns)
	return mc
}

// member is a member cluster that the policy has made, without add-ons and access.
func (p *Policy) member(name, namespace string) *v1alpha1.MemberCluster {
	from := &p.Elastic.Member
	mc := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: maps.Clone(from.Labels)},
		Spec: v1alpha1.MemberClusterSpec{
			Provider: from.Provider, Region: from.Region, Zone: from.Zone, Tier: from.Tier,
			Taints: from.Taints, Location: from.Location, Prices: from.Prices,
		},
	}
	if mc.Labels == nil {
		mc.Labels = map[string]string{}
	}
	mc.Labels[v1alpha1.LabelElastic] = p.Name
	return mc
}

// supposed is that member cluster as if it were ready and had so much.
func (t *template) supposed(name string, has Resources) *Cluster {
	mc := t.member(name, "", t.plan.Cluster.AddOns)
	for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified} {
		meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Supposed"})
	}
	mc.Status.Allocatable = has.List()
	return ClusterOf(mc, metav1.Now().Time)
}

// growth is by how many workers one of the template's clusters can still grow.
type growth struct {
	cluster  *Cluster // as it is
	instance *v1alpha1.ServiceInstance
	pool     string
	now      int32
	more     int
	machine  Resources
}

// grown is the cluster with so many workers more.
func (g *growth) grown(workers int) *Cluster {
	c := *g.cluster
	c.Allocatable = maps.Clone(c.Allocatable)
	c.Allocatable.add(g.machine, int64(workers))
	return &c
}

// machines of a new cluster; growing by more than that is no cheaper.
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

// growths are the clusters of the template that are ready, as the plan says they can
// grow, by their first pool that can.
func (t *template) growths(s *Snapshot, has *fleet) (all []growth) {
	for i := range has.instances {
		instance := &has.instances[i]
		member := has.member(instance)
		if member == nil || !member.DeletionTimestamp.IsZero() || !settledInstance(instance) || instance.Annotations[v1alpha1.AnnotationRetired] != "" ||
			instance.Status.Operation.State == v1alpha1.StateFailed {
			continue
		}
		c := s.Cluster(member.Name)
		asked, err := t.plan.ClusterParameters(rawParameters(&instance.Spec.Desired))
		if c == nil || !c.Ready || err != nil {
			continue
		}
		for _, pool := range t.plan.Cluster.Workers {
			if now := asked.Workers[pool.Name]; pool.Max > now {
				all = append(all, growth{c, instance, pool.Name, now, min(int(pool.Max-now), t.machines()), ResourcesOf(pool.Machine)})
				break
			}
		}
	}
	return all
}

func rawParameters(state *v1alpha1.InstanceState) json.RawMessage {
	if state.Parameters == nil {
		return nil
	}
	return state.Parameters.Raw
}

// growing is a cluster of the template that has been told to grow, as it will be; nil
// where it has not.
func (t *template) growing(s *Snapshot, instance *v1alpha1.ServiceInstance, member *v1alpha1.MemberCluster) *Cluster {
	d := instance.Status.Delivered
	if member == nil || d == nil || instance.Generation == instance.Status.ObservedGeneration && instance.Status.Operation.State != v1alpha1.StateInProgress {
		return nil
	}
	c := s.Cluster(member.Name)
	was, err := t.plan.ClusterParameters(rawParameters(&d.State))
	will, err2 := t.plan.ClusterParameters(rawParameters(&instance.Spec.Desired))
	if c == nil || err != nil || err2 != nil {
		return nil
	}
	grown := *c
	grown.Allocatable = maps.Clone(c.Allocatable)
	grown.Allocatable.add(workersHave(t.plan.Cluster, will), 1)
	grown.Allocatable.add(workersHave(t.plan.Cluster, was), -1)
	return &grown
}

// demand is what a template is to make, and what waits for which of its clusters.
type demand struct {
	// more clusters than there are and are being made.
	more int
	// grow says, by cluster, by how many workers.
	grow map[string]int
	// waits names, by the instance that waits, the cluster on which it will be placed; one
	// that is not begun yet is named by what keeps it from being.
	waits map[string]string
}

// trial is what a template may come to.
type trial struct {
	template *template
	// coming are the template's clusters that are being made, and growing those that grow.
	coming  []string
	growing []*Cluster
	// growths are what could grow.
	growths []growth
	// has is what each of them will have.
	has Resources
	// room is how many more there may be.
	room int
}

// demand is worked out by trying.
func (t *trial) demand(inventory *Inventory) demand {
	n := demand{waits: map[string]string{}, grow: map[string]int{}}
	var waiting []Request
	for _, r := range inventory.Parked() {
		if r.Made == nil && t.template.concerns(r.Consumer) {
			waiting = append(waiting, r)
		}
	}
	if len(waiting) == 0 {
		return n
	}
	fork := inventory.Fork()
	place := func(on string) (left []Request) {
		for _, r := range waiting {
			d, err := fork.Place(r)
			switch {
			case err != nil:
				left = append(left, r)
			case on != "" && uses(d, on):
				n.waits[r.ID] = on
			}
		}
		return left
	}
	waiting = place("") // a cluster may have become free just now
	for _, name := range t.coming {
		fork.UpsertCluster(t.template.supposed(name, t.has))
		waiting = place(name)
	}
	for _, c := range t.growing {
		fork.UpsertCluster(c)
		waiting = place(c.Name)
	}
	// hopeful tells whether a cluster, as it would be, takes anything that waits. More of what
	// takes nothing is not tried.
	hopeful := func(c *Cluster) bool {
		fork.UpsertCluster(c)
		s := fork.Snapshot()
		return slices.ContainsFunc(waiting, func(r Request) bool { return Accepts(r, s, c.Name) })
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
	// One alone may not help a request that wants several.
	for tried := 1; tried <= min(t.room, n.more+widest(waiting)) && len(waiting) > 0; tried++ {
		name := fmt.Sprintf("%s %d", supposedName, tried)
		if !hopeful(t.template.supposed(name, t.has)) {
			break
		}
		if left := place(name); len(left) < len(waiting) {
			waiting, n.more = left, tried
		}
	}
	return n
}

// widest is the largest number of clusters that one of the requests can come to want.
func widest(requests []Request) int {
	n := 1
	for i := range requests {
		n = max(n, requests[i].clusters(), len(requests[i].Components))
	}
	return n
}

// supposedName begins the names of clusters that are not begun yet; no member cluster
// can have one.
const supposedName = "another cluster"

func uses(d Decision, cluster string) bool {
	for _, p := range d.Placements {
		if p.Cluster == cluster {
			return true
		}
	}
	return false
}

// measured is what a cluster of the template has turned out to have, where there is one
// that is ready: its nodes and pods of its own may leave less than the plan says, and
// to make more of the same for what does not fit would not end.
func (t *template) measured(s *Snapshot, all *fleet) Resources {
	for i := range all.instances {
		instance := &all.instances[i]
		member := all.member(instance)
		if member == nil || instance.Status.Delivered == nil {
			continue
		}
		c := s.Cluster(member.Name)
		asked, err := t.plan.ClusterParameters(rawParameters(&instance.Status.Delivered.State))
		if c == nil || !c.Ready || len(c.Allocatable) == 0 || err != nil || !maps.Equal(asked.Workers, t.asked.Workers) {
			continue // one that has grown is no measure
		}
		has := maps.Clone(c.Allocatable)
		has.add(c.ForeignUse, -1)
		return has
	}
	return t.has
}

// order is the instance of Sluice's own by which a cluster is made.
func (t *template) order(namespace string, ordinal int) *v1alpha1.ServiceInstance {
	id := fmt.Sprintf("%s-%d", t.Name, ordinal)
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.InstanceName(v1alpha1.PlatformSelf, id),
			Labels: map[string]string{v1alpha1.LabelElastic: t.Name}, Finalizers: []string{v1alpha1.Finalizer},
		},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: v1alpha1.PlatformSelf, InstanceID: id, ServiceID: t.Elastic.ServiceID,
			Desired: v1alpha1.InstanceState{PlanID: t.Elastic.PlanID},
		},
	}
	if t.parameters != nil {
		instance.Spec.Desired.Parameters = &runtime.RawExtension{Raw: t.parameters}
	}
	if info := t.plan.MaintenanceInfo; info != nil {
		instance.Spec.Desired.MaintenanceVersion = info.Version
	}
	return instance
}
