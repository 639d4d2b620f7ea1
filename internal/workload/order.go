package workload

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Order is a workload as one instance runs it. Orders do not change, except their Share, which the
// driver completes.
type Order struct {
	// Plan of the workload.
	Plan *v1alpha1.WorkloadPlan
	// Parameters of the consumer, with the plan's defaults.
	Parameters map[string]any
	// Secrets of the instance, of which there is one for each that the plan names.
	Secrets Secrets
	// Consumers are the addresses of the consumer's own cluster, as CIDRs, to which ports with reach
	// consumer are open.
	Consumers []string
	// Share is the part of the workload on one cluster; nil means all of it.
	Share *Share
	// Replicas is the share of one cluster, if the plan divides replicas; 0 means 1.
	Replicas int32
	// Ports of Gateways for public ports that speak TCP, by component.
	Ports map[string]int32
	// Instance holds the values of the variable of that name.
	Instance map[string]any

	binding map[string]any
	// hidden are values besides the secrets that no message may contain.
	hidden []string
}

// Of returns the workload that an instance runs in a state, by a plan that was decided for it. Keys
// open the parameters that are sealed. It fails if that fails, or if the parameters are no object.
func Of(plan *v1alpha1.WorkloadPlan, instance *v1alpha1.ServiceInstance, state *v1alpha1.InstanceState, keys *seal.Keyset, secrets Secrets) (*Order, error) {
	opened, err := ParametersOf(instance, keys).Opened(state.Raw())
	if err != nil {
		return nil, err
	}
	parameters, err := withDefaults(plan, opened)
	if err != nil {
		return nil, err
	}
	return &Order{
		Plan: plan, Parameters: parameters, Secrets: secrets, hidden: hiddenTexts(plan, parameters),
		Instance: map[string]any{
			"id": instance.Spec.InstanceID, "name": instance.Name, "namespace": v1alpha1.MemberNamespace(instance.Name),
			"platform": instance.Spec.Platform, "organization": instance.Spec.OrganizationGUID, "space": instance.Spec.SpaceGUID,
			"plan": state.PlanID, "version": state.MaintenanceVersion,
		},
	}, nil
}

// sample returns an order for which nothing is known but its parameters. Its secrets are not
// secret. It has the same objects and footprint as a real one, unless expressions decide otherwise.
func sample(plan *v1alpha1.WorkloadPlan, parameters map[string]any) *Order {
	return &Order{
		Plan: plan, Parameters: parameters, Secrets: sampleSecrets(plan.Secrets), hidden: hiddenTexts(plan, parameters), Ports: samplePorts(plan),
		Instance: map[string]any{
			"id": "sample", "name": "si-sample", "namespace": "sluice-sample",
			"platform": "sample", "organization": "sample", "space": "sample", "plan": "sample", "version": "",
		},
	}
}

func samplePorts(plan *v1alpha1.WorkloadPlan) map[string]int32 {
	ports := map[string]int32{}
	for _, component := range plan.TCP() {
		ports[component] = samplePort
	}
	return ports
}

func sampleSecrets(named []v1alpha1.WorkloadSecret) Secrets {
	secrets := Secrets{}
	for _, s := range named {
		secrets[s.Name] = seal.Redact(bytes.Repeat([]byte("s"), int(cmp.Or(s.Length, usualLength))))
	}
	return secrets
}

// For returns the order with the values of a binding. Keys open its parameters that are sealed. Its secrets are those that
// the plan names for bindings.
func (o *Order) For(b *v1alpha1.ServiceBinding, keys *seal.Keyset, secrets Secrets) (*Order, error) {
	of, parameters := BindingParametersOf(b, keys), map[string]any{}
	opened, err := of.Opened(b.Spec.Raw())
	if err != nil {
		return nil, fmt.Errorf("parameters of the binding: %w", err)
	}
	if len(opened) > 0 {
		if err := decode(opened, &parameters); err != nil {
			return nil, fmt.Errorf("parameters of the binding: want an object: %w", err)
		}
	}
	hidden, err := of.texts(b.Spec.Raw())
	if err != nil {
		return nil, fmt.Errorf("parameters of the binding: %w", err)
	}
	order := o.with(b.Spec.BindingID, bindingWord(b), b.Spec.AppGUID, parameters, secrets)
	order.hidden = append(order.hidden, hidden...)
	return order, nil
}

// bindingWord is the name of a binding in expressions: 17 letters and digits, a letter first. It is
// another one if the binding is made anew.
func bindingWord(b *v1alpha1.ServiceBinding) string {
	sum := sha256.Sum256([]byte(b.Name + "/" + string(v1alpha1.UIDOf(b))))
	return "b" + hex.EncodeToString(sum[:8])
}

func (o *Order) with(id, name, application string, parameters map[string]any, secrets Secrets) *Order {
	own, values, results := *o, map[string]any{}, map[string]any{}
	if o.Plan.Bindings != nil {
		for _, result := range o.Plan.Bindings.Results {
			results[result] = ""
		}
	}
	own.hidden = slices.Clone(o.hidden)
	for secret, value := range secrets.revealed() {
		if secret == fingerprintKey {
			continue
		}
		own.hidden = append(own.hidden, value)
		if result, ok := strings.CutPrefix(secret, resultPrefix); ok {
			results[result] = value
		} else {
			values[secret] = value
		}
	}
	own.binding = map[string]any{"id": id, "name": name, "application": application, "parameters": parameters, "secrets": values, "results": results}
	return &own
}

// Cluster is a chosen cluster, as expressions see it.
type Cluster struct {
	Name, Provider, Region, Zone, Tier string
	Labels                             map[string]string
	// Exposure is the way in for public ports; nil if there is none. Expressions do not see it.
	Exposure *v1alpha1.ClusterExposure
	// Kubernetes is the version of the API server; empty if it is not known. Expressions do not see it.
	Kubernetes string
}

// ClusterOf returns a member cluster as expressions see it.
func ClusterOf(c *v1alpha1.MemberCluster) Cluster {
	l := c.SelectorLabels()
	return Cluster{
		Name: c.Name, Provider: c.Spec.Provider, Region: l[v1alpha1.LabelRegion], Zone: l[v1alpha1.LabelZone],
		Tier: l[v1alpha1.LabelTier], Labels: l, Exposure: c.Spec.Exposure, Kubernetes: c.Status.KubernetesVersion,
	}
}

// Address of a component: its hosts, and the ports of its Service by name.
type Address struct {
	// Host of the Service; empty if the component is not reached there.
	Host  string
	Ports map[string]int32
	// Public is the host at which everyone reaches the component, and PublicPort the port; URL is the address
	// for HTTP. They are empty if it has no public port, or the cluster no Gateway for it.
	Public, URL string
	PublicPort  int32
}

// Addresses returns the components that have ports, each at the host that the first function gives its
// Service. The second returns the exposure of a component's cluster; nil if that has none.
func (o *Order) Addresses(host func(service string) string, exposure func(component string) *v1alpha1.ClusterExposure) (map[string]Address, error) {
	out := map[string]Address{}
	for i := range o.Plan.Components {
		c := &o.Plan.Components[i]
		if len(c.Ports) == 0 {
			continue
		}
		a := Address{Host: host(c.ServiceName()), Ports: map[string]int32{}}
		for _, p := range c.Ports {
			a.Ports[p.Name] = p.Port
		}
		way, public := exposure(c.Name), c.PublicPort()
		if public != nil && slices.Contains(way.Speaks(), public.Speaks()) {
			hosts, err := o.PublicHosts(way)
			if err != nil {
				return nil, err
			}
			a.Public, a.PublicPort = hosts[c.Name], way.PortOf(public, o.Ports[c.Name])
			if public.Speaks() == v1alpha1.AppProtocolHTTP {
				a.URL = way.URL(a.Public)
			}
		}
		out[c.Name] = a
	}
	return out, nil
}

// inside returns the host of a Service for pods of its namespace.
func inside(service string) string { return service }

// nowhere is the exposure of components whose cluster does not matter.
func nowhere(string) *v1alpha1.ClusterExposure { return nil }

// Redacted removes the secrets and the hidden parameters of a workload from a message, which a cluster may quote. A nil
// order has none.
func (o *Order) Redacted(message string) string {
	if o == nil {
		return message
	}
	return o.expressions(nil).redacted(message)
}

func (o *Order) expressions(addresses map[string]Address) *expressions {
	components := map[string]any{}
	for name, a := range addresses {
		ports := map[string]any{}
		for port, number := range a.Ports {
			ports[port] = int64(number)
		}
		component := map[string]any{"ports": ports}
		if a.Host != "" {
			component["host"] = a.Host
		}
		if a.Public != "" {
			public := map[string]any{"host": a.Public, "port": int64(a.PublicPort)}
			if a.URL != "" {
				public["url"] = a.URL
			}
			component["public"] = public
		}
		components[name] = component
	}
	revealed := o.Secrets.revealed()
	secrets := map[string]any{}
	for name, value := range revealed {
		if name == fingerprintKey {
			continue
		}
		secrets[name] = value
	}
	return &expressions{
		variables: map[string]any{
			varParameters: o.Parameters, varSecrets: secrets, varInstance: o.Instance, varComponents: components,
			varCluster: map[string]any{}, varKubernetes: map[string]any{}, varBinding: o.binding,
			varBackup: map[string]any{}, varTarget: map[string]any{},
		},
		hide: slices.AppendSeq(slices.Clone(o.hidden), maps.Values(revealed)),
	}
}

// Credentials returns the credentials object of a binding, to be sealed at once. Addresses are those
// at which the consumer reaches the components; kubernetes holds the credentials of the binding's
// account, or nothing.
func (o *Order) Credentials(addresses map[string]Address, kubernetes map[string]any) (json.RawMessage, error) {
	object := map[string]any{}
	if c := o.Plan.Credentials; c != nil && len(c.Raw) > 0 {
		if err := json.Unmarshal(c.Raw, &object); err != nil {
			return nil, fmt.Errorf("credentials: want an object: %w", err)
		}
	}
	e := o.expressions(addresses)
	e.variables[varKubernetes] = kubernetes
	expanded, err := e.all(object, "credentials")
	if err != nil {
		return nil, err
	}
	return json.Marshal(expanded)
}

// withDefaults decodes the parameters of an order and fills in the defaults of the plan. Numbers
// without a fraction are int64.
func withDefaults(plan *v1alpha1.WorkloadPlan, raw json.RawMessage) (map[string]any, error) {
	chosen := map[string]any{}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && !bytes.Equal(trimmed, []byte("null")) {
		if err := decode(trimmed, &chosen); err != nil {
			return nil, fmt.Errorf("parameters: want an object: %w", err)
		}
	}
	for name, schema := range plan.Parameters {
		if _, given := chosen[name]; given {
			continue
		}
		described, err := describe(schema)
		if err != nil {
			return nil, fmt.Errorf("parameters.%s: %w", name, err)
		}
		if value, ok := described["default"]; ok {
			chosen[name] = value
		}
	}
	return chosen, nil
}

// describe decodes the schema of a parameter.
func describe(schema v1alpha1.ParameterSchema) (map[string]any, error) {
	described := map[string]any{}
	if err := decode(schema.Raw, &described); err != nil {
		return nil, fmt.Errorf("want a JSON Schema: %w", err)
	}
	return described, nil
}

// decode decodes JSON as Kubernetes does: whole numbers are int64, others float64.
func decode(raw []byte, into *map[string]any) error {
	return utiljson.Unmarshal(raw, into)
}
