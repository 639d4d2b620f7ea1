package market

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// sell1 is an offering of one plan, in JSON.
func sell1(id string) string {
	return fmt.Sprintf(`{"id": %q, "name": %q, "description": "A test", "bindable": true, "planUpdateable": true, "allowContextUpdates": true, "bindingRotatable": true,
		"plans": [{"id": "%s-plan", "name": "small", "description": "A test", "kind": "resources", "resources": {"limits": {"cpu": "1"}, "clusters": 1}}]}`, id, id, id)
}

// put puts an offering; match is the header If-Match.
func (w *world) put(provider, id, body, match string) int {
	w.Helper()
	q := request{method: "PUT", path: "/market/v1/offerings/" + id, with: w.as("provider:" + provider), body: body}
	if match != "" {
		q.header = map[string]string{"If-Match": match}
	}
	return w.send(q, nil).StatusCode
}

// offering reads an offering as its provider.
func (w *world) offering(provider, id string) (got offeringBody) {
	w.Helper()
	answer := w.send(request{method: "GET", path: "/market/v1/offerings/" + id, with: w.as("provider:" + provider)}, &got)
	if answer.Header.Get("ETag") != got.ETag {
		w.Errorf("the ETag is %s, and in the body %s", answer.Header.Get("ETag"), got.ETag)
	}
	return got
}

// TestAProviderSells: an offering from its beginning to its end. Changes are lost to nobody.
func TestAProviderSells(t *testing.T) {
	w := newWorld(t)
	put := request{method: "PUT", path: "/market/v1/offerings/db", with: w.as("provider:acme"), body: sell1("db")}
	put.header = map[string]string{"If-Match": `"x"`}
	w.refused(put, http.StatusPreconditionFailed, "there is no offering db")
	if status := w.put("acme", "db", sell1("db"), ""); status != http.StatusCreated {
		t.Fatalf("it is answered %d", status)
	}
	first := w.offering("acme", "db")
	if first.Provider != "acme" || first.Status.State != "pending" || strings.Contains(string(first.Spec), "provider") {
		t.Errorf("got %+v", first)
	}
	stored := &v1alpha1.ServiceOffering{}
	key := client.ObjectKey{Namespace: w.namespace, Name: v1alpha1.OfferingName("db")}
	must(t, w.Get(t.Context(), key, stored))
	if stored.Spec.Provider != "acme" || !stored.Spec.Bindable {
		t.Errorf("stored as %+v", stored.Spec)
	}
	judged := func(status metav1.ConditionStatus, message string) {
		t.Helper()
		must(t, w.Get(t.Context(), key, stored))
		v1alpha1.SetCondition(&stored.Status.Conditions, stored.Generation, v1alpha1.ConditionReady, status, "Test", message)
		must(t, w.Status().Update(t.Context(), stored))
	}
	judged(metav1.ConditionTrue, "served")
	if got := w.offering("acme", "db"); got.Status.State != "served" || got.ETag != first.ETag {
		t.Errorf("got %+v", got)
	}

	put.header, put.body = nil, strings.Replace(sell1("db"), "A test", "Changed", 1)
	w.refused(put, http.StatusPreconditionRequired, "If-Match")
	if status := w.put("acme", "db", put.body, first.ETag); status != http.StatusOK {
		t.Errorf("a change is answered %d", status)
	}
	second := w.offering("acme", "db")
	if !strings.Contains(string(second.Spec), "Changed") || second.ETag == first.ETag || second.Status.State != "pending" {
		t.Errorf("got %+v", second)
	}
	put.header = map[string]string{"If-Match": first.ETag}
	w.refused(put, http.StatusPreconditionFailed, second.ETag)
	judged(metav1.ConditionFalse, "an instance uses it")
	if got := w.offering("acme", "db"); got.Status != (offeringStatus{"refused", "an instance uses it"}) {
		t.Errorf("got %+v", got.Status)
	}
	// What was read can be put as it is.
	if status := w.put("acme", "db", string(second.Spec), second.ETag); status != http.StatusOK {
		t.Errorf("the same again is answered %d", status)
	}

	must(t, w.Get(t.Context(), key, stored))
	for _, provider := range []string{"rival", ""} {
		stored.Spec.Provider = provider
		if err := w.Update(t.Context(), stored); err == nil || !strings.Contains(err.Error(), "provider is immutable") {
			t.Errorf("it can be given to %q: %v", provider, err)
		}
	}

	remove := request{method: "DELETE", path: "/market/v1/offerings/db", with: w.as("provider:acme")}
	w.refused(remove, http.StatusPreconditionRequired, "If-Match")
	remove.header = map[string]string{"If-Match": first.ETag}
	w.refused(remove, http.StatusPreconditionFailed, second.ETag)
	remove.header["If-Match"] = w.offering("acme", "db").ETag
	if status := w.send(remove, nil).StatusCode; status != http.StatusNoContent {
		t.Errorf("its end is answered %d", status)
	}
	w.refused(remove, http.StatusNotFound, "no offering db")
}

// TestOfferingsThatAreRefused: precisely, and nothing has changed.
func TestOfferingsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	theirs := sold{name: "operators"}.offering()
	theirs.Namespace, theirs.Spec = w.namespace, *theirs.Status.Accepted
	must(t, w.Create(t.Context(), &theirs))
	if w.put("rival", "rivals", sell1("rivals"), "") != http.StatusCreated {
		t.Fatal("rival cannot sell")
	}
	body := sell1("new")
	for name, row := range map[string]struct {
		id, body string
		status   int
		why      string
	}{
		"the operator's id":            {"operators-id", strings.ReplaceAll(body, `"new"`, `"operators-id"`), http.StatusForbidden, "is not acme's"},
		"the operator's name":          {"new", strings.Replace(body, `"name": "new"`, `"name": "operators"`, 1), http.StatusConflict, `name: "operators" is another`},
		"another's id":                 {"rivals", sell1("rivals"), http.StatusForbidden, "is not acme's"},
		"another's plan":               {"new", strings.Replace(body, "new-plan", "rivals-plan", 1), http.StatusConflict, `plans.id: "rivals-plan" is another`},
		"a plan with an offering's id": {"new", strings.Replace(body, "new-plan", "operators-id", 1), http.StatusConflict, `plans.id: "operators-id" is another`},
		"an id of another's plan":      {"rivals-plan", sell1("rivals-plan"), http.StatusConflict, `id: "rivals-plan" is another`},
		"a plan with its own id":       {"new", strings.Replace(body, "new-plan", "new", 1), http.StatusBadRequest, `plans.id: "new" is the offering's`},
		"in another's name":            {"new", strings.Replace(body, "{", `{"provider": "rival", `, 1), http.StatusForbidden, "provider: want acme"},
		"another id inside":            {"new", sell1("other"), http.StatusBadRequest, `id: want "new"`},
		"a field that is none":         {"new", strings.Replace(body, "{", `{"colour": "red", `, 1), http.StatusBadRequest, "/colour"},
		"no JSON":                      {"new", "{x", http.StatusBadRequest, "malformed JSON"},
		"a list":                       {"new", "[]", http.StatusBadRequest, "Body"},
		"too long":                     {"new", strings.Replace(body, "A test", strings.Repeat("x", maxOffering), 1), http.StatusRequestEntityTooLarge, "262144"},
		"what the hub refuses":         {"new", strings.Replace(body, `"name": "small"`, `"name": "not a name"`, 1), http.StatusUnprocessableEntity, "plans[0].name"},
		"no plans":                     {"new", `{"id": "new", "name": "new", "description": "d", "plans": []}`, http.StatusUnprocessableEntity, "plans"},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			w.start() // with its own count of writes
			w.refused(request{method: "PUT", path: "/market/v1/offerings/" + row.id, with: w.as("provider:acme"), body: row.body}, row.status, row.why)
		})
	}
	w.T = t
	var list v1alpha1.ServiceOfferingList
	must(t, w.List(t.Context(), &list, client.InNamespace(w.namespace)))
	if len(list.Items) != 2 {
		t.Errorf("there are %d offerings", len(list.Items))
	}
	var own, all struct{ Offerings []offeringBody }
	w.send(request{method: "GET", path: "/market/v1/offerings", with: w.as("provider:rival")}, &own)
	w.send(request{method: "GET", path: "/market/v1/offerings", with: w.as("operator")}, &all)
	if len(own.Offerings) != 1 || len(all.Offerings) != 2 {
		t.Errorf("rival sees %d, and the operator %d", len(own.Offerings), len(all.Offerings))
	}
}

// TestAProviderThatFloodsIsLimited: in how often, how many and how much; others are not.
func TestAProviderThatFloodsIsLimited(t *testing.T) {
	w := newWorld(t)
	for i := range writesAtOnce {
		if status := w.put("acme", fmt.Sprintf("o-%d", i), sell1(fmt.Sprintf("o-%d", i)), ""); status != http.StatusCreated {
			t.Fatalf("number %d is answered %d", i, status)
		}
	}
	next := request{method: "PUT", path: "/market/v1/offerings/next", with: w.as("provider:acme"), body: sell1("next")}
	if answer := w.refused(next, http.StatusTooManyRequests, "Too many changes by acme"); answer.Header.Get("Retry-After") != "1" {
		t.Errorf("after %s", answer.Header.Get("Retry-After"))
	}
	if status := w.put("rival", "rivals", sell1("rivals"), ""); status != http.StatusCreated {
		t.Errorf("another provider is answered %d", status)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	if status := w.put("acme", "next", sell1("next"), ""); status != http.StatusCreated {
		t.Errorf("a second later it is answered %d", status)
	}

	f := found{}
	for i := range maxOfferings {
		o := v1alpha1.ServiceOffering{Spec: v1alpha1.ServiceOfferingSpec{Provider: "acme", ID: fmt.Sprint(i), Name: fmt.Sprint(i)}}
		f.all = append(f.all, o)
	}
	one := &v1alpha1.ServiceOfferingSpec{ID: "new", Name: "new", Provider: "acme"}
	if err := f.admits("acme", one); err == nil || !strings.Contains(err.Error(), "at most 100") {
		t.Errorf("one more than a hundred: %v", err)
	}
	f.ServiceOffering = &f.all[0]
	if err := f.admits("acme", one); err != nil {
		t.Errorf("in place of another: %v", err)
	}
	if err := (found{all: f.all}).admits("rival", one); err != nil {
		t.Errorf("another provider: %v", err)
	}
	f.all[1].Spec.Description = strings.Repeat("x", maxOfferingBytes)
	if err := f.admits("acme", one); err == nil {
		t.Error("more than 4 MiB are admitted")
	}
}

// TestAProviderSetsPrices: of its own clusters, what it sells of them, and whether it takes more.
func TestAProviderSetsPrices(t *testing.T) {
	w := newWorld(t)
	for name, provider := range map[string]string{"a": "acme", "b": "rival"} {
		must(t, w.Create(t.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: v1alpha1.MemberClusterSpec{
			Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Provider: provider, Region: "eu-1", Unschedulable: provider == "acme",
		}}))
	}
	clusters := func(caller string) (all []clusterBody) {
		t.Helper()
		var got struct{ Clusters []clusterBody }
		w.send(request{method: "GET", path: "/market/v1/clusters", with: w.as(caller)}, &got)
		return got.Clusters
	}
	if own, all := clusters("provider:acme"), clusters("operator"); len(own) != 1 || own[0].Name != "a" || own[0].Region != "eu-1" || len(all) != 2 {
		t.Fatalf("acme sees %v, and the operator %v", own, all)
	}
	patch := func(body string) (got clusterBody) {
		t.Helper()
		now := clusters("provider:acme")[0]
		q := request{method: "PATCH", path: "/market/v1/clusters/a", with: w.as("provider:acme"), body: body, header: map[string]string{"If-Match": now.ETag}}
		if answer := w.send(q, &got); answer.StatusCode != http.StatusOK || answer.Header.Get("ETag") != got.ETag {
			t.Errorf("%s is answered %d, %+v", body, answer.StatusCode, got)
		}
		return got
	}
	if got := patch(`{"prices": {"currency": "EUR", "perHour": {"cpu": "0.02"}}, "cordoned": true}`); got.Prices == nil || got.Prices.Currency != "EUR" || !got.Cordoned {
		t.Errorf("got %+v", got)
	}
	if got := patch(`{"sell": {"share": 80}}`); got.Prices == nil || got.Sell == nil || got.Sell.Share != 80 || !got.Cordoned {
		t.Errorf("what is absent changes: %+v", got)
	}
	if got := patch(`{"prices": {"currency": "EUR", "perHour": {"memory": "0.01"}}, "sell": {"atMost": {"cpu": "2"}}}`); len(got.Prices.PerHour) != 1 || got.Sell.Share != 0 {
		t.Errorf("prices and sell are not replaced as a whole: %+v", got)
	}
	if got := patch(`{"prices": null, "cordoned": false}`); got.Prices != nil || got.Sell == nil || got.Cordoned || !got.CordonedByOperator {
		t.Errorf("got %+v", got)
	}
	if got := patch(`{"cordoned": true}`); !got.Cordoned {
		t.Errorf("got %+v", got)
	}
	patch(`{"cordoned": true}`)
	stored := &v1alpha1.MemberCluster{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "a"}, stored))
	if len(stored.Spec.Taints) != 1 || string(stored.Spec.Access.SealedKubeconfig) != "sealed" || !stored.Spec.Unschedulable {
		t.Errorf("stored as %+v", stored.Spec)
	}
	stored.Spec.Prices = &v1alpha1.PriceList{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("1"), "memory": resource.MustParse("-0.02")}}
	if err := w.Update(t.Context(), stored); err == nil || !strings.Contains(err.Error(), "no price is negative") {
		t.Errorf("the hub takes a negative price: %v", err)
	}

	tag := clusters("provider:acme")[0].ETag
	for name, row := range map[string]struct {
		cluster, body, match string
		status               int
		why                  string
	}{
		"another's":             {"b", `{}`, tag, http.StatusForbidden, "is not acme's"},
		"one that is not":       {"c", `{}`, tag, http.StatusNotFound, "no cluster c"},
		"the operator's cordon": {"a", `{"unschedulable": false}`, tag, http.StatusBadRequest, "/unschedulable"},
		"its provider":          {"a", `{"provider": "rival"}`, tag, http.StatusBadRequest, "/provider"},
		"a cordon of null":      {"a", `{"cordoned": null}`, tag, http.StatusBadRequest, "cordoned: want true or false"},
		"a part of prices":      {"a", `{"prices": {"colour": "red"}}`, tag, http.StatusBadRequest, "prices: unknown member"},
		"no currency":           {"a", `{"prices": {"currency": "euro", "perHour": {}}}`, tag, http.StatusUnprocessableEntity, "prices.currency"},
		"a price below nothing": {"a", `{"prices": {"currency": "EUR", "perHour": {"cpu": "-0.02"}}}`, tag, http.StatusUnprocessableEntity, "prices.perHour: cpu: -20m: want an amount of money from 0 to 12634756"},
		"a price without end":   {"a", `{"prices": {"currency": "EUR", "perHour": {"cpu": "10G"}}}`, tag, http.StatusUnprocessableEntity, "prices.perHour: cpu: 10G: want an amount of money from 0 to 12634756"},
		"too much":              {"a", `{"sell": {"share": 101}}`, tag, http.StatusUnprocessableEntity, "sell.share"},
		"without If-Match":      {"a", `{}`, "", http.StatusPreconditionRequired, "If-Match"},
		"after another change":  {"a", `{}`, `"x"`, http.StatusPreconditionFailed, tag},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			q := request{method: "PATCH", path: "/market/v1/clusters/" + row.cluster, with: w.as("provider:acme"), body: row.body}
			if row.match != "" {
				q.header = map[string]string{"If-Match": row.match}
			}
			w.refused(q, row.status, row.why)
		})
	}
	w.T = t
}
