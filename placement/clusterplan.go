package placement

import (
	"cmp"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// An instance of a cluster plan is placed like any other: on a management cluster with enough
// capacity for the plan's machines. It does not move: the cluster keeps running if its
// management cluster does not answer.

// clusterRequest returns the request for an instance of a cluster plan.
func clusterRequest(id string, plan *catalog.Plan, parameters json.RawMessage) (Request, error) {
	asked, err := plan.ClusterParameters(parameters)
	if err != nil {
		return Request{}, fmt.Errorf("parameters of plan %s: %w", plan.Name, err)
	}
	r, err := choiceRequest(id, plan, &plan.Cluster.MemberChoice)
	if err != nil {
		return Request{}, err
	}
	r.Resources = takenBy(plan.Cluster, asked)
	r.Shape, err = shapeOf(plan.Cluster, asked)
	return r, err
}

// choiceRequest returns the request for one member cluster that is chosen as a plan says, and nothing on it.
func choiceRequest(id string, plan *catalog.Plan, c *v1alpha1.MemberChoice) (Request, error) {
	selector, err := planSelector(plan, c.Selector)
	if err != nil {
		return Request{}, err
	}
	rules, err := planRules(plan.Name, c.Require)
	if err != nil {
		return Request{}, err
	}
	return Request{
		ID:          id,
		Selector:    selector,
		Tolerations: c.Tolerations,
		Tier:        c.Tier,
		MaxPrice:    PriceOf(c.MaxPrice),
		Weights:     c.Score,
		Consumer:    Consumer{Plan: plan.ID},
		Rules:       rules,
		WaitFor:     plan.WaitFor,
	}, nil
}

// shapeOf returns the requested shape. Its version is empty if the consumer sets none.
func shapeOf(c *v1alpha1.ClusterPlan, asked catalog.ClusterParameters) (*v1alpha1.ClusterShape, error) {
	shape := &v1alpha1.ClusterShape{
		Class: c.Class, ClassNamespace: cmp.Or(c.ClassNamespace, metav1.NamespaceDefault), Version: asked.Version,
		PodCIDRs: c.PodCIDRs, ServiceCIDRs: c.ServiceCIDRs, AddOnsSold: c.AddOns,
	}
	if c.ControlPlane != nil {
		shape.ControlPlane = &asked.ControlPlane
	}
	for _, pool := range c.Workers {
		shape.Workers = append(shape.Workers, v1alpha1.WorkerReplicas{Name: pool.Name, Class: pool.Class, Replicas: asked.Workers[pool.Name]})
	}
	if len(asked.Variables) > 0 {
		variables, err := json.Marshal(asked.Variables)
		if err != nil {
			return nil, fmt.Errorf("variables: %w", err)
		}
		shape.Variables = &runtime.RawExtension{Raw: variables}
	}
	return shape, nil
}

// MemberOf returns the member cluster that the cluster of an instance becomes; nil if it becomes none.
// For a cluster that a policy made, the policy describes it, as long as it does; otherwise the plan and
// the parameters do.
func (ps Policies) MemberOf(instance *v1alpha1.ServiceInstance, plan *catalog.Plan, parameters json.RawMessage) (*v1alpha1.ShapeMember, error) {
	asked, err := plan.ClusterParameters(parameters)
	if err != nil {
		return nil, fmt.Errorf("parameters of plan %s: %w", plan.Name, err)
	}
	join := plan.Cluster.Join
	if by := instance.Labels[v1alpha1.LabelElastic]; by != "" {
		for _, p := range ps {
			if p.Name == by && p.Elastic != nil {
				return p.Member(plan.Cluster), nil
			}
		}
		if made := instance.Status.DeliveredDecision().Shape(); made != nil {
			return made.Member, nil
		}
		return nil, fmt.Errorf("policy %s makes no clusters any more", by)
	}
	if join == nil || asked.Join == "" {
		return nil, nil
	}
	member := &v1alpha1.ShapeMember{MemberTemplate: *join.Member.DeepCopy(), GatewayService: join.GatewayService}
	if asked.Join == v1alpha1.SideConsumer {
		member.Consumers = []v1alpha1.ConsumerReference{ownerOf(instance, join.Owner)}
	}
	return member, nil
}

// ownerOf returns the consumer in a scope that ordered an instance.
func ownerOf(instance *v1alpha1.ServiceInstance, scope v1alpha1.Scope) v1alpha1.ConsumerReference {
	c := ConsumerOf(instance)
	owner := v1alpha1.ConsumerReference{Platform: c.Platform, Organization: c.Organization, Space: c.Space}
	switch scope {
	case v1alpha1.ScopePlatform:
		owner.Organization, owner.Space = "", ""
	case v1alpha1.ScopeOrganization:
		owner.Space = ""
	}
	return owner
}

// takenBy returns the resources of the cluster's machines together, and of the cluster itself.
func takenBy(c *v1alpha1.ClusterPlan, asked catalog.ClusterParameters) Resources {
	taken := Resources{v1alpha1.ResourceClusters: 1}
	if c.ControlPlane != nil {
		taken.Add(ResourcesOf(c.ControlPlane.Machine), int64(asked.ControlPlane))
	}
	taken.Add(WorkerResources(c, asked), 1)
	return taken
}

// WorkerResources returns the resources of all worker machines together.
func WorkerResources(c *v1alpha1.ClusterPlan, asked catalog.ClusterParameters) Resources {
	have := Resources{}
	for _, pool := range c.Workers {
		have.Add(ResourcesOf(pool.Machine), int64(asked.Workers[pool.Name]))
	}
	return have
}

// otherwiseUsed rejects clusters that are for other requests: only management clusters make clusters, only
// brokers sell services of others, only pools hide where they deliver, and none of them runs workloads.
func otherwiseUsed(r Request) filter {
	return filter{reason: ReasonDriverMismatch, shape: true,
		rejects: func(p *page, among set) set {
			switch {
			case r.Shape != nil:
				return among.without(p.managing)
			case r.Upstream != nil:
				return among.without(p.brokers)
			case r.Peering.ofPool():
				return among.without(p.pools)
			}
			return among.and(p.managing.or(p.brokers).or(p.pools))
		},
		message: func(p *page, row int) string {
			switch {
			case r.Shape != nil:
				return "cannot create clusters"
			case r.Upstream != nil:
				return "is no broker"
			case r.Peering.ofPool():
				return "is no pool"
			case p.pools.has(row):
				return "is a pool, which serves plans with the role Opaque only"
			case p.brokers.has(row):
				return "stands for a broker, and runs no workloads"
			}
			return "creates clusters, and runs no workloads"
		},
	}
}

// planRules compiles a plan's rules for clusters.
func planRules(plan string, from []v1alpha1.PolicyRule) (rules []Rule, err error) {
	for _, one := range from {
		rule, err := CompileRule("plan "+plan, "", one)
		if err != nil {
			return nil, fmt.Errorf("plan %s: require: %w", plan, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}
