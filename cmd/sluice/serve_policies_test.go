package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// shared is a hub with what acme has, and others have, and who is there.
func shared(t *testing.T) (supposer, []*catalog.Plan) {
	t.Helper()
	const namespace = "sluice-system"
	plan := func(id, cpu string, more func(*v1alpha1.Plan)) v1alpha1.Plan {
		p := v1alpha1.Plan{ID: id, Name: id, Description: id, Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Clusters: 1, Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
		if more != nil {
			more(&p)
		}
		return p
	}
	edge := func(p *v1alpha1.Plan) { p.Resources.Tier = v1alpha1.TierEdge }
	asks := func(p *v1alpha1.Plan) {
		p.Schemas = &v1alpha1.PlanSchemas{InstanceCreate: &runtime.RawExtension{Raw: []byte(`{"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}`)}}
	}
	spec := &v1alpha1.ServiceOfferingSpec{ID: "db", Name: "db", Description: "d", Plans: []v1alpha1.Plan{plan("small", "1", nil), plan("large", "4", nil), plan("edge", "1", edge), plan("asks", "1", asks)}}
	built, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{}
	for _, row := range []placementtest.Cluster{
		{Name: "acme-de", Provider: "acme", Region: "eu-de"}, {Name: "acme-fr", Provider: "acme", Region: "eu-fr", Cordoned: true}, {Name: "rival-de", Provider: "rival", Region: "eu-de"},
	} {
		row.Has = placementtest.Quantities("cpu=8,pods=100")
		m := row.MemberCluster()
		m.Namespace = namespace
		objects = append(objects, m)
	}
	for id, row := range map[string]struct {
		plan, organization string
		on                 []string
		hub                string
	}{
		"a": {"small", "friends", []string{"acme-de"}, ""}, "b": {"large", "strangers", []string{"acme-de"}, ""}, "c": {"large", "friends", []string{"acme-fr", "rival-de"}, ""},
		"d": {"small", "strangers", []string{"rival-de"}, ""}, "e": {"gone", "friends", []string{"acme-de"}, ""}, "f": {"small", "friends", []string{"rival-de"}, "acme-fr"}, "g": {"small", "friends", nil, ""},
	} {
		i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.InstanceName("cf", id)}}
		i.Spec.Platform, i.Spec.InstanceID, i.Spec.ServiceID, i.Spec.OrganizationGUID, i.Spec.Desired.PlanID = "cf", id, "db", row.organization, row.plan
		if row.on != nil {
			d := v1alpha1.Decision{}
			for _, on := range row.on {
				p := v1alpha1.Placement{Cluster: on}
				if row.hub != "" {
					p.Peering = &v1alpha1.PlacementPeering{Hub: row.hub}
				}
				d.Placements = append(d.Placements, p)
			}
			i.Status.Decision = &d
		}
		objects = append(objects, i)
	}
	for name, row := range map[string]struct{ provider, rule string }{"eu-only": {"", "false"}, "acme.old": {"acme", "cluster.region == 'eu-de'"}, "rival.own": {"rival", "false"}} {
		objects = append(objects, &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.PlacementPolicySpec{
			Provider: row.provider, Match: v1alpha1.PolicyMatch{Plans: []string{"large"}}, Require: []v1alpha1.PolicyRule{{Name: "none", Expression: row.rule}},
		}})
	}
	served := &catalog.Catalog{}
	served.Replace(built)
	return supposer{fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), namespace, served}, built.All()[0].Plans
}

// TestWhomAPolicyWouldRefuse: by plan and rule, of what is on the provider's own clusters, and which of these no longer
// serve which plans. Neither who has ordered, nor another's clusters and policies, change the answer.
func TestWhomAPolicyWouldRefuse(t *testing.T) {
	p, plans := shared(t)
	friends := `{"organization": "friends"}`
	union := `{"require": [{"name": "union", "appliesTo": "Consumer", "claim": {"name": "consumer.country", "values": ["EU"], "assurance": "notary"}}]}`
	for name, row := range map[string]struct {
		spec, by, instances, unserved string
	}{
		"a region":            {`{"require": [{"name": "de", "expression": "cluster.region == 'eu-de'"}]}`, `{}`, "large 1 of 2 (de 1), small 1 of 2 (de 1)", "acme-fr small de"},
		"on chosen clusters":  {`{"require": [{"name": "de", "expression": "cluster.region == 'eu-de'", "appliesTo": "Clusters"}]}`, `{}`, "large 1 of 2 (de 1), small 0 of 2", "acme-fr small de"},
		"on hubs":             {`{"require": [{"name": "de", "expression": "cluster.region == 'eu-de'", "appliesTo": "Hubs"}]}`, `{}`, "large 0 of 2, small 1 of 2 (de 1)", ""},
		"a size":              {`{"require": [{"name": "size", "expression": "request.resources['cpu'] < 2000"}]}`, `{}`, "large 2 of 2 (size 2), small 0 of 2", "acme-de large size"},
		"a plan":              {`{"match": {"plans": ["small"]}, "require": [{"name": "none", "expression": "false"}]}`, `{}`, "large 0 of 2, small 2 of 2 (none 2)", "acme-de small none, acme-fr small none"},
		"friends, by a rule":  {`{"require": [{"name": "friends", "expression": "consumer.organization == 'friends'"}]}`, friends, "large 0 of 2, small 0 of 2", ""},
		"others, by a rule":   {`{"require": [{"name": "friends", "expression": "consumer.organization == 'friends'"}]}`, `{"organization": "x"}`, "large 2 of 2 (friends 2), small 2 of 2 (friends 2)", "acme-de small friends, acme-fr small friends, acme-de large friends"},
		"who is proven":       {union, `{"claims": [{"name": "consumer.country", "value": "DE", "assurance": "notary"}]}`, "large 0 of 2, small 0 of 2", ""},
		"who says so":         {union, `{"claims": [{"name": "consumer.country", "value": "DE"}]}`, "large 2 of 2 (union 2), small 2 of 2 (union 2)", "acme-de small union, acme-fr small union, acme-de large union"},
		"friends, by a match": {`{"match": {"organizations": ["friends"]}, "require": [{"name": "none", "expression": "false"}]}`, `{"organization": "strangers"}`, "large 0 of 2, small 0 of 2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "acme.new"}}
			var by market.Supposed
			if err := errors.Join(json.Unmarshal([]byte(row.spec), &policy.Spec), json.Unmarshal([]byte(row.by), &by), p.Compile(policy)); err != nil {
				t.Fatal(err)
			}
			policy.Spec.Provider = "acme"
			found, err := p.Check(t.Context(), policy, by, plans)
			if err != nil {
				t.Fatal(err)
			}
			var instances, unserved []string
			for _, one := range found.Instances {
				text := one.Plan + " " + strconv.Itoa(one.Refused) + " of " + strconv.Itoa(one.Present)
				for _, rule := range one.Rules {
					text += " (" + rule.Rule + " " + strconv.Itoa(rule.Refused) + ")"
				}
				instances = append(instances, text)
			}
			for _, one := range found.Unserved {
				unserved = append(unserved, one.Cluster+" "+one.Plan+" "+one.Rule)
				if one.Service != "db" || one.Why == "" {
					t.Errorf("got %+v", one)
				}
			}
			if got := strings.Join(instances, ", "); got != row.instances {
				t.Errorf("refused are %s; want %s", got, row.instances)
			}
			if got := strings.Join(unserved, ", "); got != row.unserved {
				t.Errorf("unserved are %s; want %s", got, row.unserved)
			}
		})
	}
	policy := &v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{Provider: "acme", Match: v1alpha1.PolicyMatch{Platforms: []string{"cf"}}, Require: []v1alpha1.PolicyRule{{Name: "any", Expression: "true"}}}}
	_, err := p.Check(t.Context(), policy, market.Supposed{}, plans)
	if refused := (*market.Error)(nil); !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity || !strings.Contains(refused.Description, "consumer.platform: want a value, because the policy looks at it (match)") {
		t.Errorf("for nobody: %v", err)
	}
	policy.Spec.Match, policy.Spec.Provider = v1alpha1.PolicyMatch{}, "nobody"
	found, err := p.Check(t.Context(), policy, market.Supposed{}, plans)
	if want := (&market.PolicyCheck{Instances: []market.CheckedInstances{}, Unserved: []market.Unserved{}}); err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("of a provider without clusters: %+v, %v", found, err)
	}
}

// TestWhatAPlatformsPolicyWouldRefuse: of its own instances, whoever has ordered them, and of the clusters that would
// serve it now, by where they are. Another platform's instances do not change the answer.
func TestWhatAPlatformsPolicyWouldRefuse(t *testing.T) {
	p, plans := shared(t)
	other := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: v1alpha1.InstanceName("korifi", "a")}}
	other.Spec.Platform, other.Spec.ServiceID, other.Spec.Desired.PlanID = "korifi", "db", "small"
	other.Status.Decision = &v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "acme-de"}}}
	if err := p.hub.(client.Client).Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ spec, by, instances, unserved, nowhere string }{
		"a region":      {`{"require": [{"name": "de", "expression": "cluster.region == 'eu-de'"}]}`, `{}`, "large 1 of 2, small 1 of 3", "acme eu-fr small de", ""},
		"a provider":    {`{"require": [{"name": "no", "expression": "cluster.provider == 'nobody'"}]}`, `{}`, "large 2 of 2, small 3 of 3", "acme eu-de small no, acme eu-fr small no, rival eu-de small no", "small"},
		"its strangers": {`{"match": {"organizations": ["strangers"]}, "require": [{"name": "no", "expression": "false"}]}`, `{"organization": "friends"}`, "large 1 of 2, small 1 of 3", "", ""},
		"a preference":  {`{"prefer": [{"name": "de", "expression": "cluster.region == 'eu-de'", "weight": 1}]}`, `{}`, "large 0 of 2, small 0 of 3", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "platform.cf.new"}}
			var by market.Supposed
			if err := errors.Join(json.Unmarshal([]byte(row.spec), &policy.Spec), json.Unmarshal([]byte(row.by), &by)); err != nil {
				t.Fatal(err)
			}
			policy.Spec.Platform = "cf"
			found, err := p.Check(t.Context(), policy, by, plans)
			if err := errors.Join(err, p.Compile(policy)); err != nil {
				t.Fatal(err)
			}
			var instances, unserved, nowhere []string
			for _, one := range found.Instances {
				instances = append(instances, one.Plan+" "+strconv.Itoa(one.Refused)+" of "+strconv.Itoa(one.Present))
			}
			for _, one := range found.Unserved {
				unserved = append(unserved, strings.Join([]string{one.Provider, one.Region, one.Plan, one.Rule}, " "))
				if one.Cluster != "" || one.Why == "" {
					t.Errorf("got %+v", one)
				}
			}
			for _, one := range found.Nowhere {
				nowhere = append(nowhere, one.Plan)
			}
			for got, want := range map[string]string{strings.Join(instances, ", "): row.instances, strings.Join(unserved, ", "): row.unserved, strings.Join(nowhere, ", "): row.nowhere} {
				if got != want {
					t.Errorf("got %s; want %s", got, want)
				}
			}
		})
	}
	for expression, why := range map[string]string{
		"cluster.name < 'm'": "rule a: expression: reads cluster.name, which is the operator's", "cluster.labels['gpu'] == 'x'": "reads cluster.labels.gpu", "cluster.labels.exists(k, k == 'x')": "reads cluster.labels,",
		"[cluster].exists(c, c.name == 'x')": "reads cluster.", "cluster.tier == 'edge' && cluster.provider != 'x' && cluster.region == 'y' && claims.exists(c, c.issuer == 'z')": "",
	} {
		policy := &v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{Platform: "cf", Require: []v1alpha1.PolicyRule{{Name: "a", Expression: expression}}}}
		if err := p.Compile(policy); (err != nil) != (why != "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", expression, err)
		}
		if policy.Spec.Provider, policy.Spec.Platform = "acme", ""; p.Compile(policy) != nil {
			t.Errorf("%s: refused to a provider", expression)
		}
	}
}
