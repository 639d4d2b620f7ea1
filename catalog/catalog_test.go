package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func build(t testing.TB, before *Snapshot, offerings ...v1alpha1.ServiceOffering) *Snapshot {
	t.Helper()
	s, err := Build(offerings, nil, nil, before)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func seen(offerings []*Offering) (out []string) {
	for _, o := range offerings {
		for _, p := range o.Plans {
			out = append(out, p.Name)
		}
	}
	return out
}

func TestSnapshot(t *testing.T) {
	only := func(platforms ...string) edit {
		return func(o *v1alpha1.ServiceOffering) { o.Spec.Platforms = platforms }
	}
	onlyLarge := func(platforms ...string) edit {
		return func(o *v1alpha1.ServiceOffering) { o.Spec.Plans[1].Platforms = platforms }
	}
	s := build(t, nil,
		offering("c", served),
		offering("a", onlyLarge("cf"), served),
		offering("b", only("k8s"), onlyLarge("cf"), served),
		offering("d", served, deleted),
		offering("e"), // not accepted
	)

	t.Run("a platform sees what is open to it, sorted by name", func(t *testing.T) {
		for platform, want := range map[string][]string{
			"cf":       {"a-small", "a-large", "c-small", "c-large"},
			"k8s":      {"a-small", "b-small", "c-small", "c-large"},
			"somebody": {"a-small", "c-small", "c-large"},
		} {
			if got := seen(s.Offerings(platform)); !slices.Equal(got, want) {
				t.Errorf("%s sees %v, want %v", platform, got, want)
			}
		}
	})

	t.Run("a plan is found in its own offering only", func(t *testing.T) {
		p, err := s.Plan("a-id", "a-large")
		if err != nil || p.Name != "a-large" || len(p.Offering.Plans) != 2 {
			t.Errorf("%+v, %v", p, err)
		}
		if p.VisibleTo("k8s") || !p.VisibleTo("cf") {
			t.Error("visible to the wrong platform")
		}
		if _, err := s.Plan("a-id", "c-large"); !errors.As(err, new(*UnknownPlanError)) {
			t.Errorf("another offering's plan: %v", err)
		}
		if _, err := s.Plan("a-id", "none"); !errors.As(err, new(*UnknownPlanError)) {
			t.Errorf("an unknown plan: %v", err)
		}
		for _, service := range []string{"none", "e-id"} {
			if _, err := s.Plan(service, "e-small"); !errors.As(err, new(*UnknownServiceError)) {
				t.Errorf("service %s: %v", service, err)
			}
		}
	})

	t.Run("a plan of an offering that is being deleted is still found", func(t *testing.T) {
		if p, err := s.Plan("d-id", "d-small"); err != nil || !p.Offering.Retired {
			t.Errorf("%+v, %v", p, err)
		}
	})

	t.Run("a plan overrides its offering", func(t *testing.T) {
		yes, no := true, false
		o := offering("x", func(o *v1alpha1.ServiceOffering) {
			o.Spec.BindingRotatable = false
			o.Spec.Plans[0].Bindable, o.Spec.Plans[0].PlanUpdateable, o.Spec.Plans[0].BindingRotatable = &no, &no, &yes
		}, served)
		s := build(t, nil, o)
		small, _ := s.Plan("x-id", "x-small")
		large, _ := s.Plan("x-id", "x-large")
		if small.IsBindable() || small.IsPlanUpdateable() || !small.IsBindingRotatable() {
			t.Error("the plan's own words do not count")
		}
		if !large.IsBindable() || !large.IsPlanUpdateable() || large.IsBindingRotatable() {
			t.Error("the offering's words do not count")
		}
	})
}

func TestRevisionFollowsWhatIsServed(t *testing.T) {
	a, b := offering("a", served), offering("b", served)
	first := build(t, nil, a, b)
	if again := build(t, nil, b, a); again.Revision() != first.Revision() {
		t.Error("it depends on the order")
	}
	unserved := *b.DeepCopy()
	unserved.Spec.Description = "not accepted yet"
	if again := build(t, first, a, unserved); again.Revision() != first.Revision() {
		t.Error("it depends on what is not served")
	}
	changed := *b.DeepCopy()
	changed.Status.Accepted.Plans[0].Description = "new"
	second := build(t, first, a, changed)
	if second.Revision() == first.Revision() {
		t.Error("a change is not seen")
	}
	if second.byID["a-id"] != first.byID["a-id"] || second.byID["b-id"] == first.byID["b-id"] {
		t.Error("what has not changed was compiled again, or what has was not")
	}
	deleted(&b)
	if retired := build(t, first, a, b); retired.Revision() == first.Revision() || len(retired.Offerings("")) != 1 {
		t.Error("a deletion is not seen")
	}
}

func TestBuildLeavesOutWhatItCannotServe(t *testing.T) {
	broken := offering("broken", schemas(`{"type":1}`, "", ""), served)
	s, err := Build([]v1alpha1.ServiceOffering{broken, offering("a", served)}, nil, nil, nil)
	if err == nil {
		t.Error("no error")
	} else {
		contains(t, err.Error(), "broken")
	}
	if got := seen(s.Offerings("")); !slices.Equal(got, []string{"a-small", "a-large"}) {
		t.Errorf("serves %v", got)
	}
}

// An offering whose schemas were accepted when their work had no bound takes no new orders, and its instances live on.
func TestBuildRetiresWhatAnEarlierVersionAccepted(t *testing.T) {
	hiding := strings.Replace(forks(), "{", `{"properties": {"key": {"writeOnly": true}}, `, 1)
	s := build(t, nil, offering("a", schemas(hiding, "", hiding), served))
	p, err := s.Plan("a-id", "a-small")
	if err != nil || !p.Offering.Retired || len(s.All()) > 0 {
		t.Fatalf("%d are sold, %v", len(s.All()), err)
	}
	given := json.RawMessage(`{"key": "x"}`)
	if err := p.ValidateBind(given); err != nil {
		t.Error(err)
	}
	if hidden := p.HiddenBindingParameters(given); !slices.Equal(hidden, []string{"key"}) {
		t.Errorf("hides %v", hidden)
	}
	if err := p.ValidateUpdate(nil); err != nil {
		t.Error(err)
	}
	if err := p.ValidateUpdate(given); err == nil {
		t.Error("an update may ask for more than the plan's kind takes")
	}
}

func TestEmptyCatalog(t *testing.T) {
	c := &Catalog{}
	if c.Loaded() || c.Snapshot() == nil || len(c.Snapshot().Offerings("x")) != 0 {
		t.Error("the zero value sells something, or says that it is loaded")
	}
	c.Replace(build(t, nil))
	if !c.Loaded() {
		t.Error("not loaded")
	}
}

func BenchmarkPlan(b *testing.B) {
	var offerings []v1alpha1.ServiceOffering
	for i := range 100 {
		offerings = append(offerings, offering(fmt.Sprintf("o%02d", i), served))
	}
	c := &Catalog{}
	c.Replace(build(b, nil, offerings...))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Snapshot().Plan("o50-id", "o50-large"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCannotBecome(t *testing.T) {
	no := false
	plan := func(kind v1alpha1.PlanKind, peering *v1alpha1.PeeringPlan) *Plan {
		p := &Plan{Offering: &Offering{ServiceOfferingSpec: &v1alpha1.ServiceOfferingSpec{PlanUpdateable: true}}}
		p.Name, p.Kind = "p", kind
		if kind == v1alpha1.PlanKindResources {
			p.Resources = &v1alpha1.ResourcesPlan{Peering: peering}
		}
		return p
	}
	node := func(offloading *v1alpha1.Offloading) *Plan {
		return plan(v1alpha1.PlanKindResources, &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNode, Role: v1alpha1.RoleTransparent, Offloading: offloading})
	}
	plain := plan(v1alpha1.PlanKindResources, nil)
	fixed := plan(v1alpha1.PlanKindResources, nil)
	fixed.PlanUpdateable = &no
	network := plan(v1alpha1.PlanKindResources, &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleTransparent})
	byDefault := &v1alpha1.Offloading{Mapping: "DefaultName", Pods: "Remote"}
	for name, test := range map[string]struct {
		from, to *Plan
		may      bool
	}{
		"without peering":               {plain, plain, true},
		"a plan that cannot be left":    {fixed, plain, false},
		"resources to a cluster":        {plain, plan(v1alpha1.PlanKindCluster, nil), false},
		"resources to a node":           {plain, node(nil), false},
		"a node to a network":           {node(nil), network, false},
		"a node to one of another size": {node(byDefault), node(&v1alpha1.Offloading{Mapping: "DefaultName", Pods: "Local"}), true},
		"a namespace that comes":        {node(nil), node(byDefault), false},
		"a namespace that goes":         {node(byDefault), node(nil), false},
		"a namespace with another name": {node(byDefault), node(&v1alpha1.Offloading{Mapping: "EnforceSameName", Pods: "Remote"}), false},
		"through the hub, then from a pool": {
			plan(v1alpha1.PlanKindResources, &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleHubAndSpoke}),
			plan(v1alpha1.PlanKindResources, &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleOpaque}), false,
		},
		"directly, then through the hub": {network, plan(v1alpha1.PlanKindResources, &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleHubAndSpoke}), false},
	} {
		if why := test.from.CannotBecome(test.to); (why == "") != test.may {
			t.Errorf("%s: %q", name, why)
		}
	}
}
