package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// TestAProviderSells: a provider writes an offer as the form begins, sees whether it is on sale and how often it is sold,
// changes it and ends it; what the market refuses is on the page, with what was written; and another's offers are none of its
// business.
func TestAProviderSells(t *testing.T) {
	c := newConsole(t)
	c.create(&v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Name: "rival"}, Spec: v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: "did:web:rival.example"}}})
	acme, rival := c.as(access.Caller{Role: access.Provider, Name: "acme"}), c.as(access.Caller{Role: access.Provider, Name: "rival"})
	// form returns what the form of a page has.
	form := func(page string) url.Values {
		values := url.Values{}
		_ = nodes(page, func(n *html.Node) {
			switch name := attributeOf(n, "name"); {
			case name == "text" && n.FirstChild != nil:
				values.Set(name, n.FirstChild.Data)
			case name == "offer" || name == "etag":
				values.Set(name, attributeOf(n, "value"))
			}
		})
		return values
	}
	c.shows(acme, "offers", nil, http.StatusOK, "You sell nothing yet", "Write an offer")
	written := form(c.shows(acme, "offers/edit", nil, http.StatusOK, "Write an offer", "id: acme-namespaces"))
	for was, row := range map[string]struct{ is, want string }{
		"kind: resources":       {"kidn: resources", "line 10"},
		"id: acme-namespaces\n": {"id: \n", "id: choose one"},
		"kind: resources\n":     {"kind: none\n", "plans[0].kind"},
	} {
		wrong := url.Values{"text": {strings.Replace(written.Get("text"), was, row.is, 1)}, "etag": {""}, "offer": {""}}
		if page := c.shows(acme, "offers/edit", wrong, http.StatusUnprocessableEntity, row.want); form(page).Get("text") != wrong.Get("text") {
			t.Errorf("%q is not kept: %s", row.is, page)
		}
	}
	c.shows(acme, "offers/edit", written, http.StatusSeeOther)
	c.shows(acme, "offers", nil, http.StatusOK, "acme-namespaces Being checked", "small Two cores and 4 GiB of memory. 9.50 EUR monthly 0", "Change or end")
	o := &v1alpha1.ServiceOffering{}
	c.read(v1alpha1.OfferingName("acme-namespaces"), o)
	if o.Spec.Provider != "acme" || !o.Spec.Bindable || !o.Spec.PlanUpdateable {
		t.Errorf("saved is %+v", o.Spec)
	}
	o.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, true, "Accepted", "served", 0)}
	o.Status.Conditions[0].ObservedGeneration = o.Generation
	if err := c.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	sold := instanceOf("shop", "one", "acme-namespaces-small", "eu-1")
	sold.Spec.ServiceID = "acme-namespaces"
	c.create(sold)
	c.shows(acme, "offers", nil, http.StatusOK, "acme-namespaces On sale", "9.50 EUR monthly 1")
	c.shows(acme, "offers/edit", written, http.StatusUnprocessableEntity, "If-Match") // it exists

	stored := form(c.shows(acme, "offers/edit?offer=acme-namespaces", nil, http.StatusOK, "Offer acme-namespaces", "End acme-namespaces"))
	other := url.Values{"offer": stored["offer"], "etag": stored["etag"], "text": {strings.Replace(stored.Get("text"), "id: acme-namespaces\n", "id: acme-other\n", 1)}}
	c.shows(acme, "offers/edit", other, http.StatusUnprocessableEntity, "another id is another offer")
	stored.Set("text", strings.Replace(stored.Get("text"), "Two cores", "Two good cores", 1))
	c.shows(acme, "offers/edit", stored, http.StatusSeeOther)
	c.shows(acme, "offers/edit", stored, http.StatusUnprocessableEntity, "it has changed")
	c.shows(acme, "offers", nil, http.StatusOK, "Two good cores")

	c.shows(rival, "offers", nil, http.StatusOK, "You sell nothing yet")
	c.shows(rival, "offers/edit?offer=acme-namespaces", nil, http.StatusNotFound, "There is no such offer of yours")
	c.shows(rival, "offers/remove", url.Values{"offer": {"acme-namespaces"}, "etag": {"*"}}, http.StatusConflict, "is not rival's")
	for _, path := range []string{"offers/remove", "policies/remove"} { // neither an address nor half a form names what is removed
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.server.URL+Root+path+"?offer=acme-namespaces&policy=acme.terms", strings.NewReader("etag=*&offer=%zz"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if got := c.do(acme, r); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s of a malformed form is answered %d", path, got.StatusCode)
		}
	}
	if got := c.send(c.as(access.Caller{Role: access.Operator}), Root+"offers", nil); got.StatusCode != http.StatusForbidden {
		t.Errorf("an operator is answered %d", got.StatusCode)
	}
	stored = form(c.shows(acme, "offers/edit?offer=acme-namespaces", nil, http.StatusOK))
	c.shows(acme, "offers/remove", stored, http.StatusSeeOther)
	if page := c.shows(acme, "offers", nil, http.StatusOK); strings.Contains(words(page), "On sale") {
		t.Errorf("it is still on sale: %s", page)
	}
}

// TestAnOfferOfAnyID: the list leads to each offer, whatever its id is.
func TestAnOfferOfAnyID(t *testing.T) {
	c := newConsole(t)
	o := offering("acme-and-co", "Of acme and another", plan("acme-and-co", "A core", "1", "1Gi", ""))
	o.Spec.ID, o.Spec.Provider = "acme & co", "acme"
	c.create(o)
	acme, link := c.as(access.Caller{Role: access.Provider, Name: "acme"}), ""
	_ = nodes(c.shows(acme, "offers", nil, http.StatusOK), func(n *html.Node) {
		if to := attributeOf(n, "href"); strings.HasPrefix(to, Root+"offers/edit?") {
			link = to
		}
	})
	c.shows(acme, strings.TrimPrefix(link, Root), nil, http.StatusOK, "Offer acme & co")
}
