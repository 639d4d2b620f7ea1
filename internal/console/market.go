package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/market"
)

// offer is a plan as the market shows it.
type offer struct {
	*catalog.Plan
	Service, Title string
	Prices         []string
	Facts          *catalog.Facts
	*catalog.Places
	// Now is the offer as the market has it at the moment; nil if it was not asked.
	Now *market.Brief
}

// Monthly returns the price of a month on the cheapest clusters that fit now, of a plan without a price of its own; ""
// if it is not known.
func (o *offer) Monthly() string {
	if o.Now == nil || o.Now.Price == nil || len(o.Prices) > 0 {
		return ""
	}
	amount, err := resource.ParseQuantity(o.Now.Price.Amount)
	if err != nil {
		return ""
	}
	return money(amount, o.Now.Price.Currency) + " a month"
}

// Room returns how many orders fit now; "" if that is not known.
func (o *offer) Room() string {
	if o.Now == nil || !o.Now.Availability.Known || o.Now.Availability.Orders == 0 {
		return ""
	}
	fit := grouped(int64(o.Now.Availability.Orders)) + " available now"
	if o.Now.Availability.AtLeast {
		fit = "at least " + fit
	}
	return fit
}

// mostRegions is how many regions of an offer a list names.
const mostRegions = 5

// Where returns the regions in which instances can be, for a list: some of them if there are very many.
func (o *offer) Where() string {
	if more := len(o.Regions) - mostRegions; more > 1 {
		return strings.Join(o.Regions[:mostRegions], ", ") + " and " + grouped(int64(more)) + " more regions"
	}
	return strings.Join(o.Regions, ", ")
}

// Full returns why no order fits now; "" if one may.
func (o *offer) Full() string {
	if o.Now == nil {
		return ""
	}
	return o.Now.Availability.Reason
}

// facet is a property by which offers are narrowed.
type facet struct {
	Name, Title string
	Values      []facetValue
	More        int
}

// facetValue is a value of a facet, and how many offers have it among those that the other facets select.
type facetValue struct {
	Value string
	Count int
}

// mostFacetValues is how many values of a facet a page shows, the most frequent ones.
const mostFacetValues = 12

// facets of the market, in their order.
var facets = []struct {
	name, title string
	of          func(*offer) []string
}{
	{"kind", "Kind", func(o *offer) []string { return []string{string(o.Kind)} }},
	{"region", "Region", func(o *offer) []string { return o.Regions }},
	{"provider", "Provider", func(o *offer) []string { return o.Providers }},
	{"country", "Proven to be in", func(o *offer) []string {
		if o.Facts == nil || !o.Facts.EveryCluster {
			return nil
		}
		return append(o.Facts.Unions(), o.Facts.Countries...)
	}},
}

// marketData is the data of the market.
type marketData struct {
	Filter filter
	Facets []facet
	Offers []*offer
	All    int
	Pages  pager
	Orders []orderChoice
}

// orderChoice is an order in which offers can be listed, by its name in the market.
type orderChoice struct{ Name, Title string }

// orders of the market, the usual one first.
var orders = []orderChoice{{"name", "By name"}, {"price", "Cheapest first"}, {"-orders", "Most available first"}}

func (s *server) marketPage(c *call) (*page, error) {
	names := []string{"text", "order"}
	for _, f := range facets {
		names = append(names, f.name)
	}
	by := filterOf(c, names...)
	all, err := s.offers(c, cmp.Or(by.Value("order"), orders[0].Name))
	if err != nil {
		return nil, err
	}
	data := marketData{Filter: by, All: len(all), Orders: orders}
	found := slices.DeleteFunc(slices.Clone(all), func(o *offer) bool { return !o.isIn(by, "") })
	for _, f := range facets {
		shown := facet{Name: f.name, Title: f.title}
		counts := map[string]int{}
		for _, o := range all {
			if o.isIn(by, f.name) {
				for _, value := range f.of(o) {
					counts[value]++
				}
			}
		}
		for _, value := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) }) {
			shown.Values = append(shown.Values, facetValue{value, counts[value]})
		}
		if more := len(shown.Values) - mostFacetValues; more > 0 {
			shown.Values, shown.More = shown.Values[:mostFacetValues], more
		}
		if len(shown.Values) > 0 {
			data.Facets = append(data.Facets, shown)
		}
	}
	data.Offers, data.Pages = paged(c, found)
	return &page{Title: "Market", template: "market", Data: data}, nil
}

// isIn reports whether an offer is selected by all facets except one.
func (o *offer) isIn(by filter, except string) bool {
	for _, f := range facets {
		if f.name != except && by.values.Has(f.name) && !slices.Contains(f.of(o), by.Value(f.name)) {
			return false
		}
	}
	return by.has(o.Service, o.Name, o.Title, o.Description, o.Offering.Description, strings.Join(o.Offering.Tags, " "))
}

// offers returns the plans that the caller's platform may order, in an order of the market.
func (s *server) offers(c *call, order string) (all []*offer, err error) {
	if !slices.ContainsFunc(orders, func(o orderChoice) bool { return o.Name == order }) {
		return nil, errNoPage
	}
	snapshot := s.Catalog.Snapshot()
	for next := ""; ; {
		var body struct {
			Plans    []*market.Brief `json:"plans"`
			Continue string          `json:"continue"`
		}
		query := url.Values{"order": {order}, "limit": {"500"}, "brief": {"true"}}
		if next != "" {
			query.Set("continue", next)
		}
		refused, err := s.market(c, http.MethodGet, "plans?"+query.Encode(), nil, &body)
		if err != nil {
			return nil, err
		}
		if refused != "" {
			return nil, fmt.Errorf("read the market: %s", refused)
		}
		for _, row := range body.Plans {
			p, err := snapshot.Plan(row.Offering.ID, row.ID)
			if err != nil || row.Withdrawn {
				continue // it has gone since, or is about to
			}
			one := newOffer(snapshot, p)
			one.Now = row
			all = append(all, one)
		}
		if next = body.Continue; next == "" {
			return all, nil
		}
	}
}

func newOffer(snapshot *catalog.Snapshot, p *catalog.Plan) *offer {
	o := &offer{
		Plan: p, Service: p.Offering.Name, Title: cmp.Or(p.DisplayName, p.Name), Prices: prices(p.Costs), Facts: snapshot.Facts(p.ID), Places: snapshot.Places(p.ID),
	}
	if o.Places == nil { // not read yet
		o.Places = &catalog.Places{}
	}
	return o
}

// prices formats a plan's costs, for instance "89.5 EUR monthly".
func prices(costs []v1alpha1.Cost) (texts []string) {
	for _, cost := range costs {
		for _, currency := range slices.Sorted(maps.Keys(cost.Amount)) {
			amount := cost.Amount[currency]
			texts = append(texts, money(amount, strings.ToUpper(currency))+" "+strings.ToLower(cost.Unit))
		}
	}
	return texts
}
