package market

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/catalog"
)

// page is a page of plans, as a client reads it.
type page struct {
	Plans    []Plan
	Total    int
	Facets   map[string][]FacetValue
	Continue string
	AsOf     time.Time `json:"as_of"`
}

// list returns the plans that a caller is shown for a query.
func (w *world) list(caller string, query url.Values) (got page) {
	w.Helper()
	if answer := w.send(request{method: "GET", path: "/market/v1/plans?" + query.Encode(), with: w.as(caller)}, &got); answer.StatusCode != http.StatusOK {
		w.Fatalf("%v is answered %d", query, answer.StatusCode)
	}
	return got
}

// names returns offering/plan of each.
func (p page) names() (all []string) {
	for _, plan := range p.Plans {
		all = append(all, plan.Offering.Name+"/"+plan.Name)
	}
	return all
}

// marketplace sells: db of acme and rival, cache of all, and secret for korifi alone.
func marketplace(w *world) {
	sell(w.T, w.catalog, sold{name: "db", provider: "acme", monthly: "29.50"}, sold{name: "cache", monthly: "5"}, sold{name: "raw", provider: "rival"},
		sold{name: "secret", platforms: []string{"korifi"}})
	w.rooms.rooms = map[string]Room{
		"db-small": {Known: true, Orders: 7, Clusters: 2}, "db-large": {Known: true}, "cache-small": {Known: true, Orders: 40, Clusters: 3, AtLeast: true},
		"raw-small": {Known: true, Orders: 3, Clusters: 1, Currency: "EUR", NanoPerHour: 20_000_000}, "secret-small": {Known: true, Orders: 1, Clusters: 1},
	}
}

// TestPricesThatAreNone: a plan that was accepted with costs that are no amount of money has no price.
func TestPricesThatAreNone(t *testing.T) {
	for amount, want := range map[string]*Price{"-0.5": nil, "10G": nil, "29.50": {Amount: "29.5", Currency: "EUR", Source: "plan", value: 29.5}} {
		served := &catalog.Catalog{}
		sell(t, served, sold{name: "db", monthly: amount})
		if got := priceOf(served.Snapshot().All()[0].Plans[0], Room{}); !reflect.DeepEqual(got, want) {
			t.Errorf("for %s the price is %+v", amount, got)
		}
	}
}

// TestWhatIsForSale: one row for each plan that the caller may see, with its price, its places and its room.
func TestWhatIsForSale(t *testing.T) {
	w := newWorld(t)
	marketplace(w)
	for caller, want := range map[string]int{"platform:cf": 6, "provider:acme": 6, "platform:korifi": 8, "operator": 8} {
		if got := w.list(caller, nil); got.Total != want || len(got.Plans) != want {
			t.Errorf("%s sees %v", caller, got.names())
		}
	}
	if !slices.Contains(w.rooms.asked, "cf") || !slices.Contains(w.rooms.asked, "korifi") || !slices.Contains(w.rooms.asked, "") {
		t.Errorf("room was asked for %q", w.rooms.asked)
	}
	rows := map[string]Plan{}
	for _, p := range w.list("operator", nil).Plans {
		rows[p.ID] = p
	}
	if p := rows["db-small"]; p.Price == nil || p.Price.Amount != "29.5" || p.Price.Currency != "EUR" || p.Price.Source != "plan" ||
		!slices.Equal(p.Providers, []string{"acme"}) || !slices.Equal(p.Regions, []string{"eu-1", "eu-2"}) ||
		p.Availability != (Availability{Known: true, Orders: 7, Clusters: 2}) || !p.Bindable || p.Kind != "resources" {
		t.Errorf("db-small: %+v", p)
	}
	if p := rows["raw-small"]; p.Price == nil || p.Price.Amount != "14.6" || p.Price.Source != "clusters" {
		t.Errorf("raw-small: %+v", p.Price)
	}
	if p := rows["raw-large"]; p.Price != nil || p.Availability.Known {
		t.Errorf("raw-large, of which nothing is known: %+v", p)
	}
	for _, p := range w.list("operator", url.Values{"brief": {"true"}}).Plans {
		whole := rows[p.ID]
		if p.Description != "" || p.Providers != nil || p.Regions != nil || p.Name != whole.Name || p.Offering.ID != whole.Offering.ID || p.Availability != whole.Availability || (p.Price == nil) != (whole.Price == nil) {
			t.Errorf("in brief it is %+v", p)
		}
	}
	w.rooms.set("db-small", Room{Known: true, Orders: 6, Clusters: 2})
	w.eventually("the room of now", func() string {
		if p := w.list("operator", url.Values{"where": {"id == 'db-small'"}}).Plans[0]; p.Availability.Orders != 6 {
			return fmt.Sprint(p.Availability)
		}
		return ""
	})

	var details Details
	w.send(request{method: "GET", path: "/market/v1/plans/db-small", with: w.as("platform:cf")}, &details)
	if !json.Valid(details.Schemas.Create) || details.Plan.ID != "db-small" || details.AsOf.IsZero() {
		t.Errorf("got %+v", details)
	}
	for _, id := range []string{"secret-small", "nothing", "db%2Fsmall"} {
		w.refused(request{method: "GET", path: "/market/v1/plans/" + id, with: w.as("platform:cf")}, http.StatusNotFound, "no plan with this id for platform:cf")
	}
	w.refused(request{method: "GET", path: "/market/v1/plans/%ff", with: w.as("platform:cf")}, http.StatusBadRequest, "UTF-8")
	w.refused(request{method: "GET", path: "/market/v1/plans"}, http.StatusUnauthorized, "Bearer")
}

// TestAReplicaWithoutAnInventory: says so, instead of saying that nothing fits.
func TestAReplicaWithoutAnInventory(t *testing.T) {
	for name, change := range map[string]func(*world){
		"it does not lead":     func(w *world) { w.rooms.rooms = nil },
		"nothing has that job": func(w *world) { w.options.Inventory = nil; w.start() },
	} {
		w := newWorld(t)
		marketplace(w)
		change(w)
		for _, p := range w.list("operator", nil).Plans {
			if p.Availability != (Availability{}) {
				t.Errorf("%s: %+v", name, p.Availability)
			}
		}
		if got := w.list("operator", url.Values{"where": {"orders < 0"}, "order": {"-orders"}}); got.Total != 8 {
			t.Errorf("%s: %v", name, got.names())
		}
	}
}

// TestQueries: filter, order, and facets over all that match.
func TestQueries(t *testing.T) {
	w := newWorld(t)
	marketplace(w)
	for _, row := range []struct {
		where, order string
		want         string
	}{
		{"", "", "cache/small cache/large db/small db/large raw/small raw/large secret/small secret/large"},
		{"price < 20.0", "price", "cache/small cache/large raw/small"},
		{"price < 20.0", "-price", "raw/small cache/large cache/small"},
		{"'eu-1' in regions && orders > 0", "-orders", "cache/small db/small secret/small"},
		{"providers == ['rival']", "", "raw/small raw/large"},
		{"offering.startsWith('d') && plan == 'small'", "", "db/small"},
		{"orders >= 0", "orders", "db/large secret/small raw/small db/small cache/small"},
		{"currency == 'EUR' && bindable && free && kind == 'resources' && 'test' in tags && !proven", "price", "cache/small cache/large raw/small db/small db/large"},
		{"false", "", ""},
	} {
		query := url.Values{}
		for name, value := range map[string]string{"where": row.where, "order": row.order} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if got := strings.Join(w.list("operator", query).names(), " "); got != row.want {
			t.Errorf("%v: got %s, want %s", query, got, row.want)
		}
	}
	// What is not known is last in both directions.
	for _, order := range []string{"price", "-price", "orders", "-orders"} {
		names := w.list("operator", url.Values{"order": {order}}).names()
		if last := names[len(names)-1]; last != "secret/large" {
			t.Errorf("by %s the last is %s", order, last)
		}
	}
	got := w.list("platform:cf", url.Values{"facets": {"provider,region", "currency"}, "where": {"plan == 'small'"}, "limit": {"1"}})
	if want := "map[currency:[{EUR 3}] provider:[{acme 2} {rival 2}] region:[{eu-1 2} {eu-2 2} {us-1 2}]]"; fmt.Sprint(got.Facets) != want || len(got.Plans) != 1 || got.Total != 3 {
		t.Errorf("facets %v of %d", got.Facets, got.Total)
	}
}

// TestPages: together they are the list, in its order, also if a plan goes away in between.
func TestPages(t *testing.T) {
	w := newWorld(t)
	sell(t, w.catalog, many(30)...)
	for order := range orders {
		all := w.list("operator", url.Values{"order": {order}, "limit": {"500"}})
		if len(all.Plans) != 60 || all.Continue != "" {
			t.Fatalf("%d plans, continue %q", len(all.Plans), all.Continue)
		}
		var paged []string
		for query := (url.Values{"order": {order}, "limit": {"7"}}); ; {
			got := w.list("operator", query)
			if paged = append(paged, got.names()...); got.Continue == "" {
				break
			}
			query.Set("continue", got.Continue)
		}
		if !slices.Equal(paged, all.names()) {
			t.Errorf("by %s: got %v, want %v", order, paged, all.names())
		}
	}
	first := w.list("operator", url.Values{"limit": {"8"}})
	sell(t, w.catalog, slices.Delete(many(30), 2, 5)...) // the last two of the page, and the first of the next
	w.eventually("they are gone", func() string {
		if got := w.list("operator", nil); got.Total != 54 {
			return fmt.Sprint(got.Total)
		}
		return ""
	})
	if next := w.list("operator", url.Values{"limit": {"1"}, "continue": {first.Continue}}).names(); next[0] != "offering-00005/small" {
		t.Errorf("after %s comes %s", first.names()[7], next)
	}
}

// TestQueriesThatAreRefused: with the parameter, and what is wrong with it.
func TestQueriesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	marketplace(w)
	byPrice := w.list("operator", url.Values{"order": {"price"}, "limit": {"1"}}).Continue
	token := w.as("operator")
	for query, why := range map[string]string{
		"where=price+<":    "where: column",
		"where=price":      "is of type double, want bool",
		"where=cost+<+1.0": "undeclared reference to 'cost'",
		"where=" + strings.Repeat("+", maxWhere+1): "longer than 1024 bytes",
		"where=1/0+==+orders":                      "division by zero",
		"where=" + url.QueryEscape("[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, a+b+c > 0)))"): "cost limit exceeded",
		"where=true&where=false": "where: is given 2 times",
		"order=colour":           "order: want one of",
		"limit=0":                "limit: want a number from 1 to 500",
		"limit=501":              "limit: want",
		"limit=x":                "limit: want",
		"facets=colour":          "no facet \"colour\"",
		"continue=x":             "continue: want the value",
		"continue=bnVsbA":        "continue: want the value",
		"continue=" + byPrice:    "ordered by price",
		"brief=perhaps":          "brief: want true or false",
		"colour=red":             "colour: there is no such parameter",
		"where=%zz":              "malformed",
	} {
		w.refused(request{method: "GET", path: "/market/v1/plans?" + query, with: token}, http.StatusBadRequest, why)
	}
}

// BenchmarkQuery is a filtered, ordered page of ten thousand plans with its facets.
func BenchmarkQuery(b *testing.B) {
	v := newViews(nil, nil)
	v.catalog = catalogOf(b, 5000)
	s := v.of(operator).current()
	for name, query := range map[string]string{
		"where":       "where=price+<+20.0+%26%26+'eu-1'+in+regions",
		"all":         "where=price+<+20.0+%26%26+'eu-1'+in+regions&order=price&facets=provider,region,kind",
		"without any": "",
	} {
		b.Run(name, func(b *testing.B) {
			values, err := url.ParseQuery(query)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				q, err := parseQuery(values)
				if err != nil {
					b.Fatal(err)
				}
				if got, err := s.run(b.Context(), q); err != nil || got.Total == 0 {
					b.Fatal(got, err)
				}
			}
		})
	}
}
