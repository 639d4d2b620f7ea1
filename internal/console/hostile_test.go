package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// hostile is a text that would be markup, a script, a template or an attribute, wherever it is not escaped.
const hostile = `"'><x-evil onclick=alert(1)><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}` + "`" + `javascript:alert(1)</title></textarea></style>`

// hostileHub has hostile texts wherever a provider, a consumer or a broker may choose one. The API takes some of them
// only within limits; what cannot be stored is left as it is.
func (c *consoleOf) hostileHub() (instance string) {
	c.Helper()
	evil := cluster("evil", "r", "p", "8", "32Gi")
	evil.Spec.Region, evil.Spec.Provider, evil.Spec.Zone = hostile[:60], "acme", hostile[:60]
	evil.Status.KubernetesVersion = hostile
	for n := range evil.Status.Conditions {
		evil.Status.Conditions[n].Message = hostile
	}
	evil.Status.Conditions[3].Status, evil.Status.Conditions[3].Reason = metav1.ConditionFalse, "Unreachable"
	soon := metav1.NewTime(time.Now().Add(time.Hour))
	evil.Status.Claims = []v1alpha1.Claim{{Name: hostile, Value: hostile, Assurance: "self", Issuer: hostile, Credential: hostile, ExpiresAt: &soon}}
	evil.Status.Admission = []v1alpha1.VerificationStep{{Step: hostile, Result: "failed", Message: hostile}}
	evil.Spec.Prices.PerHour = map[corev1.ResourceName]resource.Quantity{corev1.ResourceName(hostile): resource.MustParse("1")}
	evil.Status.Allocatable[corev1.ResourceName("evil.example/"+strings.Repeat("a", 20))] = resource.MustParse("1")
	c.create(evil)

	p := plan("evil", hostile, "1", "1Gi", "3")
	p.DisplayName, p.Bullets = hostile, []string{hostile}
	schema, err := json.Marshal(map[string]any{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": map[string]any{
		hostile:  map[string]any{"type": "string", "title": hostile, "description": hostile, "default": hostile},
		"choice": map[string]any{"enum": []string{hostile}, "description": hostile},
		"group":  map[string]any{"type": "object", "title": hostile, "description": hostile, "properties": map[string]any{hostile: map[string]any{"type": "integer"}}},
		"list":   map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "default": []string{hostile}},
	}})
	if err != nil {
		c.Fatal(err)
	}
	p.Schemas = &v1alpha1.PlanSchemas{InstanceCreate: &runtime.RawExtension{Raw: schema}, BindingCreate: &runtime.RawExtension{Raw: schema}}
	o := offering("evil", hostile, p)
	o.Spec.Tags = []string{hostile}
	o.Status.Accepted = o.Spec.DeepCopy()
	c.create(o)

	i := instanceOf("shop", hostile, "evil", "evil")
	i.Spec.ServiceID = "evil"
	i.Spec.Via = []string{hostile[:60]}
	i.Spec.Desired.Parameters = &runtime.RawExtension{Raw: []byte(`{"text": ` + string(quoted(hostile)) + `}`)}
	i.Status.Delivered.State = i.Spec.Desired
	i.Status.Conditions[0] = condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonFailed, hostile, time.Minute)
	i.Status.Operation.State, i.Status.Operation.Description, i.Status.Operation.Summary = v1alpha1.StateFailed, hostile, hostile
	i.Status.Decision.Rejections = []v1alpha1.Rejection{{Reason: hostile, Count: 3, Examples: []v1alpha1.RejectionExample{{Cluster: hostile, Message: hostile}}}}
	i.Status.Decision.RunnerUp = &v1alpha1.RunnerUp{Cluster: hostile, Score: 3}
	i.Status.Decision.Displaced = []v1alpha1.Departure{{Cluster: hostile, Reason: hostile, At: since(time.Minute)}}
	for n := range i.Status.Events {
		e := &i.Status.Events[n]
		e.Message, e.Clusters = hostile, []string{hostile}
		e.By = &v1alpha1.OriginatingIdentity{Platform: hostile, Value: runtime.RawExtension{Raw: []byte(`{"username": ` + string(quoted(hostile)) + `}`)}}
	}
	c.create(i)
	ends := metav1.NewTime(time.Now().Add(time.Hour))
	c.create(&v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BindingName("shop", hostile, hostile)},
		Spec:       v1alpha1.ServiceBindingSpec{Platform: "shop", InstanceName: i.Name, InstanceID: hostile, BindingID: hostile, ServiceID: "evil", PlanID: "evil"},
		Status: v1alpha1.ServiceBindingStatus{
			ExpiresAt: &ends, EndpointsAbsent: hostile, Endpoints: []v1alpha1.Endpoint{{Host: hostile, Ports: []string{hostile}, Protocol: "tcp"}},
			Operation:  &v1alpha1.Operation{Type: "bind", State: v1alpha1.StateFailed, Description: hostile, StartedAt: since(time.Minute)},
			Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, false, "Failed", hostile, time.Minute)},
		},
	})
	c.create(&v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "evil"},
		Spec: v1alpha1.PlacementPolicySpec{
			Provider: hostile, Match: v1alpha1.PolicyMatch{Platforms: []string{hostile}},
			Require: []v1alpha1.PolicyRule{{Name: hostile[:60], Expression: hostile}}, Prefer: []v1alpha1.PolicyPreference{{PolicyRule: v1alpha1.PolicyRule{Name: hostile[:60], Claim: &v1alpha1.ClaimRule{Name: hostile[:60], Values: []string{hostile}, Assurance: "self"}}, Weight: 3}},
		},
		Status: v1alpha1.PlacementPolicyStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, false, "Invalid", hostile, time.Minute)}},
	})
	c.create(&v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Name: "sd-evil"}, Spec: v1alpha1.SelfDescriptionSpec{Credential: hostile, Presenter: v1alpha1.Presenter{Provider: "acme"}},
		Status: v1alpha1.SelfDescriptionStatus{State: v1alpha1.CredentialRejected, Type: hostile, Issuer: hostile, Subject: hostile, Report: []v1alpha1.VerificationStep{{Step: hostile, Result: "failed", Message: hostile}}, ValidUntil: &ends, Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, false, "Rejected", hostile, time.Minute)}},
	})
	c.create(&v1alpha1.Consumer{
		ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Spec: v1alpha1.ConsumerSpec{Identified: v1alpha1.Identified{DID: "did:web:evil.example"}, Orders: []v1alpha1.ConsumerReference{{Platform: hostile, Organization: hostile, Space: hostile}}},
		Status: v1alpha1.ConsumerStatus{Claims: evil.Status.Claims, Report: evil.Status.Admission, Conditions: []metav1.Condition{condition(v1alpha1.ConditionProven, false, "NotProven", hostile, time.Minute)}},
	})
	c.sell()
	return i.Name
}

func quoted(text string) []byte {
	b, _ := json.Marshal(text) // a string always encodes
	return b
}

// TestHostileTexts: no text that somebody else chose becomes markup, an attribute, a script, a style or an address
// elsewhere, on any page, and each page shows it as it is.
func TestHostileTexts(t *testing.T) {
	c := newConsole(t)
	name := c.hostileHub()
	operator, shop := c.as(access.Caller{Role: access.Operator}), c.as(access.Caller{Role: access.Platform, Name: "shop"})
	acme := c.as(access.Caller{Role: access.Provider, Name: "acme"})
	search := "text=" + url.QueryEscape(hostile)
	for path, browser := range map[string]*http.Client{
		"": operator, "fleet": operator, "fleet?region=" + url.QueryEscape(hostile[:60]): operator, "fleet?" + search: operator, "clusters/evil": operator,
		"instances": operator, "instances?" + search + "&platform=" + url.QueryEscape(hostile): operator, "instances/" + name: operator, "instances/" + name + "/clusters": operator,
		"policies": operator, "consumers": operator, "expiring": operator, "journal": operator, "journal?" + search: operator,
		"market": shop, "market?" + search: shop, "order?service=evil&plan=evil": shop, "mine": shop, "mine/" + name: shop, "mine/" + name + "/delete": shop,
		"supply": acme, "credentials": acme, "policies?": acme, "policies/edit?policy=" + url.QueryEscape(hostile): acme, "usage": shop, "login?next=" + url.QueryEscape(hostile): c.as(access.Caller{}), "clusters/" + url.PathEscape(hostile): operator,
	} {
		got := c.send(browser, Root+path, nil)
		if got.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s is answered %d: %s", path, got.StatusCode, words(got.body))
		}
		isHarmless(t, path, got.body)
		if shows := words(got.body); !strings.Contains(shows, "<x-evil") && !slices.Contains([]string{"usage"}, path) && !strings.Contains(path, hostile[:3]) && !strings.Contains(path, "?") {
			t.Errorf("%s does not show the text: %s", path, shows)
		}
	}
	entered := url.Values{"service": {"evil"}, "plan": {"evil"}, "name": {hostile}, "parameter/list": {hostile}, "parameter/choice": {hostile}, "parameter/group/" + hostile: {hostile}}
	refused := c.send(shop, Root+"order", entered)
	if refused.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a hostile order is answered %d", refused.StatusCode)
	}
	isHarmless(t, "a refused order", refused.body)
	bound := c.send(shop, Root+"mine/"+name+"/bind", url.Values{"binding": {hostile}, "parameter/list": {hostile}})
	isHarmless(t, "a refused binding", bound.body)
	policy := url.Values{"do": {"check"}, "name": {hostile}, "etag": {hostile}, "text": {hostile}, "organization": {hostile}, "claims": {hostile}}
	isHarmless(t, "a policy that cannot be read", c.send(acme, Root+"policies/edit", policy).body)
	policy["name"], policy["text"] = []string{"evil"}, []string{`{"require": [{"name": ` + string(quoted(hostile[:60])) + `, "expression": ` + string(quoted("'"+strings.ReplaceAll(hostile, "'", "")+"' == ''")) + `}]}`}
	checked := c.send(acme, Root+"policies/edit", policy)
	if !strings.Contains(words(checked.body), "It would refuse") {
		t.Errorf("a hostile policy is answered %d: %s", checked.StatusCode, words(checked.body))
	}
	isHarmless(t, "a check of a policy", checked.body)
}

// isHarmless checks that a page has no element, attribute and address but the console's own.
func isHarmless(t *testing.T, path, body string) {
	t.Helper()
	err := nodes(body, func(n *html.Node) {
		if n.Data == "x-evil" || n.Data == "img" || n.Data == "style" || n.Data == "iframe" || n.Data == "object" || n.Data == "base" {
			t.Errorf("%s has an element %s", path, n.Data)
		}
		if n.Data == "script" && (!strings.HasPrefix(attributeOf(n, "src"), Root+"assets/") || n.FirstChild != nil) {
			t.Errorf("%s has a script of its own", path)
		}
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "srcdoc":
				t.Errorf("%s: <%s> has %s=%q", path, n.Data, a.Key, a.Val)
			case a.Key == "href" || a.Key == "src" || a.Key == "action" || a.Key == "formaction":
				if !strings.HasPrefix(a.Val, Root) && a.Val != "#main" && !strings.HasPrefix(a.Val, "/selfdescriptions/") {
					t.Errorf("%s: <%s> leads to %q", path, n.Data, a.Val)
				}
			}
		}
	})
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
}
