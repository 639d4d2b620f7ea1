package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement"
)

// checked compiles policies by the engine, and checks none: the answer is the same, once the organization is given. The
// checks themselves are tested in cmd/sluice.
type checked struct{}

func (checked) Compile(policy *v1alpha1.PlacementPolicy) error {
	_, err := placement.CompilePolicy(policy)
	return err
}

func (checked) Check(_ context.Context, policy *v1alpha1.PlacementPolicy, by market.Supposed, _ []*catalog.Plan) (*market.PolicyCheck, error) {
	if by.Organization == nil {
		return nil, &market.Error{Status: http.StatusUnprocessableEntity, Code: "Invalid", Description: "consumer.organization: want a value."}
	}
	rule := policy.Spec.Require[0].Name
	if policy.Spec.Provider != "" && (by.Claims == nil || len(*by.Claims) > 1) {
		return nil, fmt.Errorf("checked with the claims %+v", by.Claims)
	}
	if by.Claims != nil && len(*by.Claims) == 1 {
		rule = fmt.Sprint((*by.Claims)[0])
	}
	if policy.Spec.Platform != "" {
		large := market.CheckedPlan{Service: "postgresql", Plan: "large"}
		return &market.PolicyCheck{
			Instances: []market.CheckedInstances{{Service: "postgresql", Plan: "large", Present: 1, Refused: 1, Rules: []market.RuleCount{{Rule: rule, Refused: 1}}}},
			Unserved:  []market.Unserved{{Provider: "nuage", Region: "us-va", Service: "postgresql", Plan: "large", Rule: rule, Why: "does not hold"}},
			Nowhere:   []market.CheckedPlan{large},
		}, nil
	}
	return &market.PolicyCheck{
		Instances: []market.CheckedInstances{
			{Service: "postgresql", Plan: "large", Present: 3, Refused: 2, Rules: []market.RuleCount{{Rule: rule, Refused: 2}}}, {Service: "postgresql", Plan: "small", Present: 1, Rules: []market.RuleCount{}},
		},
		Unserved: []market.Unserved{{Cluster: "eu-central-1", Service: "postgresql", Plan: "large", Rule: rule, Why: "does not hold: " + policy.Spec.Require[0].Expression}},
	}, nil
}

// TestWritingAPolicy: a provider writes a policy, sees whom it would refuse before it is saved, changes it and removes
// it. What is refused says so beside what was written, which is kept.
func TestWritingAPolicy(t *testing.T) {
	c := newConsole(t)
	acme := c.as(access.Caller{Role: access.Provider, Name: "acme"})
	var page string
	shows := func(path string, form url.Values, status int, want ...string) {
		t.Helper()
		page = c.shows(acme, path, form, status, want...)
	}
	// valueOf returns the value of an input of the page, and whether it is marked as wrong.
	valueOf := func(name string) (value, invalid string) {
		_ = nodes(page, func(n *html.Node) {
			if attributeOf(n, "name") != name {
				return
			}
			value, invalid = attributeOf(n, "value"), attributeOf(n, "aria-invalid")
			if n.Data == "textarea" && n.FirstChild != nil {
				value = n.FirstChild.Data
			}
		})
		return value, invalid
	}
	shows("policies", nil, http.StatusOK, "There is no policy here", "Write a policy")
	shows("policies/edit", nil, http.StatusOK, "known-customers", "Small letters, digits and hyphens", "acme.NAME")
	form := url.Values{"do": {"check"}, "name": {"terms"}, "etag": {""}, "text": {"require:\r\n- name: friends\r\n  expresion: 'true'\r\n"}}
	wrong := func(field, why string) {
		t.Helper()
		shows("policies/edit", form, http.StatusUnprocessableEntity, why)
		for _, name := range []string{"name", "text", "organization", "claims"} {
			value, invalid := valueOf(name)
			if invalid != map[bool]string{true: "true"}[name == field] {
				t.Errorf("%s is marked %q", name, invalid)
			}
			if want := strings.ReplaceAll(form.Get(name), "\r\n", "\n"); value != want {
				t.Errorf("%s is %q, was %q", name, value, want)
			}
		}
	}
	wrong("text", "line 3")
	form.Set("text", "require: [{name: friends, expression: consumers.organization}]")
	wrong("text", "require: rule friends: expression: column 1: undeclared reference")
	form.Set("text", "{}")
	wrong("text", "require: want at least one rule")
	const spec = "require: [{name: friends, expression: consumer.organization == 'friends'}]"
	form.Set("text", spec)
	form.Set("name", "The Terms")
	wrong("name", "id: ")
	form.Set("name", "")
	wrong("name", "Name: choose one")
	form.Set("name", "terms")
	wrong("organization", "consumer.organization: want a value")
	form.Set("organization", "friends")
	shows("policies/edit", form, http.StatusOK, "It would refuse 2 of 4 instances", "by the organization friends", "postgresql / large 3 2 friends 2", "postgresql / small 1 0", "eu-central-1 postgresql / large friends does not hold", "Nothing was saved")
	if kept, _ := valueOf("text"); kept != spec {
		t.Errorf("after a check, the text is %q", kept)
	}
	form.Set("claims", "consumer.country")
	wrong("claims", `Proven: "consumer.country": want NAME=VALUE or NAME=VALUE@ASSURANCE.`)
	form.Set("claims", "consumer.country=DE@mayor")
	wrong("claims", `consumer.claims[0].assurance: "mayor" is none`)
	form.Set("claims", " consumer.country=DE@notary\r\n\r\n")
	shows("policies/edit", form, http.StatusOK, "by the organization friends, of whom consumer.country=DE@notary is proven.", "{consumer.country DE notary} 2")
	form.Del("claims")
	stored := &v1alpha1.PlacementPolicy{}
	key := client.ObjectKey{Namespace: c.namespace, Name: "acme.terms"}
	if err := c.Get(t.Context(), key, stored); err == nil {
		t.Fatal("a check saves")
	}
	form.Set("do", "save")
	shows("policies/edit", form, http.StatusSeeOther)
	c.read("acme.terms", stored)
	if stored.Spec.Provider != "acme" || stored.Spec.Require[0].Expression != "consumer.organization == 'friends'" {
		t.Errorf("saved is %+v", stored.Spec)
	}
	shows("policies/edit", form, http.StatusUnprocessableEntity, "If-Match") // a name that is taken
	shows("policies", nil, http.StatusOK, "acme.terms", "By the provider acme, for its own clusters.", "Change or check")

	shows("policies/edit?policy=acme.terms", nil, http.StatusOK, "Policy acme.terms", "Remove acme.terms")
	tag, _ := valueOf("etag")
	name, _ := valueOf("name")
	if text, _ := valueOf("text"); name != "terms" || !strings.Contains(text, "consumer.organization == 'friends'") || strings.Contains(text, "provider") {
		t.Errorf("the form of %q has %s", name, text)
	}
	form.Set("etag", tag)
	form.Set("text", strings.Replace(spec, "friends'", "partners'", 1))
	shows("policies/edit", form, http.StatusSeeOther)
	shows("policies/edit", form, http.StatusUnprocessableEntity, "it has changed")
	remove := url.Values{"policy": {"acme.terms"}, "etag": {tag}}
	shows("policies/remove", remove, http.StatusConflict, "it has changed")
	shows("policies/edit?policy=acme.terms", nil, http.StatusOK, "partners")
	tag, _ = valueOf("etag")
	remove.Set("etag", tag)
	shows("policies/remove", remove, http.StatusSeeOther)
	if err := c.Get(t.Context(), key, stored); err == nil {
		t.Error("it is still there")
	}

	// Of the operator's policies, it changes none.
	c.create(&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "terms"}, Spec: v1alpha1.PlacementPolicySpec{Provider: "acme", Require: []v1alpha1.PolicyRule{{Name: "all", Expression: "true"}}}})
	c.create(&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "eu-only"}})
	shows("policies", nil, http.StatusOK, "For the clusters of acme, by the operator.")
	if strings.Contains(page, "Change or check") || strings.Contains(page, "eu-only") {
		t.Errorf("the operator's policies can be changed, or others are shown: %s", page)
	}
	shows("policies/edit?policy=terms", nil, http.StatusNotFound, "There is no such policy of yours")
	shows("policies/edit?policy=eu-only", nil, http.StatusNotFound, "There is no such policy of yours")
	shows("policies/remove", url.Values{"policy": {"terms"}, "etag": {"*"}}, http.StatusConflict, "the operator's to change")
	if got := c.send(c.as(access.Caller{Role: access.Operator}), Root+"policies/edit", nil); got.StatusCode != http.StatusForbidden {
		t.Errorf("an operator is answered %d", got.StatusCode)
	}
}

// TestAPlatformWritesAPolicy: the pages are those of providers, in a platform's words, and with its policies alone.
func TestAPlatformWritesAPolicy(t *testing.T) {
	c := newConsole(t)
	shop := c.as(access.Caller{Role: access.Platform, Name: "shop"})
	c.create(&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "acme.terms"}, Spec: v1alpha1.PlacementPolicySpec{Provider: "acme"}})
	c.create(&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "platform.office.eu"}, Spec: v1alpha1.PlacementPolicySpec{Platform: "office"}})
	if page := c.shows(shop, "policies", nil, http.StatusOK, "Which clusters take your orders.", "There is no policy here"); strings.Contains(page, "acme") || strings.Contains(page, "office") {
		t.Errorf("policies of others are shown: %s", page)
	}
	if page := c.shows(shop, "policies/edit", nil, http.StatusOK, "in-the-eu", "platform.shop.NAME"); strings.Contains(page, `name="platform"`) || strings.Contains(page, `name="claims"`) {
		t.Error("a platform is asked which one it is, or what its consumers prove")
	}
	form := url.Values{"do": {"check"}, "name": {"eu"}, "organization": {"acme"}, "text": {"require: [{name: eu, expression: 'cluster.region.startsWith(\"eu-\")'}]\nprefer: [{name: green, weight: 10, expression: 'true'}]"}}
	c.shows(shop, "policies/edit", form, http.StatusOK, "If your instances were ordered again, each by those who have ordered it, and your plans by the organization acme. Nothing was saved.",
		"No cluster would serve postgresql / large any more.", "nuage us-va postgresql / large eu does not hold")
	form.Set("do", "save")
	c.shows(shop, "policies/edit", form, http.StatusSeeOther)
	stored := &v1alpha1.PlacementPolicy{}
	c.read("platform.shop.eu", stored)
	if stored.Spec.Platform != "shop" || len(stored.Spec.Prefer) != 1 {
		t.Errorf("saved is %+v", stored.Spec)
	}
	c.shows(shop, "policies", nil, http.StatusOK, "platform.shop.eu", "By the platform shop, for its own orders.", "Change or check")
	c.shows(shop, "policies/edit?policy=platform.shop.eu", nil, http.StatusOK, "Policy platform.shop.eu", "Remove platform.shop.eu")
	c.shows(shop, "policies/edit?policy=platform.office.eu", nil, http.StatusNotFound, "There is no such policy of yours")
	c.shows(shop, "policies/edit?policy=acme.terms", nil, http.StatusNotFound, "There is no such policy of yours")
}
