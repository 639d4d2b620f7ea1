package console

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// offer is a plan as the market shows it.
type offer struct {
	*catalog.Plan
	Service, Title string
	Prices         []string
	Facts          *catalog.Facts
	*catalog.Places
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
		return o.Facts.Countries
	}},
}

// marketData is the data of the market.
type marketData struct {
	Filter filter
	Facets []facet
	Offers []*offer
	All    int
	Pages  pager
}

func (s *server) marketPage(c *call) (*page, error) {
	all := s.offers(c)
	names := []string{"text"}
	for _, f := range facets {
		names = append(names, f.name)
	}
	by := filterOf(c, names...)
	data := marketData{Filter: by, All: len(all)}
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

// offers returns the plans that the caller's platform may order.
func (s *server) offers(c *call) (all []*offer) {
	snapshot := s.Catalog.Snapshot()
	for _, service := range snapshot.Offerings(c.caller.Name) {
		for _, p := range service.Plans {
			if !p.Withdrawn {
				all = append(all, newOffer(snapshot, p))
			}
		}
	}
	return all
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
