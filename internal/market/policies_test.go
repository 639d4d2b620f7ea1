package market

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
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
}

func (*judged) Compile(policy *v1alpha1.PlacementPolicy) error {
	_, err := placement.CompilePolicy(policy)
	return err
}

func (j *judged) Check(_ context.Context, policy *v1alpha1.PlacementPolicy, by Supposed, _ []*catalog.Plan) (*PolicyCheck, error) {
	j.policies, j.consumers = append(j.policies, policy), append(j.consumers, by)
	return &PolicyCheck{
		Instances: []CheckedInstances{{Service: "db", Plan: "small", Present: 2, Refused: 1, Rules: []RuleCount{{"residents", 1}}}},
		Unserved:  []Unserved{{"a", "db", "small", "residents", "does not hold"}},
	}, nil
}

const residents = `{"match": {"plans": ["db-small"]}, "require": [{"name": "residents", "expression": "consumer.organization == 'acme'", "appliesTo": "Path"}]}`

// policyOf creates a policy of the hub.
func (w *world) policyOf(name, provider string, with func(*v1alpha1.PlacementPolicySpec)) *v1alpha1.PlacementPolicy {
	w.Helper()
	p := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: v1alpha1.PlacementPolicySpec{
		Provider: provider, Require: []v1alpha1.PolicyRule{{Name: "all", Expression: "true"}},
	}}
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

// TestAProviderSaysWhoMayBuy: a policy from its beginning to its end. Changes are lost to nobody, and a check changes
// nothing.
func TestAProviderSaysWhoMayBuy(t *testing.T) {
	w := newWorld(t)
	var got policyBody
	call := func(method, path, body, match string, status int) *http.Response {
		t.Helper()
		got = policyBody{}
		q := request{method: method, path: "/market/v1/policies/" + path, with: w.as("provider:acme"), body: body}
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
	call("PUT", "acme.residents", residents, `"x"`, http.StatusPreconditionFailed)
	check := request{method: "POST", path: "/market/v1/policies/acme.residents/check", with: w.as("provider:acme"), body: `{"spec": ` + residents + `, "consumer": {"organization": "acme"}}`}
	var found PolicyCheck
	if w.send(check, &found).StatusCode != http.StatusOK || len(found.Unserved) != 1 || found.Instances[0].Refused != 1 {
		t.Errorf("it is checked as %+v", found)
	}
	if by := w.judged.consumers[0]; by.Organization == nil || *by.Organization != "acme" || by.Platform != nil {
		t.Errorf("it is checked for %+v", by)
	}
	if p := w.judged.policies[0]; p.Name != "acme.residents" || p.Spec.Provider != "acme" || len(p.Spec.Require) != 1 {
		t.Errorf("checked is %+v", p)
	}
	call("GET", "acme.residents", "", "", http.StatusNotFound)
	w.refused(request{method: "POST", path: check.path, with: check.with, body: "{}"}, http.StatusNotFound, "no policy acme.residents")

	call("PUT", "acme.residents", residents, "", http.StatusCreated)
	first := got.ETag
	if got.ID != "acme.residents" || got.Provider != "acme" || got.By != "provider" || got.Status.State != "pending" || !sameJSON(string(got.Spec), residents) {
		t.Errorf("got %+v, %s", got, got.Spec)
	}
	stored := &v1alpha1.PlacementPolicy{}
	key := client.ObjectKey{Namespace: w.namespace, Name: "acme.residents"}
	must(t, w.Get(t.Context(), key, stored))
	if stored.Spec.Provider != "acme" || stored.Spec.Require[0].AppliesTo != v1alpha1.RulePath {
		t.Errorf("stored as %+v", stored.Spec)
	}
	says := func(status metav1.ConditionStatus, message, want string) {
		t.Helper()
		must(t, w.Get(t.Context(), key, stored))
		v1alpha1.SetCondition(&stored.Status.Conditions, stored.Generation, v1alpha1.ConditionReady, status, "Test", message)
		must(t, w.Status().Update(t.Context(), stored))
		call("GET", "acme.residents", "", "", http.StatusOK)
		if got.Status.State != want {
			t.Errorf("its state is %+v, want %s", got.Status, want)
		}
	}
	says(metav1.ConditionTrue, "in force", "in_force")
	if got.ETag != first {
		t.Error("a status changes the ETag")
	}
	changed := strings.Replace(residents, "'acme'", "'other'", 1)
	call("PUT", "acme.residents", changed, "", http.StatusPreconditionRequired)
	call("PUT", "acme.residents", changed, first, http.StatusOK)
	if got.Status.State != "pending" || !strings.Contains(string(got.Spec), "other") {
		t.Errorf("got %+v", got)
	}
	second := got.ETag
	call("PUT", "acme.residents", residents, first, http.StatusPreconditionFailed)
	says(metav1.ConditionFalse, "does not compile", "refusing")
	if w.send(request{method: "POST", path: check.path, with: check.with, body: `{"consumer": {}}`}, &found).StatusCode != http.StatusOK {
		t.Error("what is stored cannot be checked")
	}
	if p := w.judged.policies[len(w.judged.policies)-1]; !strings.Contains(p.Spec.Require[0].Expression, "other") {
		t.Errorf("checked is %+v", p.Spec)
	}
	call("DELETE", "acme.residents", "", "", http.StatusPreconditionRequired)
	call("DELETE", "acme.residents", "", first, http.StatusPreconditionFailed)
	call("DELETE", "acme.residents", "", second, http.StatusNoContent)
	call("DELETE", "acme.residents", "", second, http.StatusNotFound)
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// TestPoliciesThatAreRefused: precisely, by PUT and by a check alike, and nothing has changed.
func TestPoliciesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	w.policyOf("eu-only", "", nil)
	w.policyOf("terms", "acme", nil)
	w.policyOf("rival.own", "rival", nil)
	with := func(field string) string { return strings.Replace(residents, "{", "{"+field+", ", 1) }
	rule := func(text string) string { return `{"require": [` + text + `]}` }
	for name, row := range map[string]struct {
		id, body string
		status   int
		why      string
	}{
		"the operator's":                   {"eu-only", residents, http.StatusForbidden, "is not acme's, whose ids are acme.NAME"},
		"one that nobody has":              {"eu-any", residents, http.StatusForbidden, "is not acme's, whose ids are acme.NAME"},
		"another's":                        {"rival.own", residents, http.StatusForbidden, "is not acme's"},
		"the operator's about acme":        {"terms", residents, http.StatusForbidden, "the operator's to change"},
		"an id that is no name":            {"acme.Residents", residents, http.StatusBadRequest, "id: "},
		"an id below another":              {"acme.a.b", residents, http.StatusForbidden, "is not acme's"},
		"in another's name":                {"acme.new", with(`"provider": "rival"`), http.StatusForbidden, "provider: want acme"},
		"a preference":                     {"acme.new", with(`"prefer": [{"name": "mine", "expression": "true", "weight": 100}]`), http.StatusUnprocessableEntity, "prefer: this is for the operator's policies, because it would raise"},
		"weights":                          {"acme.new", with(`"score": {"price": 100}`), http.StatusUnprocessableEntity, "score: "},
		"a quota":                          {"acme.new", with(`"quota": {"per": "space", "instances": 0}`), http.StatusUnprocessableEntity, "quota: "},
		"moves":                            {"acme.new", with(`"rebalance": {"schedule": "* * * * *"}`), http.StatusUnprocessableEntity, "rebalance: "},
		"room":                             {"acme.new", with(`"makeRoom": {}`), http.StatusUnprocessableEntity, "makeRoom: "},
		"clusters":                         {"acme.new", with(`"elastic": {"serviceID": "s", "planID": "p", "atMost": 1}`), http.StatusUnprocessableEntity, "elastic: "},
		"classes":                          {"acme.new", with(`"priorityClasses": [{"name": "a", "value": 1}]`), http.StatusUnprocessableEntity, "priorityClasses: "},
		"a field that is none":             {"acme.new", with(`"colour": "red"`), http.StatusBadRequest, "/colour"},
		"no JSON":                          {"acme.new", "{x", http.StatusBadRequest, "malformed JSON"},
		"a match that is none":             {"acme.new", strings.Replace(residents, `["db-small"]`, `"db-small"`, 1), http.StatusBadRequest, "/match/plans"},
		"no rules":                         {"acme.new", `{}`, http.StatusUnprocessableEntity, "require: want at least one rule"},
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
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			w.start() // with its own count of writes
			w.refused(request{method: "PUT", path: "/market/v1/policies/" + row.id, with: w.as("provider:acme"), body: row.body}, row.status, row.why)
			if name == "no JSON" {
				return
			}
			row.why = strings.Replace(row.why, "/", "/spec/", 1)
			w.refused(request{method: "POST", path: "/market/v1/policies/" + row.id + "/check", with: w.as("provider:acme"), body: `{"spec": ` + row.body + `}`}, row.status, row.why)
		})
	}
	w.T = t
	w.start()
	if len(w.judged.policies) != 0 {
		t.Errorf("%d were checked", len(w.judged.policies))
	}
	remove := request{method: "DELETE", path: "/market/v1/policies/terms", with: w.as("provider:acme"), header: map[string]string{"If-Match": "*"}}
	w.refused(remove, http.StatusForbidden, "the operator's to change")
	var list v1alpha1.PlacementPolicyList
	must(t, w.List(t.Context(), &list, client.InNamespace(w.namespace)))
	if len(list.Items) != 3 {
		t.Errorf("there are %d policies", len(list.Items))
	}
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
	for caller, want := range map[string][]string{
		"operator": {"acme.odd", "acme.own", "eu-only", "rival.own", "terms"}, "provider:acme": {"acme.own", "terms"}, "provider:rival": {"acme.odd", "rival.own"},
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
