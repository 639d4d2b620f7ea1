package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/placement"
)

// Recording is everything that a decision depends on, as resources of the hub, and the
// decision. It holds no credentials and no access to any cluster.
type Recording struct {
	// Version of this format.
	Version int `json:"version"`
	// At is the time of the decision.
	At metav1.Time `json:"at"`
	// Order is the request.
	Order Order `json:"order"`
	// Offering of the plan that was ordered.
	Offering v1alpha1.ServiceOfferingSpec `json:"offering"`
	Clusters []v1alpha1.MemberCluster     `json:"clusters"`
	// Instances with their reservations.
	Instances []v1alpha1.ServiceInstance `json:"instances,omitempty"`
	Policies  []v1alpha1.PlacementPolicy `json:"policies,omitempty"`
	// Consumers with what they have proven.
	Consumers []v1alpha1.Consumer `json:"consumers,omitempty"`
	// Charts of the ordered plan.
	Charts []v1alpha1.Chart `json:"charts,omitempty"`
	// External scores, if a scorer outside Sluice was used.
	External map[string]int32 `json:"external,omitempty"`
	// Decision that was made, or Error with the reason why there is none.
	Decision v1alpha1.Decision `json:"decision"`
	Error    string            `json:"error,omitempty"`
}

// recordingVersion is the version that is written and read.
const recordingVersion = 1

// Order is a requested instance.
type Order struct {
	ID         string             `json:"id"`
	PlanID     string             `json:"planID"`
	Parameters json.RawMessage    `json:"parameters,omitempty"`
	Consumer   placement.Consumer `json:"consumer"`
	// Suppositions under which the decision is made.
	Suppositions []placement.Supposition `json:"suppositions,omitempty"`
	// Current are the clusters on which an instance is that exists, and stays, and ComponentClusters those of
	// its components. Leaving are the clusters that it leaves: then the decision is a move.
	Current           []string          `json:"current,omitempty"`
	ComponentClusters map[string]string `json:"componentClusters,omitempty"`
	Leaving           []string          `json:"leaving,omitempty"`
	// Sold are the rules for workloads that an instance keeps that moves, by the clusters on which it stays. Recordings
	// of earlier versions have none: those moves were decided by the rules at that time.
	Sold map[string][]v1alpha1.WorkloadRules `json:"sold,omitempty"`
	// Peering by which it is delivered.
	Peering *v1alpha1.PlacementPeering `json:"peering,omitempty"`
	// Pool that has ordered it, to carry out an order of a consumer.
	Pool *v1alpha1.PoolOrder `json:"pool,omitempty"`
}

// of makes the order one about an instance that exists: it is its consumer's, and stays where it was
// delivered or is being delivered, except on the clusters that it leaves. One that is moving stays where it moves to.
func (o *Order) of(instance *v1alpha1.ServiceInstance) {
	o.Consumer, o.Pool = placement.ConsumerOf(instance), instance.Spec.Pool
	d := instance.Status.DeliveredDecision()
	if instance.Status.IsMoving() {
		d = instance.Status.Decision
		for _, leaving := range d.Leaving {
			if len(leaving.Stay) == 0 {
				o.Leaving = lists.Union(o.Leaving, []string{leaving.Cluster})
			}
		}
	}
	if d = cmp.Or(d, instance.Status.Decision); d == nil {
		return
	}
	if len(o.Leaving) > 0 {
		o.Sold = placement.SoldRules(&instance.Status)
	}
	o.Current, o.ComponentClusters = lists.Without(d.Clusters(), o.Leaving), map[string]string{}
	for _, p := range d.Placements {
		o.Peering = cmp.Or(o.Peering, p.Peering)
		for _, component := range p.Components {
			if slices.Contains(o.Current, p.Cluster) {
				o.ComponentClusters[component] = p.Cluster
			}
		}
	}
}

// keep makes some components stay on a cluster that the rest of the instance leaves.
func (o *Order) keep(cluster string, components []string) {
	o.Leaving, o.Current = lists.Without(o.Leaving, []string{cluster}), append(o.Current, cluster)
	for _, component := range components {
		o.ComponentClusters[component] = cluster
	}
}

// stay makes a request one of an instance where the order says that it is.
func (o *Order) stay(r *placement.Request) {
	*r = r.Within(o.Pool)
	r.Current, r.Leaving, r.ComponentClusters, r.Sold = o.Current, o.Leaving, o.ComponentClusters, o.Sold
	if o.Peering != nil {
		r.Peering.Stay(&v1alpha1.Decision{Placements: []v1alpha1.Placement{{Peering: o.Peering}}})
	}
}

// Record decides an order by the hub's state, and records both. If there is an instance of the order's
// ID, the order is an update of it or, where it leaves a cluster, a move. The error may be that it is not on that
// cluster. The reader must be live, not a cache.
func Record(ctx context.Context, reader client.Reader, namespace string, offering v1alpha1.ServiceOfferingSpec, order Order, now time.Time) (*Recording, []placement.Verdict, error) {
	r := &Recording{Version: recordingVersion, At: metav1.NewTime(now.Truncate(time.Second)), Order: order, Offering: offering}
	leaves := fmt.Errorf("there is no instance %s that could leave a cluster", order.ID)
	err := errors.Join(
		pages.Each(ctx, reader, &v1alpha1.MemberClusterList{}, func(o client.Object) error {
			r.Clusters = append(r.Clusters, plainCluster(o.(*v1alpha1.MemberCluster)))
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
			if o.GetName() == order.ID {
				leaves = isOn(o.(*v1alpha1.ServiceInstance), order.Leaving)
				r.Order.of(o.(*v1alpha1.ServiceInstance))
			}
			if one, holds := plainInstance(o.(*v1alpha1.ServiceInstance)); holds {
				r.Instances = append(r.Instances, one)
			}
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.PlacementPolicyList{}, func(o client.Object) error {
			r.Policies = append(r.Policies, v1alpha1.PlacementPolicy{ObjectMeta: objectNamed(o.GetName(), nil), Spec: o.(*v1alpha1.PlacementPolicy).Spec})
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.ConsumerList{}, func(o client.Object) error {
			c := o.(*v1alpha1.Consumer)
			r.Consumers = append(r.Consumers, v1alpha1.Consumer{ObjectMeta: objectNamed(c.Name, nil), Spec: c.Spec, Status: v1alpha1.ConsumerStatus{Claims: c.Status.Claims}})
			return nil
		}, client.InNamespace(namespace)),
	)
	if len(order.Leaving) > 0 {
		err = errors.Join(err, leaves)
	}
	if err != nil {
		return nil, nil, err
	}
	if r.Charts, err = chartsOf(ctx, reader, namespace, &offering, order.PlanID); err != nil {
		return nil, nil, err
	}
	decision, verdicts, err := r.decide()
	if unplaceable, ok := placement.AsUnplaceable(err); ok {
		r.Error, err = unplaceable.Error(), nil
	}
	r.Decision = *decision.API(1)
	return r, verdicts, err
}

// isOn returns an error if an instance is not on one of the clusters.
func isOn(instance *v1alpha1.ServiceInstance, clusters []string) error {
	for _, name := range clusters {
		if !instance.Status.IsOn(name) {
			return fmt.Errorf("instance %s is not on cluster %q, which it could leave", instance.Name, name)
		}
	}
	return nil
}

// chartsOf returns the charts of a plan's workload.
func chartsOf(ctx context.Context, reader client.Reader, namespace string, offering *v1alpha1.ServiceOfferingSpec, plan string) (kept []v1alpha1.Chart, err error) {
	for i := range offering.Plans {
		w := offering.Plans[i].Workload
		if offering.Plans[i].ID != plan || w == nil {
			continue
		}
		for _, of := range w.Charts() {
			var one v1alpha1.Chart
			if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ChartName(of.Digest)}, &one); err != nil {
				return nil, fmt.Errorf("chart %s: %w", of.From, err)
			}
			kept = append(kept, v1alpha1.Chart{ObjectMeta: objectNamed(one.Name, nil), Spec: one.Spec})
		}
	}
	return kept, nil
}

// recorded are the charts in a recording.
type recorded []v1alpha1.Chart

// Chart implements workload.Charts.
func (r recorded) Chart(of *v1alpha1.WorkloadChart) (*charts.Chart, error) {
	for i := range r {
		if r[i].Digest() == of.Digest {
			return store.Open(&r[i])
		}
	}
	return nil, errors.New("the recording has no such chart")
}

func objectNamed(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: labels}
}

// plainCluster returns the fields of a member cluster that a decision depends on.
func plainCluster(mc *v1alpha1.MemberCluster) v1alpha1.MemberCluster {
	plain := v1alpha1.MemberCluster{ObjectMeta: objectNamed(mc.Name, mc.Labels), Spec: *mc.Spec.DeepCopy(), Status: *mc.Status.DeepCopy()}
	plain.DeletionTimestamp = mc.DeletionTimestamp
	plain.Spec.Access = v1alpha1.ClusterAccess{}
	plain.Spec.ConsumerServer, plain.Status.Server, plain.Status.UID, plain.Status.KeyHash = "", "", "", ""
	plain.Status.Admission, plain.Status.Classes = nil, nil
	if plain.Status.Broker != nil {
		plain.Status.Broker.Schemas = nil
	}
	return plain
}

// plainInstance returns what an instance holds, the room that is made for it, and its owners; false if there is neither.
func plainInstance(instance *v1alpha1.ServiceInstance) (v1alpha1.ServiceInstance, bool) {
	plain := v1alpha1.ServiceInstance{ObjectMeta: objectNamed(instance.Name, nil)}
	plain.Spec.Platform, plain.Spec.OrganizationGUID, plain.Spec.SpaceGUID = instance.Spec.Platform, instance.Spec.OrganizationGUID, instance.Spec.SpaceGUID
	plain.Spec.Desired.PlanID = instance.Spec.Desired.PlanID
	plain.Spec.Desired.Parameters = catalog.OnlyApplication(instance.Spec.Desired.Parameters)
	holding := placement.HoldingOf(instance)
	if plain.Status.Preemption = holding.Preemption; len(holding.Held) > 0 {
		decision := holding.Decision()
		plain.Status.Decision, plain.Status.Delivered = decision, &v1alpha1.DeliveredState{Decision: *decision}
	}
	return plain, len(holding.Held) > 0 || holding.Preemption != nil
}

// ReadRecording reads a recording, YAML or JSON, of recordingVersion. Unknown fields are
// errors.
func ReadRecording(data []byte) (*Recording, error) {
	var r Recording
	// The version first: fields of another version would only be reported as unknown.
	if err := yaml.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Version == 0 { // the last field that is written
		return nil, errors.New("it is no recording, or not the whole of one: it has no version")
	}
	if r.Version != recordingVersion {
		return nil, fmt.Errorf("the recording has version %d; this Sluice reads version %d", r.Version, recordingVersion)
	}
	r = Recording{}
	return &r, yaml.UnmarshalStrict(data, &r)
}

// IsRecording reports whether data looks like a recording, of any version, rather than like something else.
func IsRecording(data []byte) bool {
	var r struct {
		Version int             `json:"version"`
		Order   json.RawMessage `json:"order"`
	}
	return yaml.Unmarshal(data, &r) == nil && r.Version > 0 && r.Order != nil
}

// Replay decides the recorded order again and returns the verdicts. The error says that the
// decision differs, or why it cannot be made.
func (r *Recording) Replay() ([]placement.Verdict, error) {
	decision, verdicts, err := r.decide()
	why := ""
	if unplaceable, ok := placement.AsUnplaceable(err); ok {
		why, err = unplaceable.Error(), nil
	}
	if err != nil {
		return nil, err
	}
	if replayed := *decision.API(1); !reflect.DeepEqual(plainJSON(replayed), plainJSON(r.Decision)) || why != r.Error {
		return verdicts, fmt.Errorf("the decision differs from the recorded one, which was: %s%s", r.Decision.Clusters(), r.Error)
	}
	return verdicts, nil
}

// plainJSON makes decisions comparable, independent of the representation of their quantities.
func plainJSON(d v1alpha1.Decision) (plain map[string]any) {
	data, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(data, &plain)
	}
	if err != nil {
		panic(fmt.Sprintf("placement: a decision is no JSON: %v", err)) // a struct of the API
	}
	return plain
}

// decide makes the decision by the recording alone.
func (r *Recording) decide() (placement.Decision, []placement.Verdict, error) {
	request, snapshot, err := r.Request()
	if err != nil {
		return placement.Decision{}, nil, err
	}
	decision, err := placement.Place(request, snapshot)
	if err != nil {
		decision.Preemption = placement.Preempt(request, snapshot)
	}
	return decision, placement.Explain(request, snapshot), err
}

// Request returns the recorded request, and the snapshot by which it is decided.
func (r *Recording) Request() (placement.Request, *placement.Snapshot, error) {
	served, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &r.Offering}}}, r.Clusters, recorded(r.Charts), nil)
	if err != nil {
		return placement.Request{}, nil, fmt.Errorf("offering %s: %w", r.Offering.Name, err)
	}
	plan, err := served.Plan(r.Offering.ID, r.Order.PlanID)
	if err != nil {
		return placement.Request{}, nil, err
	}
	request, err := placement.NewRequest(r.Order.ID, plan, r.Order.Parameters)
	if err != nil {
		return placement.Request{}, nil, err
	}
	inventory := r.Fleet().inventory(r.At.Time)
	snapshot := inventory.Snapshot()
	for _, supposed := range r.Order.Suppositions {
		if snapshot, err = snapshot.Suppose(supposed); err != nil {
			return placement.Request{}, nil, err
		}
	}
	r.Order.stay(&request)
	request.At, request.External = r.At.Time, r.External
	return snapshot.Govern(request, r.Order.Consumer), snapshot, nil
}
