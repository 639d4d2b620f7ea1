package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/addons"
)

// ClusterParameters are a consumer's choices for an instance of a plan of kind cluster.
type ClusterParameters struct {
	// Version of Kubernetes; empty if the consumer does not choose one.
	Version string
	// ControlPlane is the number of control plane machines; zero if the plan has none.
	ControlPlane int32
	// Workers is the number of machines in each pool of the plan.
	Workers map[string]int32
	// Variables of the ClusterClass by name, the plan's and the consumer's.
	Variables map[string]json.RawMessage
	// Join is the side on which the cluster becomes a member cluster; empty if it becomes none.
	Join v1alpha1.PeeringSide
	// AddOns that the consumer chose.
	AddOns addons.Choice
}

// ClusterParameters parses the parameters of an instance and fills in the plan's defaults.
// Like ResourcesParameters, it does not check them against the plan's schema. The error is
// a *ParameterError if they are not parameters of a cluster plan.
func (p *Plan) ClusterParameters(parameters json.RawMessage) (ClusterParameters, error) {
	if p.Kind != v1alpha1.PlanKindCluster || p.Cluster == nil {
		return ClusterParameters{}, fmt.Errorf("plan %s sells no clusters", p.Name)
	}
	c := p.Cluster
	chosen := ClusterParameters{Workers: map[string]int32{}, Variables: map[string]json.RawMessage{}}
	if c.ControlPlane != nil {
		chosen.ControlPlane = c.ControlPlane.Replicas
	}
	for _, pool := range c.Workers {
		chosen.Workers[pool.Name] = pool.Replicas
	}
	if c.Join != nil {
		chosen.Join = c.Join.As
	}
	if err := variables(c.Variables, chosen.Variables); err != nil {
		return ClusterParameters{}, err
	}
	err := errors.Join(read(clusterParameters, &chosen, parameters), read(addOnParameters, &chosen, parameters))
	if c.Join == nil {
		chosen.Join = "" // the plan has none any more
	}
	return chosen, err
}

// RejoinsBy reports whether a cluster that is a member cluster would be none, one on the other side, or one
// of another driver (without Liqo), with other parameters.
func (p *Plan) RejoinsBy(has *v1alpha1.ClusterShape, parameters json.RawMessage) bool {
	if p.Kind != v1alpha1.PlanKindCluster || has == nil || has.Member == nil {
		return false
	}
	asked, err := p.ClusterParameters(parameters)
	will := has.DeepCopy()
	return err == nil && (asked.Join != has.Member.Side() ||
		p.RenderAddOns(&v1alpha1.ServiceInstance{}, will, parameters) == nil && (v1alpha1.Liqo(will.AddOns) == nil) != (v1alpha1.Liqo(has.AddOns) == nil))
}

func variables(from *runtime.RawExtension, into map[string]json.RawMessage) error {
	if from == nil || len(from.Raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(from.Raw, &into); err != nil {
		return fmt.Errorf("variables: want an object of values by name: %w", err)
	}
	return nil
}

// clusterSold is a cluster plan with the other sources of its schema: the known schemas of class
// variables, and the operator's own schema.
type clusterSold struct {
	*v1alpha1.ClusterPlan
	schemas map[string]map[string]any
	own     *runtime.RawExtension
}

// clusterParameters are the parameters of plans of kind cluster.
var clusterParameters = []parameter[clusterSold, ClusterParameters]{
	{
		name: "version",
		schema: func(c *clusterSold) map[string]any {
			if len(c.Versions) < 2 {
				return nil
			}
			return map[string]any{
				"description": "Version of Kubernetes; it may rise, one minor version at a time, and never falls.",
				"type":        "string", "enum": anySlice(c.Versions), "default": c.Versions[0],
			}
		},
		set: func(chosen *ClusterParameters, value []byte) error { return json.Unmarshal(value, &chosen.Version) },
	},
	{
		name: "controlPlane",
		schema: func(c *clusterSold) map[string]any {
			m := c.ControlPlane
			if m == nil || m.Max <= m.Replicas {
				return nil
			}
			var odd []any
			for n := int32(1); n <= m.Max; n += 2 {
				odd = append(odd, n)
			}
			return map[string]any{
				"description": "Number of control plane machines.", "type": "integer", "enum": odd, "default": m.Replicas,
			}
		},
		set: func(chosen *ClusterParameters, value []byte) error {
			if chosen.ControlPlane == 0 {
				return nil // the plan has none
			}
			return setCount(&chosen.ControlPlane, value)
		},
	},
	{
		name: "workers",
		schema: func(c *clusterSold) map[string]any {
			pools := map[string]any{}
			for _, pool := range c.Workers {
				if pool.Max > pool.Replicas {
					pools[pool.Name] = map[string]any{"type": "integer", "minimum": 0, "maximum": pool.Max, "default": pool.Replicas}
				}
			}
			if len(pools) == 0 {
				return nil
			}
			return map[string]any{
				"description": "Number of machines in each pool of workers.",
				"type":        "object", "properties": pools, "additionalProperties": false,
			}
		},
		set: func(chosen *ClusterParameters, value []byte) error {
			var asked map[string]float64
			err := json.Unmarshal(value, &asked)
			for pool := range chosen.Workers {
				if n, isGiven := asked[pool]; isGiven {
					chosen.Workers[pool] = count(n, 0)
				}
			}
			return err
		},
	},
	{
		name: "variables",
		schema: func(c *clusterSold) map[string]any {
			if len(c.Settable) == 0 {
				return nil
			}
			return map[string]any{
				"description": "Variables of the cluster's class.",
				"type":        "object", "properties": c.settable(), "additionalProperties": false,
			}
		},
		set: func(chosen *ClusterParameters, value []byte) error { return json.Unmarshal(value, &chosen.Variables) },
	},
	{
		name: "join",
		schema: func(c *clusterSold) map[string]any {
			if c.Join == nil || len(c.Join.Settable) == 0 {
				return nil
			}
			choices := []any{joinNothing}
			for _, side := range c.Join.Settable {
				choices = append(choices, strings.ToLower(string(side)))
			}
			if c.Join.As != "" && !slices.Contains(c.Join.Settable, c.Join.As) {
				choices = append(choices, strings.ToLower(string(c.Join.As)))
			}
			return map[string]any{
				"description": "Makes the cluster a member cluster: consumer, to which what is bought can be delivered, or provider, on which others' purchases are placed.",
				"type":        "string", "enum": choices, "default": cmp.Or(strings.ToLower(string(c.Join.As)), joinNothing),
			}
		},
		set: func(chosen *ClusterParameters, value []byte) error {
			var side string
			err := json.Unmarshal(value, &side)
			switch side {
			case joinNothing:
				chosen.Join = ""
			case joinConsumer:
				chosen.Join = v1alpha1.SideConsumer
			case joinProvider:
				chosen.Join = v1alpha1.SideProvider
			}
			return err
		},
	},
}

// Values of the parameter join.
const (
	joinNothing  = "nothing"
	joinConsumer = "consumer"
	joinProvider = "provider"
)

// settable returns the schemas of the variables that consumers may set: the class's, as far as
// they are known, except of variables that the operator's schema describes.
func (c *clusterSold) settable() map[string]any {
	settable, set := map[string]any{}, map[string]json.RawMessage{}
	_ = variables(c.Variables, set) // checked by checkCluster
	for _, name := range c.Settable {
		schema := map[string]any{}
		if known := c.schemas[name]; known != nil && !describes(c.own, name) {
			schema = maps.Clone(known)
			if value, ok := set[name]; ok { // instead of the class's default
				schema["default"] = value
			}
		}
		settable[name] = schema
	}
	return settable
}

// bindingSchema returns the schema of a binding's parameters; nil if the plan has none. own is the operator's
// schema, or nil.
func (p *Plan) bindingSchema(own *runtime.RawExtension) map[string]any {
	if p.Upstream != nil {
		return p.upstreamSchema(bindingCreate, own)
	}
	if p.Cluster == nil || len(p.Cluster.Roles) < 2 {
		return nil
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{
		"role": map[string]any{
			"description": "Cluster role of the credentials.",
			"type":        "string", "enum": anySlice(p.Cluster.Roles), "default": p.Cluster.Roles[0],
		},
	}}
}

// BindingCredentials returns the credentials policy of a binding with these parameters,
// which must be valid by the plan's schema.
func (p *Plan) BindingCredentials(parameters json.RawMessage) v1alpha1.CredentialsPolicy {
	policy := p.Credentials
	if p.Kind != v1alpha1.PlanKindCluster || len(p.Cluster.Roles) == 0 {
		return policy
	}
	policy.Role = p.Cluster.Roles[0]
	var given struct {
		Role string `json:"role"`
	}
	if json.Unmarshal(parameters, &given) == nil && slices.Contains(p.Cluster.Roles, given.Role) {
		policy.Role = given.Role
	}
	return policy
}

func anySlice(from []string) []any {
	out := make([]any, 0, len(from))
	for _, s := range from {
		out = append(out, s)
	}
	return out
}

func checkCluster(c *v1alpha1.ClusterPlan) error {
	if err := variables(c.Variables, map[string]json.RawMessage{}); err != nil {
		return err
	}
	for path, cidrs := range map[string][]string{"podCIDRs": c.PodCIDRs, "serviceCIDRs": c.ServiceCIDRs} {
		for _, cidr := range cidrs {
			if _, err := netip.ParsePrefix(cidr); err != nil {
				return fmt.Errorf("%s: %q is no address range", path, cidr)
			}
		}
	}
	if len(c.Roles) == 0 {
		return errors.New("roles: name at least one")
	}
	if err := checkAddOns(c); err != nil {
		return err
	}
	if j := c.Join; j != nil && (j.As == v1alpha1.SideConsumer || slices.Contains(j.Settable, v1alpha1.SideConsumer)) && v1alpha1.Liqo(c.AddOns) == nil {
		return errors.New("join: the cluster of a Consumer needs Liqo, and none of addOns is a chart of Liqo")
	}
	if j := c.Join; j != nil {
		if err := j.Member.Prices.Check(); err != nil {
			return fmt.Errorf("join.member.prices.%w", err)
		}
	}
	if m := c.ControlPlane; m != nil && m.Replicas%2 == 0 {
		return fmt.Errorf("controlPlane.replicas: %d is even, and a control plane's machines vote", m.Replicas)
	}
	return nil
}
