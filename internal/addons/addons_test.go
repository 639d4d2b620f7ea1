package addons

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// addOn returns an add-on of that name, changed.
func addOn(name string, changes ...func(*v1alpha1.AddOn)) v1alpha1.AddOn {
	a := v1alpha1.AddOn{Name: name, AddOnChart: v1alpha1.AddOnChart{Chart: name + ".tgz", Namespace: name}}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func mode(m v1alpha1.AddOnMode) func(*v1alpha1.AddOn) {
	return func(a *v1alpha1.AddOn) { a.Mode = m }
}

func requires(what ...string) func(*v1alpha1.AddOn) {
	return func(a *v1alpha1.AddOn) { a.Requires = what }
}

func provides(what ...string) func(*v1alpha1.AddOn) {
	return func(a *v1alpha1.AddOn) { a.Provides = what }
}

func when(condition string) func(*v1alpha1.AddOn) {
	return func(a *v1alpha1.AddOn) { a.When = condition }
}

func values(document string) func(*v1alpha1.AddOn) {
	return func(a *v1alpha1.AddOn) { a.Values = &runtime.RawExtension{Raw: []byte(document)} }
}

// facts of a cluster with three workers.
func facts() Facts {
	return FactsOf(
		&v1alpha1.ServiceInstance{},
		&v1alpha1.ClusterShape{
			Version: "v1.34.4", PodCIDRs: []string{"10.1.0.0/16"}, ServiceCIDRs: []string{"10.2.0.0/16"},
			Workers: []v1alpha1.WorkerReplicas{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2}},
			Member:  &v1alpha1.ShapeMember{MemberTemplate: v1alpha1.MemberTemplate{Tier: v1alpha1.TierEdge}},
		},
		Order{PlanID: "p", PlanName: "small", Parameters: map[string]any{"pool": "192.0.2.0/24"}},
	)
}

// A cluster gets the add-ons that every cluster gets, those that its consumer has chosen or else the
// defaults, and none whose condition is false: each after what it requires.
func TestChoice(t *testing.T) {
	sold := []v1alpha1.AddOn{
		addOn("gateway", mode(v1alpha1.AddOnOptional), requires("loadBalancer")),
		addOn("metallb", mode(v1alpha1.AddOnDefault), provides("loadBalancer"), requires("network")),
		addOn("kubevip", mode(v1alpha1.AddOnOptional), provides("loadBalancer")),
		addOn("metrics", mode(v1alpha1.AddOnAlways), when("cluster.nodes > 3")),
		addOn("network"),
	}
	for name, row := range map[string]struct {
		choice  Choice
		want    []string
		refused string
	}{
		"the defaults":          {want: []string{"network", "metallb"}},
		"none":                  {choice: Choice{Names: []string{}}, want: []string{"network"}},
		"what another requires": {choice: Choice{Names: []string{"gateway", "metallb"}}, want: []string{"network", "metallb", "gateway"}},
		"from whom provides it": {choice: Choice{Names: []string{"gateway", "kubevip"}}, want: []string{"kubevip", "gateway", "network"}},
		"without it":            {choice: Choice{Names: []string{"gateway"}}, refused: "gateway requires loadBalancer, and none of the chosen add-ons provides it"},
		"from both":             {choice: Choice{Names: []string{"metallb", "kubevip"}}, refused: "metallb and kubevip both provide loadBalancer"},
		"values for another":    {choice: Choice{Names: []string{}, Values: map[string]map[string]any{"metallb": {}}}, refused: "metallb, which is not chosen"},
		"not sold any more":     {choice: Choice{Names: []string{"gone"}}, want: []string{"network"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Render(sold, row.choice, facts())
			if row.refused != "" {
				if wrong := (*ConflictError)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), row.refused) {
					t.Fatalf("%v, want %q", err, row.refused)
				}
				return
			}
			var names []string
			for i := range got {
				names = append(names, got[i].Name)
			}
			if err != nil || !slices.Equal(names, row.want) {
				t.Errorf("%v, %v; want %v", names, err, row.want)
			}
		})
	}
}

// Values are made of the facts; what the consumer sets is laid over them, and is no expression.
func TestValues(t *testing.T) {
	sold := []v1alpha1.AddOn{addOn("one", values(`{
		"pods": "${cluster.podCIDRs[0]}", "nodes": "${cluster.nodes}", "text": "n=${cluster.nodes} on ${cluster.tier}", "literal": "$${x}",
		"pool": {"of": "${parameters.pool}", "keep": 1}, "plan": "${plan.name}"}`))}
	got, err := Render(sold, Choice{Values: map[string]map[string]any{"one": {"pool": map[string]any{"of": "${cluster.nodes}"}}}}, facts())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"literal":"${x}","nodes":3,"plan":"small","pods":"10.1.0.0/16","pool":{"keep":1,"of":"${cluster.nodes}"},"text":"n=3 on edge"}`
	if values := string(got[0].Values.Raw); values != want {
		t.Errorf("the values are\n%s, want\n%s", values, want)
	}
	if a := got[0]; a.Name != "one" || a.Chart != "one.tgz" || a.Namespace != "one" || a.When != "" || a.Requires != nil {
		t.Errorf("it is %+v", a)
	}
}

// A plan is not sold whose add-ons cannot be installed for anybody.
func TestCheck(t *testing.T) {
	for says, sold := range map[string][]v1alpha1.AddOn{
		"":                                     {addOn("one", mode(v1alpha1.AddOnOptional), requires("two")), addOn("two", mode(v1alpha1.AddOnOptional), provides("x"))},
		"requires network, which no add-on":    {addOn("one", mode(v1alpha1.AddOnOptional), requires("network"))},
		"requires two, and none of the chosen": {addOn("one", requires("two")), addOn("two", mode(v1alpha1.AddOnOptional))},
		"requires itself":                      {addOn("one", requires("two")), addOn("two", requires("one"))},
		"values.a: ${cluster.}":                {addOn("one", mode(v1alpha1.AddOnOptional), values(`{"a": "${cluster.}"}`))},
		"when: is no condition":                {addOn("one", when("cluster.tier"))},
		"values: want an object":               {addOn("one", values(`[]`))},
	} {
		t.Run(says, func(t *testing.T) {
			err := Check(sold, facts())
			if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		})
	}
}
