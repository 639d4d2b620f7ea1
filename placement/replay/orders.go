package replay

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// Booked is an order of an order book.
type Booked struct {
	ID string `json:"id"`
	// At is when it is ordered, after the beginning; For is how long the instance stays from when it is sold,
	// zero means for good.
	At  Period `json:"at"`
	For Period `json:"for,omitempty"`
	// Service and Plan are names.
	Service    string             `json:"service,omitempty"`
	Plan       string             `json:"plan,omitempty"`
	Parameters json.RawMessage    `json:"parameters,omitempty"`
	Consumer   placement.Consumer `json:"consumer"`
	// Holding are amounts to place on one cluster, of an order without a plan.
	Holding placement.Resources `json:"holding,omitempty"`
}

// Period is a time of a simulation, after its beginning, or between two of them.
type Period time.Duration

// String formats the period without zeros at the end, for instance 36h or 1h30m.
func (p Period) String() string {
	text := time.Duration(p).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// MarshalText implements encoding.TextMarshaler.
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// OrderColumns are the columns of an order book.
var OrderColumns = []string{"id", "at", "for", "count", "service", "plan", "parameters", "platform", "organization", "space", "application"}

// ParseOrders reads an order book: CSV (RFC 4180), of which the first line names the columns. Of OrderColumns, plan is
// required. at and for are durations such as 90m or 36h; count is a number of equal orders, whose ids end in
// -1, -2, …; parameters are JSON. There are no comments. Without id, an order is named by its line. A book has most orders
// at most. Errors name the line.
func ParseOrders(data []byte, most int) ([]Booked, error) {
	lines := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\uFEFF")))) // spreadsheets write this mark first
	lines.TrimLeadingSpace = true
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("the line that names the columns: %w", err)
	}
	for i, column := range header {
		if !slices.Contains(OrderColumns, column) {
			return nil, fmt.Errorf("line 1: column %q: want %s", column, strings.Join(OrderColumns, ", "))
		}
		if slices.Contains(header[:i], column) {
			return nil, fmt.Errorf("line 1: column %q is there twice", column)
		}
	}
	var booked []Booked
	ids := map[string]int{}
	for {
		cells, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return booked, nil
		} else if err != nil {
			return nil, err
		}
		line, _ := lines.FieldPos(0)
		order, count, err := parseOrder(header, cells, line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if count > most-len(booked) {
			return nil, fmt.Errorf("line %d: with it there are more than %d orders", line, most)
		}
		for n := range count {
			one := order
			if count > 1 {
				one.ID = fmt.Sprintf("%s-%d", order.ID, n+1)
			}
			if first := ids[one.ID]; first != 0 {
				return nil, fmt.Errorf("line %d: id %q is that of line %d too", line, one.ID, first)
			}
			ids[one.ID] = line
			booked = append(booked, one)
		}
	}
}

// mostOrders bounds the count of a line.
const mostOrders = 100_000

func parseOrder(header, cells []string, line int) (order Booked, count int, err error) {
	order, count = Booked{ID: fmt.Sprintf("order-%d", line)}, 1
	for i, column := range header {
		cell := strings.TrimSpace(cells[i])
		if cell == "" {
			continue
		}
		switch column {
		case "id":
			order.ID = cell
		case "at":
			order.At, err = parsePeriod(cell)
		case "for":
			order.For, err = parsePeriod(cell)
		case "count":
			if count, err = strconv.Atoi(cell); err != nil || count < 1 || count > mostOrders {
				err = fmt.Errorf("%q: want a number from 1 to %d", cell, mostOrders)
			}
		case "service":
			order.Service = cell
		case "plan":
			order.Plan = cell
		case "parameters":
			if order.Parameters = json.RawMessage(cell); !json.Valid(order.Parameters) {
				err = fmt.Errorf("%s: want JSON", cell)
			}
		case "platform":
			order.Consumer.Platform = cell
		case "organization":
			order.Consumer.Organization = cell
		case "space":
			order.Consumer.Space = cell
		case "application":
			order.Consumer.Application = cell
		}
		if err != nil {
			return order, 0, fmt.Errorf("%s: %w", column, err)
		}
	}
	if order.Plan == "" {
		return order, 0, errors.New("plan: want the name of a plan")
	}
	return order, count, nil
}

// longestPeriod is 100 years: longer ones and their sums could not be counted.
const longestPeriod = 100 * 365 * 24 * time.Hour

func parsePeriod(text string) (Period, error) {
	period, err := time.ParseDuration(text)
	if err != nil || period < 0 || period > longestPeriod {
		return 0, fmt.Errorf("%q: want a duration such as 90m or 36h, of at most %s", text, Period(longestPeriod))
	}
	return Period(period), nil
}

// Orders returns what a recording's instances hold as orders, one for each cluster, all at the beginning and by
// name, and then the order that was recorded. Instances of other brokers are left out, because their plans are not recorded.
func (r *Recording) Orders() []Booked {
	var booked []Booked
	for i := range r.Instances {
		held := placement.HoldingOf(&r.Instances[i])
		for cluster, amounts := range held.Held {
			if amounts[v1alpha1.ResourceInstances] > 0 {
				continue
			}
			booked = append(booked, Booked{ID: held.Instance + "/" + cluster, Holding: amounts, Consumer: held.Consumer})
		}
	}
	slices.SortFunc(booked, func(a, b Booked) int { return strings.Compare(a.ID, b.ID) })
	last := Booked{ID: r.Order.ID, Service: r.Offering.Name, Parameters: r.Order.Parameters, Consumer: r.Order.Consumer}
	for i := range r.Offering.Plans {
		if r.Offering.Plans[i].ID == r.Order.PlanID {
			last.Plan = r.Offering.Plans[i].Name
		}
	}
	return append(booked, last)
}

// Request returns what an order asks for, of the plans of a catalog. The error says that it is of none, or not valid
// for its plan.
func (o *Booked) Request(plans *catalog.Snapshot) (placement.Request, error) {
	if o.Holding != nil {
		r := placement.Request{ID: o.requestID(), Resources: o.Holding}
		if o.Holding[v1alpha1.ResourceClusters] > 0 {
			r.Shape = &v1alpha1.ClusterShape{}
		}
		return r, nil
	}
	var found *catalog.Plan
	for _, offering := range plans.All() {
		for _, plan := range offering.Plans {
			if plan.Name != o.Plan || o.Service != "" && o.Service != offering.Name {
				continue
			}
			if found != nil {
				return placement.Request{}, fmt.Errorf("services %s and %s both have a plan %q: name the service", found.Offering.Name, offering.Name, o.Plan)
			}
			found = plan
		}
	}
	if found == nil {
		return placement.Request{}, fmt.Errorf("no service%s has a plan %q", named(o.Service), o.Plan)
	}
	if err := found.ValidateCreate(o.Parameters); err != nil {
		return placement.Request{}, err
	}
	return placement.NewRequest(o.requestID(), found, o.Parameters)
}

func named(service string) string {
	if service == "" {
		return ""
	}
	return fmt.Sprintf(" %q", service)
}

// requestID differs from the names of all instances.
func (o *Booked) requestID() string { return "order " + o.ID }
