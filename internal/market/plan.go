package market

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// Plan is a plan that somebody may see, as one row of the market.
type Plan struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	DisplayName string   `json:"display_name,omitempty"`
	Description string   `json:"description"`
	Bullets     []string `json:"bullets,omitempty"`
	// Kind is resources, workload, cluster or upstream.
	Kind     string   `json:"kind"`
	Offering Offering `json:"offering"`
	Free     bool     `json:"free"`
	Bindable bool     `json:"bindable"`
	// Withdrawn reports that instances live on, but new ones are refused.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Price of a month; nil if it is not known.
	Price *Price `json:"price,omitempty"`
	// Providers and Regions of the clusters that instances can be on.
	Providers []string `json:"providers"`
	Regions   []string `json:"regions"`
	// Proven facts about these clusters; nil if nothing is proven.
	Proven       *Proven      `json:"proven,omitempty"`
	Availability Availability `json:"availability"`
}

// Brief is the part of a row that a list of very many plans needs: nothing of what fills lines.
type Brief struct {
	ID           string        `json:"id"`
	Name         string        `json:"name"`
	Kind         string        `json:"kind"`
	Offering     BriefOffering `json:"offering"`
	Free         bool          `json:"free"`
	Bindable     bool          `json:"bindable"`
	Withdrawn    bool          `json:"withdrawn,omitempty"`
	Price        *Price        `json:"price,omitempty"`
	Availability Availability  `json:"availability"`
}

// BriefOffering is the offering of a Brief.
type BriefOffering struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func (p *Plan) brief() *Brief {
	return &Brief{
		ID: p.ID, Name: p.Name, Kind: p.Kind, Offering: BriefOffering{p.Offering.ID, p.Offering.Name}, Free: p.Free, Bindable: p.Bindable,
		Withdrawn: p.Withdrawn, Price: p.Price, Availability: p.Availability,
	}
}

// Offering is the offering of a plan.
type Offering struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags,omitempty"`
}

// Price is the price of a month.
type Price struct {
	// Amount in units of the currency, as a decimal number.
	Amount   string `json:"amount"`
	Currency string `json:"currency"` // ISO 4217
	// Source is plan for the plan's own costs, or clusters for the price lists of the cheapest clusters that fit now.
	Source string `json:"source"`

	value float64
}

// Proven are the proven facts about the clusters of a plan, as the catalog has them.
type Proven struct {
	// EveryCluster reports that each of the clusters was admitted by its credentials.
	EveryCluster bool     `json:"every_cluster"`
	Countries    []string `json:"countries"`
	LabelLevels  []string `json:"label_levels"`
}

// Availability is how many orders fit now.
type Availability struct {
	// Known is false on a replica that does not know, and for plans whose room depends on parameters.
	Known bool `json:"known"`
	// Orders that fit beside one another; AtLeast says that more may.
	Orders  int  `json:"orders"`
	AtLeast bool `json:"at_least"`
	// Clusters that would take one.
	Clusters int `json:"clusters"`
	// Reason why no order fits; empty if one does.
	Reason string `json:"reason,omitempty"`
}

// planOf returns the row of a plan.
func planOf(p *catalog.Plan, snapshot *catalog.Snapshot, room Room) Plan {
	o := p.Offering
	row := Plan{
		ID: p.ID, Name: p.Name, DisplayName: p.DisplayName, Description: p.Description, Bullets: p.Bullets, Kind: string(p.Kind),
		Offering: Offering{ID: o.ID, Name: o.Name, Description: o.Description, Tags: o.Tags},
		Free:     p.Free == nil || *p.Free, Bindable: p.IsBindable(), Withdrawn: p.Withdrawn,
		Price:     priceOf(p, room),
		Providers: []string{}, Regions: []string{},
		Availability: Availability{Known: room.Known, Orders: room.Orders, AtLeast: room.AtLeast, Clusters: room.Clusters, Reason: room.Why},
	}
	if places := snapshot.Places(p.ID); places != nil {
		row.Providers, row.Regions = orEmpty(places.Providers), orEmpty(places.Regions)
	}
	if facts := snapshot.Facts(p.ID); facts != nil {
		row.Proven = &Proven{EveryCluster: facts.EveryCluster, Countries: orEmpty(facts.Countries), LabelLevels: orEmpty(facts.LabelLevels)}
	}
	return row
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

const nano = 1e9

// priceOf returns the price of a month: the plan's own monthly costs, or else that of the cheapest clusters. Of several
// currencies of a plan it is the first by name.
func priceOf(p *catalog.Plan, room Room) *Price {
	for _, cost := range p.Costs {
		if !strings.EqualFold(cost.Unit, "MONTHLY") {
			continue
		}
		currencies := make([]string, 0, len(cost.Amount))
		for currency := range cost.Amount {
			currencies = append(currencies, currency)
		}
		slices.Sort(currencies)
		amount := cost.Amount[currencies[0]]
		if v1alpha1.CheckMoney(amount, v1alpha1.MaxMoney) != nil {
			return nil // of an offering that was accepted by an earlier version
		}
		return money(amount, strings.ToUpper(currencies[0]), "plan")
	}
	if room.Currency == "" || room.NanoPerHour > math.MaxInt64/v1alpha1.HoursPerMonth {
		return nil
	}
	monthly := resource.NewScaledQuantity(room.NanoPerHour*v1alpha1.HoursPerMonth, resource.Nano)
	return money(*monthly, room.Currency, "clusters")
}

// money returns a price of a month, exact to a billionth.
func money(amount resource.Quantity, currency, source string) *Price {
	scaled := amount.ScaledValue(resource.Nano)
	whole, fraction := scaled/nano, scaled%nano
	text := strconv.FormatInt(whole, 10)
	if digits := strings.TrimRight(fmt.Sprintf("%09d", fraction), "0"); digits != "" {
		text += "." + digits
	}
	return &Price{Amount: text, Currency: currency, Source: source, value: float64(scaled) / nano}
}

// Details is one plan with everything that is needed to order it.
type Details struct {
	Plan
	// Schemas of the parameters of create, update and bind: JSON Schemas.
	Schemas  Schemas         `json:"schemas"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// SelfDescriptions prove the facts.
	SelfDescriptions []catalog.SelfDescription `json:"self_descriptions,omitempty"`
	// AsOf is the time of the availability.
	AsOf time.Time `json:"as_of"`
}

// Schemas are the schemas of a plan's parameters.
type Schemas struct {
	Create json.RawMessage `json:"create"`
	Update json.RawMessage `json:"update"`
	Bind   json.RawMessage `json:"bind,omitempty"`
}
