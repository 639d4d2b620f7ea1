package market

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// judged compiles policies by the engine, and keeps what it was asked to check. The checks themselves are tested in
// cmd/sluice.
type judged struct {
	policies  []*v1alpha1.PlacementPolicy
	consumers []Supposed
	plans     [][]*catalog.Plan
}

func (*judged) Compile(policy *v1alpha1.PlacementPolicy) error {
	_, err := placement.CompilePolicy(policy)
	return err
}

func (j *judged) Check(_ context.Context, policy *v1alpha1.PlacementPolicy, by Supposed, plans []*catalog.Plan) (*PolicyCheck, error) {
	j.policies, j.consumers, j.plans = append(j.policies, policy), append(j.consumers, by), append(j.plans, plans)
	return &PolicyCheck{
		Instances: []CheckedInstances{{Service: "db", Plan: "small", Present: 2, Refused: 1, Rules: []RuleCount{{"residents", 1}}}},
		Unserved:  []Unserved{{Cluster: "a", Service: "db", Plan: "small", Rule: "residents", Why: "does not hold"}},
	}, nil
}

const residents = `{"match": {"plans": ["db-small"]}, "require": [{"name": "residents", "expression": "consumer.organization == 'acme'", "appliesTo": "Path"}]}`

// policyOf creates a policy of the hub about a provider, provider or platform:NAME; "" is none.
func (w *world) policyOf(name, about string, with func(*v1alpha1.PlacementPolicySpec)) *v1alpha1.PlacementPolicy {
	w.Helper()
	p := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: v1alpha1.PlacementPolicySpec{
		Require: []v1alpha1.PolicyRule{{Name: "all", Expression: "true"}},
	}}
	if platform, ok := strings.CutPrefix(about, "platform:"); ok {
		p.Spec.Platform = platform
	} else {
		p.Spec.Provider = about
	}
	if with != nil {
		with(&p.Spec)
	}
	must(w.T, w.Create(w.Context(), p))
	return p
}

// policies returns the ids of those that a caller sees.
func (w *world) policiesOf(caller string) (ids []string) {
	w.Helper()
	var got struct{ Policies []policyBody }
	w.send(request{method: "GET", path: "/market/v1/policies", with: w.as(caller)}, &got)
	for _, p := range got.Policies {
		ids = append(ids, p.ID)
	}
	return ids
}

// TestPoliciesAboutOneself: a policy of a provider, and of a platform, from its beginning to its end. Changes are lost to
// nobody, and a check changes nothing.
func TestPoliciesAboutOneself(t *testing.T) {
	w := newWorld(t)
	for caller, prefix := range map[string]string{"provider:acme": "acme.", "platform:cf": "platform.cf."} {
		t.Run(caller, func(t *testing.T) {
			w.T, w.judged.policies, w.judged.consumers = t, nil, nil
			w.start()
			testPolicy(w, caller, prefix)
		})
	}
}

func testPolicy(w *world, caller, prefix string) {
	t := w.T
	id := prefix + "residents"
	role, name, _ := strings.Cut(caller, ":")
	about := func(provider, platform string) bool {
		return provider == name && platform == "" && role == "provider" || platform == name && provider == "" && role == "platform"
	}
	var got policyBody
	call := func(method, path, body, match string, status int) *http.Response {
		t.Helper()
		got = policyBody{}
		q := request{method: method, path: "/market/v1/policies/" + path, with: w.as(caller), body: body}
		if match != "" {
			q.header = map[string]string{"If-Match": match}
		}
		into := any(&got)
		if status == http.StatusNoContent {
			into = nil
		}
		answer := w.send(q, into)
		if answer.StatusCode != status || answer.Header.Get("ETag") != got.ETag {
			t.Fatalf("%s %s is answered %d, %+v; want %d", method, path, answer.StatusCode, got, status)
		}
		return answer
	}
	call("PUT", id, residents, `"x"`, http.StatusPreconditionFailed)
	check := request{method: "POST", path: "/market/v1/policies/" + id + "/check", with: w.as(caller), body: `{"spec": ` + residents + `, "consumer": {"organization": "acme"}}`}
	var found PolicyCheck
	if w.send(check, &found).StatusCode != http.StatusOK || len(found.Unserved) != 1 || found.Instances[0].Refused != 1 {
		t.Errorf("it is checked as %+v", found)
	}
	if by := w.judged.consumers[0]; by.Organization == nil || *by.Organization != "acme" || by.Platform != nil {
		t.Errorf("it is checked for %+v", by)
	}
	if p := w.judged.policies[0]; p.Name != id || !about(p.Spec.Provider, p.Spec.Platform) || len(p.Spec.Require) != 1 {
		t.Errorf("checked is %+v", p)
	}
	call("GET", id, "", "", http.StatusNotFound)
	w.refused(request{method: "POST", path: check.path, with: check.with, body: "{}"}, http.StatusNotFound, "no policy "+id)

	const pods = `{"workloads": {"registries": ["registry.example"], "digests": true, "runtimeClasses": ["", "gvisor"], "capabilities": ["NONE"]}}`
	call("PUT", prefix+"pods", pods, "", http.StatusCreated)
	if !sameJSON(string(got.Spec), pods) {
		t.Errorf("rules for workloads are %s", got.Spec)
	}
	call("DELETE", prefix+"pods", "", got.ETag, http.StatusNoContent)
	call("PUT", id, residents, "", http.StatusCreated)
	if want := `match.plans: no plan has the id "db-small"`; got.Status.Message != want || found.Warning != want {
		t.Errorf("of a plan that there is not, a check says %q, and a PUT %q", found.Warning, got.Status.Message)
	}
	first := got.ETag
	if got.ID != id || !about(got.Provider, got.Platform) || string(got.By) != role || got.Status.State != "pending" || !sameJSON(string(got.Spec), residents) {
		t.Errorf("got %+v, %s", got, got.Spec)
	}
	stored := &v1alpha1.PlacementPolicy{}
	key := client.ObjectKey{Namespace: w.namespace, Name: id}
	must(t, w.Get(t.Context(), key, stored))
	if !about(stored.Spec.Provider, stored.Spec.Platform) || stored.Spec.Require[0].AppliesTo != v1alpha1.RulePath {
		t.Errorf("stored as %+v", stored.Spec)
	}
	says := func(status metav1.ConditionStatus, message, want string) {
		t.Helper()
		must(t, w.Get(t.Context(), key, stored))
		v1alpha1.SetCondition(&stored.Status.Conditions, stored.Generation, v1alpha1.ConditionReady, status, "Test", message)
		must(t, w.Status().Update(t.Context(), stored))
		call("GET", id, "", "", http.StatusOK)
		if got.Status.State != want {
			t.Errorf("its state is %+v, want %s", got.Status, want)
		}
	}
	says(metav1.ConditionTrue, "in force", "in_force")
	if got.ETag != first {
		t.Error("a status changes the ETag")
	}
	changed := strings.Replace(residents, "'acme'", "'other'", 1)
	call("PUT", id, changed, "", http.StatusPreconditionRequired)
	call("PUT", id, changed, first, http.StatusOK)
	if got.Status.State != "pending" || !strings.Contains(string(got.Spec), "other") {
		t.Errorf("got %+v", got)
	}
	second := got.ETag
	call("PUT", id, residents, first, http.StatusPreconditionFailed)
	says(metav1.ConditionFalse, "does not compile", "refusing")
	if w.send(request{method: "POST", path: check.path, with: check.with, body: `{"consumer": {}}`}, &found).StatusCode != http.StatusOK {
		t.Error("what is stored cannot be checked")
	}
	if p := w.judged.policies[len(w.judged.policies)-1]; !strings.Contains(p.Spec.Require[0].Expression, "other") {
		t.Errorf("checked is %+v", p.Spec)
	}
	call("DELETE", id, "", "", http.StatusPreconditionRequired)
	call("DELETE", id, "", first, http.StatusPreconditionFailed)
	call("DELETE", id, "", second, http.StatusNoContent)
	call("DELETE", id, "", second, http.StatusNotFound)
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// TestPlansThatAreChecked: a provider's check looks at the plans that are open to all, and at its own for certain
// platforms; a platform's at those that the platform sees.
func TestPlansThatAreChecked(t *testing.T) {
	w := newWorld(t)
	var offerings []v1alpha1.ServiceOffering
	for _, s := range []sold{{name: "open"}, {name: "acmes", platforms: []string{"cf"}}, {name: "rivals", platforms: []string{"cf"}}} {
		o := s.offering()
		if s.platforms != nil {
			o.Status.Accepted.Provider = strings.TrimSuffix(s.name, "s")
		}
		offerings = append(offerings, o)
	}
	snapshot, err := catalog.Build(offerings, clusters(), nil, nil)
	must(t, err)
	w.catalog.Replace(snapshot)
	for caller, row := range map[string]struct{ policy, want string }{
		"provider:acme": {"acme.new", "acmes open"}, "platform:cf": {"platform.cf.new", "acmes open rivals"}, "platform:korifi": {"platform.korifi.new", "open"},
	} {
		check := request{method: "POST", path: "/market/v1/policies/" + row.policy + "/check", with: w.as(caller), body: `{"spec": ` + residents + `}`}
		if answer := w.send(check, nil); answer.StatusCode != http.StatusOK {
			t.Fatalf("%s is answered %d", caller, answer.StatusCode)
		}
		var names []string
		for _, p := range w.judged.plans[len(w.judged.plans)-1] {
			names = append(names, p.Offering.Name)
		}
		slices.Sort(names)
		if got := strings.Join(slices.Compact(names), " "); got != row.want {
			t.Errorf("the check of %s looks at %s", caller, got)
		}
	}
}

// TestPoliciesThatAreRefused: precisely, by PUT and by a check alike, and nothing has changed.
func TestPoliciesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.policyOf("eu-only", "", nil)
	w.policyOf("terms", "acme", nil)
	w.policyOf("rival.own", "rival", nil)
	w.policyOf("orders", "platform:cf", nil)
	w.policyOf("platform.cf.own", "platform:cf", func(s *v1alpha1.PlacementPolicySpec) {
		s.Prefer = []v1alpha1.PolicyPreference{{PolicyRule: v1alpha1.PolicyRule{Name: "all", Expression: "true"}, Weight: 2}}
	})
	w.policyOf("platform.korifi.own", "platform:korifi", nil)
	with := func(field string) string { return strings.Replace(residents, "{", "{"+field+", ", 1) }
	rule := func(text string) string { return `{"require": [` + text + `]}` }
	// Neither side sets what is the operator's, or no field.
	operators := func(id string) map[string]refusedPolicy {
		return map[string]refusedPolicy{
			"weights":              {id, with(`"score": {"price": 100}`), http.StatusUnprocessableEntity, "score: "},
			"a quota":              {id, with(`"quota": {"per": "space", "instances": 0}`), http.StatusUnprocessableEntity, "quota: "},
			"moves":                {id, with(`"rebalance": {"schedule": "* * * * *"}`), http.StatusUnprocessableEntity, "rebalance: "},
			"room":                 {id, with(`"makeRoom": {}`), http.StatusUnprocessableEntity, "makeRoom: "},
			"probes":               {id, with(`"measure": {"serviceID": "s", "planID": "p"}`), http.StatusUnprocessableEntity, "measure: "},
			"clusters":             {id, with(`"elastic": {"serviceID": "s", "planID": "p", "atMost": 1}`), http.StatusUnprocessableEntity, "elastic: "},
			"classes":              {id, with(`"priorityClasses": [{"name": "a", "value": 1}]`), http.StatusUnprocessableEntity, "priorityClasses: "},
			"a field that is none": {id, with(`"colour": "red"`), http.StatusBadRequest, "/colour"},
		}
	}
	w.refusesPolicies("provider:acme", operators("acme.new"))
	w.refusesPolicies("provider:acme", map[string]refusedPolicy{
		"the operator's":                   {"eu-only", residents, http.StatusForbidden, "is not acme's, whose ids are acme.NAME"},
		"one that nobody has":              {"eu-any", residents, http.StatusForbidden, "is not acme's, whose ids are acme.NAME"},
		"another's":                        {"rival.own", residents, http.StatusForbidden, "is not acme's"},
		"the operator's about acme":        {"terms", residents, http.StatusForbidden, "the operator's to change"},
		"an id that is no name":            {"acme.Residents", residents, http.StatusBadRequest, "id: "},
		"an id below another":              {"acme.a.b", residents, http.StatusForbidden, "is not acme's"},
		"in another's name":                {"acme.new", with(`"provider": "rival"`), http.StatusForbidden, "provider: want acme"},
		"about a platform":                 {"acme.new", with(`"platform": "cf"`), http.StatusUnprocessableEntity, "platform: a policy of a provider is about its clusters; leave it out, and use match.platforms"},
		"a preference":                     {"acme.new", with(`"prefer": [{"name": "mine", "expression": "true", "weight": 100}]`), http.StatusUnprocessableEntity, "prefer: this is for the operator's policies, because it would raise"},
		"no JSON":                          {"acme.new", "{x", http.StatusBadRequest, "malformed JSON"},
		"a match that is none":             {"acme.new", strings.Replace(residents, `["db-small"]`, `"db-small"`, 1), http.StatusBadRequest, "/match/plans"},
		"no rules":                         {"acme.new", `{}`, http.StatusUnprocessableEntity, "require: want at least one rule"},
		"workloads that say nothing":       {"acme.new", with(`"workloads": {}`), http.StatusUnprocessableEntity, "workloads needs one of"},
		"a registry that is an image":      {"acme.new", with(`"workloads": {"registries": ["registry.example/app:1"]}`), http.StatusUnprocessableEntity, "workloads.registries[0]"},
		"a capability that is none":        {"acme.new", with(`"workloads": {"capabilities": ["SYS_ADMIN"]}`), http.StatusUnprocessableEntity, "workloads.capabilities[0]"},
		"a rule that says nothing":         {"acme.new", rule(`{"name": "a"}`), http.StatusUnprocessableEntity, "a rule has either a claim or an expression"},
		"a rule without a name":            {"acme.new", rule(`{"expression": "true"}`), http.StatusUnprocessableEntity, "require[0].name"},
		"a rule twice":                     {"acme.new", rule(`{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}`), http.StatusUnprocessableEntity, "require[1]"},
		"a scope that is none":             {"acme.new", rule(`{"name": "a", "expression": "true", "appliesTo": "All"}`), http.StatusUnprocessableEntity, "require[0].appliesTo"},
		"an expression of nothing":         {"acme.new", rule(`{"name": "a", "expression": "consumers.platform == 'x'"}`), http.StatusUnprocessableEntity, "require: rule a: expression: column 1: undeclared reference to 'consumers'"},
		"an expression of a text":          {"acme.new", rule(`{"name": "a", "expression": "consumer.platform"}`), http.StatusUnprocessableEntity, "rule a: expression: is of type"},
		"a claim without an order":         {"acme.new", rule(`{"name": "a", "claim": {"name": "x", "atLeast": "L1", "values": ["L2"]}}`), http.StatusUnprocessableEntity, "values or bounds"},
		"too long":                         {"acme.new", strings.Replace(residents, "acme", strings.Repeat("x", maxPolicy), 1), http.StatusRequestEntityTooLarge, "65536"},
		"more rules than one policy has":   {"acme.new", rule(rules(maxRules + 1)), http.StatusForbidden, "33 rules"},
		"an expression longer than it may": {"acme.new", rule(fmt.Sprintf(`{"name": "a", "expression": "'%s' == ''"}`, strings.Repeat("x", 4096))), http.StatusUnprocessableEntity, "require[0].expression"},
	})
	score := `{"match": {"plans": ["db-small"]}, "prefer": [{"name": "near", "expression": "cluster.region == 'eu-de'", "weight": %d}]}`
	w.refusesPolicies("platform:cf", operators("platform.cf.new"))
	w.refusesPolicies("platform:cf", map[string]refusedPolicy{
		"the operator's":            {"eu-only", residents, http.StatusForbidden, "is not cf's, whose ids are platform.cf.NAME"},
		"one that nobody has":       {"eu-any", residents, http.StatusForbidden, "is not cf's, whose ids are platform.cf.NAME"},
		"another's":                 {"platform.korifi.own", residents, http.StatusForbidden, "is not cf's"},
		"another's new":             {"platform.korifi.new", residents, http.StatusForbidden, "is not cf's"},
		"a provider's":              {"rival.own", residents, http.StatusForbidden, "is not cf's"},
		"of a provider of its name": {"cf.new", residents, http.StatusForbidden, "is not cf's"},
		"the operator's about cf":   {"orders", residents, http.StatusForbidden, "the operator's to change"},
		"an id that is no name":     {"platform.cf.Residents", residents, http.StatusBadRequest, "id: "},
		"an id below another":       {"platform.cf.a.b", residents, http.StatusForbidden, "is not cf's"},
		"in another's name":         {"platform.cf.new", with(`"platform": "korifi"`), http.StatusForbidden, "platform: want cf"},
		"about a provider":          {"platform.cf.new", with(`"provider": "rival"`), http.StatusUnprocessableEntity, "provider: a policy of a platform is about its orders; leave it out, and use a rule about cluster.provider"},
		"orders of another":         {"platform.cf.new", strings.Replace(residents, `"plans"`, `"platforms": ["korifi"], "plans"`, 1), http.StatusUnprocessableEntity, "match.platforms: this is for the operator's policies, because yours concern your orders alone"},
		"no rules":                  {"platform.cf.new", `{}`, http.StatusUnprocessableEntity, "require: want at least one rule, here or in prefer"},
		"an expression of nothing":  {"platform.cf.new", rule(`{"name": "a", "expression": "clusters.name == 'x'"}`), http.StatusUnprocessableEntity, "require: rule a: expression: column 1: undeclared reference to 'clusters'"},
		"too heavy":                 {"platform.cf.new", fmt.Sprintf(score, 99), http.StatusForbidden, "prefer: cf would have preferences of the weight 101 together; at most 100"},
		"more rules":                {"platform.cf.new", rule(rules(maxRules + 1)), http.StatusForbidden, "35 rules"},
	})
	if answer := w.send(request{method: "PUT", path: "/market/v1/policies/platform.cf.new", with: w.as("platform:cf"), body: fmt.Sprintf(score, 98)}, nil); answer.StatusCode != http.StatusCreated {
		t.Errorf("a preference is answered %d", answer.StatusCode)
	}
	w.refused(request{method: "POST", path: "/market/v1/policies/platform.cf.own/check", with: w.as("platform:cf"), body: `{"consumer": {"platform": "korifi"}}`}, http.StatusForbidden, "consumer.platform: want cf")
	w.refused(request{method: "POST", path: "/market/v1/policies/acme.own/check", with: w.as("provider:acme"), body: `{"consumer": {"claims": [{"name": "consumer.country", "value": "DE", "assurance": "mayor"}]}}`},
		http.StatusBadRequest, `consumer.claims[0].assurance: "mayor" is none`)
	if len(w.judged.policies) != 0 {
		t.Errorf("%d were checked", len(w.judged.policies))
	}
	remove := request{method: "DELETE", path: "/market/v1/policies/terms", with: w.as("provider:acme"), header: map[string]string{"If-Match": "*"}}
	w.refused(remove, http.StatusForbidden, "the operator's to change")
	var list v1alpha1.PlacementPolicyList
	must(t, w.List(t.Context(), &list, client.InNamespace(w.namespace)))
	if len(list.Items) != 7 {
		t.Errorf("there are %d policies", len(list.Items))
	}
}

// refusedPolicy is a policy that is refused with a status, and for a reason.
type refusedPolicy struct {
	id, body string
	status   int
	why      string
}

// refusesPolicies puts and checks policies that are refused.
func (w *world) refusesPolicies(caller string, all map[string]refusedPolicy) {
	t := w.T
	for name, row := range all {
		t.Run(caller+"/"+name, func(t *testing.T) {
			w.T = t
			w.start() // with its own count of writes
			w.refused(request{method: "PUT", path: "/market/v1/policies/" + row.id, with: w.as(caller), body: row.body}, row.status, row.why)
			if name == "no JSON" {
				return
			}
			row.why = strings.Replace(row.why, "/", "/spec/", 1)
			w.refused(request{method: "POST", path: "/market/v1/policies/" + row.id + "/check", with: w.as(caller), body: `{"spec": ` + row.body + `}`}, row.status, row.why)
		})
	}
	w.T = t
	w.start()
}

// rules returns so many rules, in JSON.
func rules(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"name": "r%d", "expression": "true"}`, i))
	}
	return strings.Join(all, ",")
}

// TestWhoSeesWhichPolicies: a provider sees those about itself, and of an operator's no more than it could write.
func TestWhoSeesWhichPolicies(t *testing.T) {
	w := newWorld(t)
	w.policyOf("eu-only", "", nil)
	w.policyOf("terms", "acme", func(s *v1alpha1.PlacementPolicySpec) {
		s.Quota = &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Instances: new(int32)}
	})
	w.policyOf("acme.own", "acme", nil)
	w.policyOf("rival.own", "rival", nil)
	w.policyOf("acme.odd", "rival", nil) // by the operator
	w.policyOf("platform.cf.own", "platform:cf", nil)
	w.policyOf("orders", "platform:cf", nil)
	for caller, want := range map[string][]string{
		"operator": {"acme.odd", "acme.own", "eu-only", "orders", "platform.cf.own", "rival.own", "terms"}, "provider:acme": {"acme.own", "terms"}, "provider:rival": {"acme.odd", "rival.own"},
		"platform:cf": {"orders", "platform.cf.own"}, "platform:korifi": nil,
	} {
		if got := w.policiesOf(caller); !reflect.DeepEqual(got, want) {
			t.Errorf("%s sees %v, want %v", caller, got, want)
		}
	}
	for caller, quota := range map[string]bool{"operator": true, "provider:acme": false} {
		var got policyBody
		w.send(request{method: "GET", path: "/market/v1/policies/terms", with: w.as(caller)}, &got)
		if got.By != "operator" || strings.Contains(string(got.Spec), "quota") != quota || !strings.Contains(string(got.Spec), `"all"`) {
			t.Errorf("%s sees %+v, %s", caller, got, got.Spec)
		}
	}
	see := func(caller, id string) request {
		return request{method: "GET", path: "/market/v1/policies/" + id, with: w.as(caller)}
	}
	w.refused(see("provider:acme", "eu-only"), http.StatusForbidden, "is not acme's")
	w.refused(see("provider:acme", "no-such"), http.StatusForbidden, "is not acme's")
	w.refused(see("provider:acme", "acme.odd"), http.StatusForbidden, "is not acme's")
	w.refused(see("platform:cf", "eu-only"), http.StatusForbidden, "is not cf's")
	w.refused(see("platform:cf", "acme.own"), http.StatusForbidden, "is not cf's")
	w.refused(see("platform:korifi", "platform.cf.own"), http.StatusForbidden, "is not korifi's")
	w.refused(see("operator", "no-such"), http.StatusNotFound, "no policy no-such")
	w.refused(see("operator", "No%20Such"), http.StatusBadRequest, "id: ")
	odd := request{method: "DELETE", path: "/market/v1/policies/acme.odd", with: w.as("provider:rival"), header: map[string]string{"If-Match": "*"}}
	w.refused(odd, http.StatusForbidden, "the operator's to change")

	// How many, and how many rules, over all policies that the provider has written.
	w.policyOf("acme.many", "acme", func(s *v1alpha1.PlacementPolicySpec) {
		for i := range maxRules - 2 {
			s.Require = append(s.Require, v1alpha1.PolicyRule{Name: fmt.Sprintf("r%d", i), Expression: "true"})
		}
	})
	w.refused(request{method: "PUT", path: "/market/v1/policies/acme.more", with: w.as("provider:acme"), body: residents}, http.StatusForbidden, "3 policies with 33 rules together")
	if answer := w.send(request{method: "PUT", path: "/market/v1/policies/acme.own", with: w.as("provider:acme"), body: residents, header: map[string]string{"If-Match": "*"}}, nil); answer.StatusCode != http.StatusOK {
		t.Errorf("in place of another it is answered %d", answer.StatusCode)
	}
}
