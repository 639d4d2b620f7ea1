package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/seal"
)

// schema with an input of each kind.
const schema = `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["version"], "properties": {
	"version": {"enum": ["16", "17"], "description": "of PostgreSQL"}, "replicas": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
	"tls": {"type": "boolean", "default": true}, "ratio": {"type": "number"}, "password": {"type": "string", "writeOnly": true},
	"storage": {"type": "object", "required": ["size"], "properties": {"size": {"type": "string", "maxLength": 8}, "fast": {"type": "boolean"}}},
	"registry": {"type": "object", "writeOnly": true, "required": ["username", "password"], "properties": {"username": {"type": "string", "maxLength": 64}, "password": {"type": "string"}}},
	"extensions": {"type": "array", "items": {"type": "string"}}, "anything": true, "a/b~c": {"type": "string"}}}`

// TestForms: what is entered becomes the parameters, and what is left empty does not.
func TestForms(t *testing.T) {
	for name, row := range map[string]struct {
		entered url.Values
		want    string
		refused string
	}{
		"nothing": {},
		"each kind": {
			entered: url.Values{
				"parameter/version": {`"17"`}, "parameter/replicas": {"3"}, "parameter/tls": {"false"}, "parameter/ratio": {" 0.5 "}, "parameter/password": {" s "},
				"parameter/storage/size": {"20Gi"}, "parameter/storage/fast": {"true"}, "parameter/extensions": {`["a", "b"]`}, "parameter/anything": {"null"}, "parameter/a~1b~0c": {"two\r\nlines"},
			},
			want: `{"a/b~c":"two\nlines","anything":null,"extensions":["a","b"],"password":" s ","ratio":0.5,"replicas":3,"storage":{"fast":true,"size":"20Gi"},"tls":false,"version":"17"}`,
		},
		"a group without values":    {entered: url.Values{"parameter/version": {`"16"`}, "parameter/storage/size": {""}}, want: `{"version":"16"}`},
		"a large number stays":      {entered: url.Values{"parameter/replicas": {"12345678901234567890"}}, want: `{"replicas":12345678901234567890}`},
		"no number":                 {entered: url.Values{"parameter/replicas": {"many"}}, refused: `replicas: "many" is not a number`},
		"a number that is not JSON": {entered: url.Values{"parameter/ratio": {"0x1p4"}}, refused: `ratio: "0x1p4" is not a number`},
		"no JSON":                   {entered: url.Values{"parameter/extensions": {"a, b"}}, refused: "extensions: want JSON"},
		"a name of no input":        {entered: url.Values{"parameter/other": {"1"}, "other": {"1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parametersOf(formOf(json.RawMessage(schema), row.entered), row.entered)
			if row.refused != "" {
				if err == nil || !strings.Contains(err.Error(), row.refused) {
					t.Errorf("the error is %v, want %q", err, row.refused)
				}
				return
			}
			if err != nil || string(got) != row.want {
				t.Errorf("got  %s (%v)\nwant %s", got, err, row.want)
			}
		})
	}
	for name, schema := range map[string]string{"none": "", "no object": `[]`, "any": `true`, "odd": `{"type": "object", "properties": {"a": {"type": "string", "maxLength": "ten"}}}`} {
		t.Run(name, func(t *testing.T) {
			for _, f := range formOf(json.RawMessage(schema), nil) {
				if f.Kind != "json" {
					t.Errorf("%+v is not left to the person", f)
				}
			}
		})
	}
}

// selling sells a plan whose instances can be near a place, on a cluster.
func (c *consoleOf) selling() {
	c.Helper()
	p := plan("large", "For production", "4", "16Gi", "89.50")
	p.Resources.Adjustable = []v1alpha1.Adjustable{v1alpha1.AdjustLocation, v1alpha1.AdjustExcludeProviders}
	c.create(offering("postgresql", "PostgreSQL databases", p))
	c.create(cluster("eu-1", "eu-de", "acme", "64", "256Gi"))
	hidden := offering("secret", "For somebody else", plan("secret", "Hidden", "1", "1Gi", ""))
	hidden.Spec.Platforms = []string{"cf-eu"}
	hidden.Status.Accepted = hidden.Spec.DeepCopy()
	c.create(hidden)
	c.sell()
}

// TestTheCheapest: offers are listed by name, or by price if asked to, those without a price last.
func TestTheCheapest(t *testing.T) {
	c := newConsole(t)
	for _, row := range []struct{ name, price string }{{"oder", "12"}, {"rhein", "9"}, {"liberty", "3"}, {"free", ""}} {
		c.create(offering(row.name, "Cores", plan(row.name, "A core", "1", "1Gi", row.price)))
	}
	c.sell()
	shop := c.as(access.Caller{Role: access.Platform, Name: "shop"})
	for query, want := range map[string]string{
		"":             "free liberty oder rhein",
		"?order=price": "liberty rhein oder free",
	} {
		var got []string
		err := nodes(c.send(shop, Root+"market"+query, nil).body, func(n *html.Node) {
			if id, isOffer := strings.CutPrefix(attributeOf(n, "href"), Root+"order?service="); isOffer {
				id, _, _ = strings.Cut(id, "&")
				got = append(got, id)
			}
		})
		if list := strings.Join(got, " "); err != nil || list != want {
			t.Errorf("market%s has %s, want %s, %v", query, list, want, err)
		}
	}
	if got := c.send(shop, Root+"market?order=colour", nil); got.StatusCode != http.StatusNotFound {
		t.Errorf("an order that is none is answered %d", got.StatusCode)
	}
}

// TestOrders: a consumer orders by a form, with the rights of its platform and no other, and reads at the form what the
// OSB API says against it.
func TestOrders(t *testing.T) {
	c := newConsole(t)
	c.selling()
	shop, other := c.as(access.Caller{Role: access.Platform, Name: "shop"}), c.as(access.Caller{Role: access.Platform, Name: "cf-eu"})
	market := words(c.send(shop, Root+"market", nil).body)
	if !strings.Contains(market, "postgresql large For production") || !strings.Contains(market, "89.50 EUR monthly") || !strings.Contains(market, "eu-de 1") || strings.Contains(market, "Hidden") {
		t.Errorf("the market is %s", market)
	}
	if narrowed := words(c.send(shop, Root+"market?provider=nobody", nil).body); !strings.Contains(narrowed, "No offer is like that") {
		t.Errorf("of nobody: %s", narrowed)
	}
	order := func(more url.Values) answer {
		form := url.Values{"service": {"postgresql"}, "plan": {"large"}, "name": {"db"}, "parameter/location/latitude": {"52.5"}, "parameter/location/longitude": {"13.4"}}
		for name, values := range more {
			form[name] = values
		}
		return c.send(shop, Root+"order", form)
	}
	for name, row := range map[string]struct {
		form   url.Values
		status int
		says   string
	}{
		"no name":             {url.Values{"name": {" "}}, http.StatusUnprocessableEntity, "choose a name"},
		"a wrong number":      {url.Values{"parameter/location/latitude": {"91"}}, http.StatusUnprocessableEntity, "latitude"},
		"no list":             {url.Values{"parameter/excludeProviders": {"acme"}}, http.StatusUnprocessableEntity, "excludeProviders: want JSON"},
		"a plan of others":    {url.Values{"service": {"secret"}, "plan": {"secret"}}, http.StatusNotFound, "This plan is not offered"},
		"no plan":             {url.Values{"plan": {"huge"}}, http.StatusNotFound, "This plan is not offered"},
		"a plan of a service": {url.Values{"service": {"secret"}}, http.StatusNotFound, "This plan is not offered"},
	} {
		got := order(row.form)
		if got.StatusCode != row.status || !strings.Contains(words(got.body), row.says) {
			t.Errorf("%s: %d %s", name, got.StatusCode, words(got.body))
		}
		if row.status == http.StatusUnprocessableEntity && !strings.Contains(got.body, `value="13.4"`) {
			t.Errorf("%s: what was entered is lost", name)
		}
	}
	var all v1alpha1.ServiceInstanceList
	if err := c.List(t.Context(), &all, client.InNamespace(c.namespace)); err != nil || len(all.Items) > 0 {
		t.Fatalf("refused orders made %d instances, %v", len(all.Items), err)
	}

	got := order(url.Values{"parameter/excludeProviders": {`["nuage"]`}})
	name := v1alpha1.InstanceName("shop", "db")
	if got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != Root+"mine/"+name {
		t.Fatalf("an order is answered %d to %q: %s", got.StatusCode, got.Header.Get("Location"), words(got.body))
	}
	i := &v1alpha1.ServiceInstance{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, i); err != nil {
		t.Fatal(err)
	}
	if got := string(i.Spec.Desired.Raw()); i.Spec.Platform != "shop" || i.Spec.InstanceID != "db" || got != `{"excludeProviders":["nuage"],"location":{"latitude":52.5,"longitude":13.4}}` {
		t.Errorf("ordered is %+v with %s", i.Spec, got)
	}
	if again := order(url.Values{"parameter/excludeProviders": {`["nuage"]`}}); again.StatusCode != http.StatusSeeOther {
		t.Errorf("the same order again is answered %d", again.StatusCode)
	}
	if another := order(url.Values{"parameter/excludeProviders": {`["acme"]`}}); another.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("another order of that name is answered %d", another.StatusCode)
	}

	for _, path := range []string{"mine/" + name, "mine/" + name + "/delete"} {
		if got := c.send(other, Root+path, nil); got.StatusCode != http.StatusNotFound {
			t.Errorf("another platform: %s is answered %d", path, got.StatusCode)
		}
	}
	for _, act := range []string{"delete", "bind", "unbind", "credentials"} {
		if got := c.send(other, Root+"mine/"+name+"/"+act, url.Values{"binding": {"b"}}); got.StatusCode != http.StatusNotFound {
			t.Errorf("another platform: %s is answered %d", act, got.StatusCode)
		}
	}
	page := c.send(shop, Root+"mine/"+name, nil)
	if text := words(page.body); page.StatusCode != http.StatusOK || !page.isLive() || !strings.Contains(text, "db New") || !strings.Contains(text, "postgresql large") {
		t.Errorf("its page (%d): %s", page.StatusCode, text)
	}
	if bound := c.send(shop, Root+"mine/"+name+"/bind", url.Values{"binding": {"app"}}); bound.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(bound.body, `role="alert"`) || bound.isLive() {
		t.Errorf("a binding before it is there: %d %s", bound.StatusCode, bound.body)
	}
	if asked := c.send(shop, Root+"mine/"+name+"/delete", nil); !strings.Contains(words(asked.body), "This cannot be undone") {
		t.Errorf("nobody asks before it is deleted: %s", words(asked.body))
	}
	if gone := c.send(shop, Root+"mine/"+name+"/delete", url.Values{}); gone.StatusCode != http.StatusSeeOther || gone.Header.Get("Location") != Root+"mine" {
		t.Errorf("a deletion is answered %d to %q: %s", gone.StatusCode, gone.Header.Get("Location"), words(gone.body))
	}
}

// TestCredentials: a consumer sees what its binding gives on demand, and nobody else does.
func TestCredentials(t *testing.T) {
	c := newConsole(t)
	c.selling()
	i := instanceOf("shop", "db", "large", "eu-1")
	c.create(i)
	b := &v1alpha1.ServiceBinding{
		Spec: v1alpha1.ServiceBindingSpec{Platform: "shop", InstanceName: i.Name, InstanceID: "db", BindingID: "app", ServiceID: "postgresql", PlanID: "large"},
	}
	b.Name = v1alpha1.BindingName("shop", "db", "app")
	c.create(b)
	sealed, err := c.keys.Seal([]byte(`{"uri": "postgres://u:p@db.example/app", "ports": [5432], "more": {"id": 12345678901234567890, "url": "https://db.example/?a=1&b=<2>"}}`), seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		t.Fatal(err)
	}
	done, ends := since(time.Minute), metav1.NewTime(time.Now().Add(time.Hour))
	b.Status = v1alpha1.ServiceBindingStatus{
		Operation:         &v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: 1, State: v1alpha1.StateSucceeded, StartedAt: done, FinishedAt: &done},
		SealedCredentials: sealed, IssuedAt: &done, ExpiresAt: &ends, Endpoints: []v1alpha1.Endpoint{{Host: "db.example", Ports: []string{"5432"}, Protocol: "tcp"}},
	}
	if err := c.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	const secret = "postgres://u:p@db.example/app"
	shop, path := c.as(access.Caller{Role: access.Platform, Name: "shop"}), Root+"mine/"+i.Name
	page := c.send(shop, path, nil)
	if text := words(page.body); !strings.Contains(text, "db.example:5432 tcp") || !strings.Contains(text, "0.084 EUR an hour") || !strings.Contains(text, "eu-1") || strings.Contains(page.body, secret) {
		t.Errorf("the page of the instance: %s", text)
	}
	shown := c.send(shop, path+"/credentials", url.Values{"binding": {"app"}})
	if text := words(shown.body); shown.StatusCode != http.StatusOK || !strings.Contains(text, "uri "+secret) || !strings.Contains(text, "5432") || !strings.Contains(text, `more { "id": 12345678901234567890, "url": "https://db.example/?a=1&b=<2>" }`) || shown.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the credentials (%d): %s", shown.StatusCode, text)
	}
	for name, got := range map[string]answer{
		"of no binding": c.send(shop, path+"/credentials", url.Values{"binding": {"other"}}), "by an address": c.send(shop, path+"/credentials?binding=app", nil),
		"of another platform": c.send(c.as(access.Caller{Role: access.Platform, Name: "cf-eu"}), path+"/credentials", url.Values{"binding": {"app"}}),
		"of an operator":      c.send(c.as(access.Caller{Role: access.Operator}), path+"/credentials", url.Values{"binding": {"app"}}),
	} {
		if got.StatusCode < http.StatusBadRequest || strings.Contains(got.body, secret) {
			t.Errorf("%s: %d", name, got.StatusCode)
		}
	}
}
