package usage

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// focusColumns are the columns of WriteFOCUS, by their ids: the mandatory ones of FOCUS 1.2 (FinOps Open Cost and Usage
// Specification, "Columns"), and those of the conditional ones for which there is a value.
var focusColumns = []struct {
	id    string
	value func(charge) string
}{
	{"BilledCost", charge.cost},
	{"BillingAccountId", charge.account},
	{"BillingAccountName", func(c charge) string { return c.OrganizationGUID }},
	{"BillingCurrency", func(c charge) string { return cmp.Or(c.period.Currency, noCurrency) }},
	{"BillingPeriodEnd", func(c charge) string { return c.billing.To.Format(time.RFC3339) }},
	{"BillingPeriodStart", func(c charge) string { return c.billing.From.Format(time.RFC3339) }},
	{"ChargeCategory", constant("Usage")},
	{"ChargeClass", constant("")}, // null: no correction
	{"ChargeDescription", charge.description},
	{"ChargeFrequency", constant("Usage-Based")},
	{"ChargePeriodEnd", func(c charge) string { return c.during.To.Format(time.RFC3339) }},
	{"ChargePeriodStart", func(c charge) string { return c.during.From.Format(time.RFC3339) }},
	{"ConsumedQuantity", charge.hours},
	{"ConsumedUnit", constant("Hours")},
	{"ContractedCost", charge.cost},
	{"ContractedUnitPrice", charge.price},
	{"EffectiveCost", charge.cost},
	{"InvoiceIssuerName", func(c charge) string { return c.issuer }},
	{"ListCost", charge.cost},
	{"ListUnitPrice", charge.price},
	{"PricingCategory", constant("Standard")},
	{"PricingQuantity", charge.hours},
	{"PricingUnit", constant("Hours")},
	{"ProviderName", func(c charge) string { return c.issuer }},
	{"PublisherName", func(c charge) string { return cmp.Or(c.period.Provider, c.issuer) }},
	{"ResourceId", func(c charge) string { return c.Platform + "/" + c.InstanceID }},
	{"ResourceName", func(c charge) string { return c.Name }},
	{"ResourceType", constant("Service Instance")},
	{"ServiceCategory", constant("Compute")},
	{"ServiceName", func(c charge) string { return c.service }},
	{"SkuId", func(c charge) string { return c.period.PlanID }},
	{"SkuPriceId", func(c charge) string { return c.period.PlanID + "@" + c.period.Cluster }},
	{"SubAccountId", func(c charge) string { return c.SpaceGUID }},
	{"SubAccountName", func(c charge) string { return c.SpaceGUID }},
}

// noCurrency is the code of ISO 4217 for transactions without a currency: of clusters without a price list.
const noCurrency = "XXX"

// charge is one row: a period of usage within a part of the window.
type charge struct {
	*Metered
	period          *v1alpha1.UsagePeriod
	during, billing Window
	service, plan   string
	issuer          string
}

func constant(text string) func(charge) string { return func(charge) string { return text } }

// account returns the organization, or the platform of instances that have none.
func (c charge) account() string { return cmp.Or(c.OrganizationGUID, c.Platform) }

func (c charge) seconds() int64 { return c.during.To.Unix() - c.during.From.Unix() }

// hours returns the length of the charge, with enough digits for its product with the price to be the cost.
func (c charge) hours() string { return Text(big.NewRat(c.seconds(), secondsPerHour), 15) }

// price returns the price of an hour; zero if the cluster has no price list.
func (c charge) price() string {
	if c.period.PricePerHour == nil {
		return "0"
	}
	return Text(big.NewRat(c.period.PricePerHour.ScaledValue(resource.Nano), 1e9), 9)
}

func (c charge) cost() string {
	var sum Sum
	if c.period.PricePerHour != nil {
		sum.add(&v1alpha1.UsagePeriod{PricePerHour: c.period.PricePerHour}, c.seconds())
	}
	return sum.Cost.String()
}

// description says what was reserved, for instance "small on berlin: cpu 2, memory 4Gi".
func (c charge) description() string {
	var amounts []string
	for name, amount := range c.period.Reserved {
		amounts = append(amounts, fmt.Sprintf("%s %s", name, amount.String()))
	}
	slices.Sort(amounts)
	return fmt.Sprintf("%s on %s: %s", c.plan, c.period.Cluster, strings.Join(amounts, ", "))
}

// WriteFOCUS writes usage as CSV with the columns of FOCUS 1.2: a row for each period and each part of the window into
// which it falls. Issuer names whoever runs this Sluice, which is the provider in terms of FOCUS; the provider of a
// cluster is the publisher.
func WriteFOCUS(w io.Writer, all []Metered, q Query, issuer string) error {
	out := csv.NewWriter(w)
	row := make([]string, len(focusColumns))
	for i, column := range focusColumns {
		row[i] = column.id
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for i := range all {
		for n := range all[i].Periods {
			c := charge{Metered: &all[i], period: &all[i].Periods[n], issuer: issuer}
			c.service, c.plan = q.Names(c.ServiceID, c.period.PlanID)
			for part := range q.parts(c.Metered, c.period) {
				c.during, c.billing = part, Month(part.From)
				for column := range focusColumns {
					row[column] = focusColumns[column].value(c)
				}
				if err := out.Write(row); err != nil {
					return err
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}
