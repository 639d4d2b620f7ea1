package market

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
)

const (
	defaultPage, mostPage = 50, 500
	// mostFacetValues is how many values of a facet are counted out: the most frequent.
	mostFacetValues = 100
	// queryTime bounds the evaluation of a filter over all plans.
	queryTime = time.Second
	// looked at between two looks at the clock.
	rowsBetween = 256
)

// query is a question to the list of plans.
type query struct {
	where  cel.Program
	facets []string
	order  string
	limit  int
	after  *place
	brief  bool
}

// place is the last row of a page: the next one begins after it, whatever has changed in between.
type place struct {
	Order    string  `json:"o"`
	Key      float64 `json:"k"` // math.MaxFloat64 if it is not known, because JSON has no infinity
	Position string  `json:"p"`
}

// orders are keys by which plans are sorted, ascending; nil sorts by offering, and its plans as they are there. What is not known comes last.
var orders = map[string]func(*row) float64{
	"name":    nil,
	"price":   func(r *row) float64 { return priceKey(r, 1) },
	"-price":  func(r *row) float64 { return priceKey(r, -1) },
	"orders":  func(r *row) float64 { return roomKey(r, 1) },
	"-orders": func(r *row) float64 { return roomKey(r, -1) },
}

func priceKey(r *row, sign float64) float64 {
	if r.Price == nil {
		return math.MaxFloat64
	}
	return sign * r.Price.value
}

func roomKey(r *row, sign float64) float64 {
	if !r.Availability.Known {
		return math.MaxFloat64
	}
	return sign * float64(r.Availability.Orders)
}

// facets are the values of a plan that are counted.
var facets = map[string]func(*row) []string{
	"offering":    func(r *row) []string { return []string{r.Offering.Name} },
	"kind":        func(r *row) []string { return []string{r.Kind} },
	"provider":    func(r *row) []string { return r.Providers },
	"region":      func(r *row) []string { return r.Regions },
	"tag":         func(r *row) []string { return r.Offering.Tags },
	"country":     func(r *row) []string { return r.Proven.countries() },
	"label_level": func(r *row) []string { return r.Proven.labelLevels() },
	"currency": func(r *row) []string {
		if r.Price == nil {
			return nil
		}
		return []string{r.Price.Currency}
	},
}

func (p *Proven) countries() []string {
	if p == nil {
		return nil
	}
	return p.Countries
}

func (p *Proven) labelLevels() []string {
	if p == nil {
		return nil
	}
	return p.LabelLevels
}

// parseQuery reads the parameters. The error is an *Error; what is not known is refused rather than ignored.
func parseQuery(from url.Values) (q query, err error) {
	q = query{order: "name", limit: defaultPage}
	for name, given := range from {
		if len(given) > 1 && name != "facets" {
			return q, badRequest("%s: is given %d times.", name, len(given))
		}
		value := given[0]
		switch name {
		case "where":
			if q.where, err = compileFilter(value); err != nil {
				return q, err
			}
		case "order":
			if _, known := orders[value]; !known {
				return q, badRequest("order: want one of name, price, -price, orders, -orders, got %q.", value)
			}
			q.order = value
		case "limit":
			if q.limit, err = strconv.Atoi(value); err != nil || q.limit < 1 || q.limit > mostPage {
				return q, badRequest("limit: want a number from 1 to %d, got %q.", mostPage, value)
			}
		case "brief":
			if q.brief, err = strconv.ParseBool(value); err != nil {
				return q, badRequest("brief: want true or false, got %q.", value)
			}
		case "facets":
			for _, facet := range strings.Split(strings.Join(given, ","), ",") {
				if facets[facet] == nil {
					return q, badRequest("facets: there is no facet %q; want some of country, currency, kind, label_level, offering, provider, region, tag.", facet)
				}
				q.facets = append(q.facets, facet)
			}
			slices.Sort(q.facets)
			q.facets = slices.Compact(q.facets)
		case "continue":
			raw, err := base64.RawURLEncoding.DecodeString(value)
			if err != nil || json.Unmarshal(raw, &q.after) != nil || q.after == nil {
				return q, badRequest("continue: want the value from the previous page.")
			}
		default:
			return q, badRequest("%s: there is no such parameter; want some of where, order, limit, facets, brief, continue.", name)
		}
	}
	if q.after != nil && q.after.Order != q.order {
		return q, badRequest("continue: it is of a list ordered by %s.", q.after.Order)
	}
	return q, nil
}

// FacetValue is a value of a facet, and how many plans have it.
type FacetValue struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// plansBody is a page of plans.
type plansBody struct {
	Plans []json.RawMessage `json:"plans"`
	// Total is how many plans match, on all pages.
	Total int `json:"total"`
	// Facets of all that match.
	Facets map[string][]FacetValue `json:"facets,omitempty"`
	// Continue is the value of the parameter for the next page; empty on the last.
	Continue string `json:"continue,omitempty"`
	// AsOf is the time of the availability.
	AsOf time.Time `json:"as_of"`
}

// run answers a query.
func (s *state) run(ctx context.Context, q query) (*plansBody, error) {
	rows := s.rows
	if q.where != nil {
		var err error
		if rows, err = s.matching(ctx, q.where); err != nil {
			return nil, err
		}
	}
	body := &plansBody{Total: len(rows), AsOf: s.asOf.UTC().Truncate(time.Millisecond), Facets: count(rows, q.facets)}
	key := orders[q.order]
	if key != nil {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(key(a), key(b)) })
	} else {
		key = func(*row) float64 { return 0 }
	}
	if q.after != nil {
		begin, _ := slices.BinarySearchFunc(rows, q.after, func(r *row, after *place) int {
			if order := cmp.Or(cmp.Compare(key(r), after.Key), strings.Compare(r.position, after.Position)); order != 0 {
				return order
			}
			return -1 // the one itself is before the page
		})
		rows = rows[begin:]
	}
	if len(rows) > q.limit {
		rows = rows[:q.limit]
		last := rows[q.limit-1]
		raw, err := json.Marshal(place{q.order, key(last), last.position})
		if err != nil {
			return nil, err
		}
		body.Continue = base64.RawURLEncoding.EncodeToString(raw)
	}
	if !q.brief {
		body.Plans = encodedRows(rows)
		return body, nil
	}
	body.Plans = make([]json.RawMessage, len(rows))
	for i, r := range rows {
		body.Plans[i], _ = json.Marshal(r.brief()) // strings and numbers
	}
	return body, nil
}

// matching returns the rows that a filter lets through.
func (s *state) matching(ctx context.Context, where cel.Program) (rows []*row, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	for i, r := range s.rows {
		if i%rowsBetween == 0 && ctx.Err() != nil {
			return nil, badRequest("where: evaluating it for all plans takes longer than %s; make it simpler.", queryTime)
		}
		out, _, err := where.Eval(r.values)
		if err != nil {
			return nil, badRequest("where: for plan %s of %s: %s.", r.Name, r.Offering.Name, err)
		}
		if out.Value() == true {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// count counts the values of facets, the most frequent first.
func count(rows []*row, asked []string) map[string][]FacetValue {
	if len(asked) == 0 {
		return nil
	}
	all := map[string][]FacetValue{}
	for _, facet := range asked {
		counts := map[string]int{}
		for _, r := range rows {
			for _, value := range facets[facet](r) {
				counts[value]++
			}
		}
		list := make([]FacetValue, 0, len(counts))
		for value, n := range counts {
			list = append(list, FacetValue{value, n})
		}
		slices.SortFunc(list, func(a, b FacetValue) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Value, b.Value))
		})
		all[facet] = list[:min(len(list), mostFacetValues)]
	}
	return all
}

// plans answers with a page of the plans that the caller sees.
func (s *server) plans(c *call) error {
	values, err := c.values()
	if err != nil {
		return err
	}
	q, err := parseQuery(values)
	if err != nil {
		return err
	}
	body, err := s.views.of(c.caller).current().run(c.Context(), q)
	if err != nil {
		return err
	}
	c.ResponseWriter.Header().Set("Cache-Control", "no-store")
	writeJSON(c.ResponseWriter, http.StatusOK, body)
	return nil
}

// plan answers with one plan.
func (s *server) plan(c *call) error {
	id, err := c.variable("id")
	if err != nil {
		return err
	}
	state := s.views.of(c.caller).current()
	r := state.byID[id]
	if r == nil {
		return &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no plan with this id for " + c.caller.String() + "."}
	}
	body := Details{Plan: r.Plan, AsOf: state.asOf.UTC().Truncate(time.Millisecond)}
	body.Schemas.Create, body.Schemas.Update, body.Schemas.Bind = r.plan.Schemas()
	if !r.Bindable {
		body.Schemas.Bind = nil
	}
	if own := r.plan.OwnMetadata(); len(own) > 0 {
		body.Metadata, _ = json.Marshal(own) // it was JSON
	}
	if facts := state.snapshot.Facts(id); facts != nil {
		body.SelfDescriptions = facts.SelfDescriptions
	}
	c.ResponseWriter.Header().Set("Cache-Control", "no-store")
	writeJSON(c.ResponseWriter, http.StatusOK, body)
	return nil
}
