package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// offer is a plan as the market shows it.
type offer struct {
	*catalog.Plan
	Service, Title string
	Prices         []string
	Facts          *catalog.Facts
	places
}

// places of the instances of a plan.
type places struct{ Regions, Providers []string }

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
	all, err := s.offers(c)
	if err != nil {
		return nil, err
	}
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
func (s *server) offers(c *call) ([]*offer, error) {
	snapshot := s.Catalog.Snapshot()
	located, err := s.located.get(c.Context(), s.Clock, s.locate)
	if err != nil {
		return nil, err
	}
	var all []*offer
	for _, service := range snapshot.Offerings(c.caller.Name) {
		for _, p := range service.Plans {
			if !p.Withdrawn {
				all = append(all, s.offer(snapshot, p, located))
			}
		}
	}
	return all, nil
}

func (s *server) offer(snapshot *catalog.Snapshot, p *catalog.Plan, located *locator) *offer {
	return &offer{Plan: p, Service: p.Offering.Name, Title: cmp.Or(p.DisplayName, p.Name), Prices: prices(p.Costs), Facts: snapshot.Facts(p.ID), places: located.of(p)}
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

// locator finds the places of plans among the clusters of a moment. Most plans select the same clusters, so each
// selection is made once.
type locator struct {
	clusters []v1alpha1.MemberCluster
	known    sync.Map // of places, by selection
}

func (s *server) locate(ctx context.Context) (*locator, error) {
	var clusters v1alpha1.MemberClusterList
	if err := s.list(ctx, &clusters); err != nil {
		return nil, err
	}
	return &locator{clusters: clusters.Items}, nil
}

// of returns where instances of a plan can be: in the regions and with the providers of the clusters that it selects.
func (l *locator) of(p *catalog.Plan) places {
	if p.Kind == v1alpha1.PlanKindUpstream {
		return places{}
	}
	var selector *metav1.LabelSelector
	if p.Resources != nil {
		selector = p.Resources.Selector
	}
	makes := p.Kind == v1alpha1.PlanKindCluster
	key := strconv.FormatBool(makes) + metav1.FormatLabelSelector(selector)
	if at, found := l.known.Load(key); found {
		return at.(places)
	}
	at := placesOf(selector, makes, l.clusters)
	l.known.Store(key, at)
	return at
}

// placesOf returns the places of the clusters that a selector matches; makers are those that create clusters.
func placesOf(selector *metav1.LabelSelector, makers bool, clusters []v1alpha1.MemberCluster) places {
	matches := labels.Everything()
	if selector != nil {
		var err error
		if matches, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return places{} // the plan is not served then
		}
	}
	regions, providers := map[string]bool{}, map[string]bool{}
	for i := range clusters {
		c := &clusters[i]
		if c.DriverName() == v1alpha1.DriverOSB || makers != (c.DriverName() == v1alpha1.DriverCAPI) || !matches.Matches(labels.Set(c.SelectorLabels())) {
			continue
		}
		regions[c.Spec.Region], providers[c.Spec.Provider] = true, true
	}
	delete(regions, "")
	delete(providers, "")
	return places{slices.Sorted(maps.Keys(regions)), slices.Sorted(maps.Keys(providers))}
}
