package usage_test

import (
	"bytes"
	"encoding/csv"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/usage"
)

// mandatory are the columns of FOCUS 1.2 with the feature level Mandatory, and whether they allow null in rows of usage.
var mandatory = map[string]bool{
	"BilledCost": false, "BillingAccountId": false, "BillingAccountName": true, "BillingCurrency": false, "BillingPeriodEnd": false,
	"BillingPeriodStart": false, "ChargeCategory": false, "ChargeClass": true, "ChargeDescription": true, "ChargePeriodEnd": false,
	"ChargePeriodStart": false, "ContractedCost": false, "EffectiveCost": false, "InvoiceIssuerName": false, "ListCost": false,
	"PricingQuantity": false, "PricingUnit": false, "ProviderName": false, "PublisherName": false, "ServiceCategory": false, "ServiceName": false,
}

// TestFOCUS: the rows have every mandatory column, of the right form; quantity times price is the cost; and a period is
// divided at the end of a month.
func TestFOCUS(t *testing.T) {
	at := func(text string) *metav1.Time {
		parsed, err := time.Parse(time.DateTime, text)
		if err != nil {
			t.Fatal(err)
		}
		return &metav1.Time{Time: parsed}
	}
	of := usage.Metered{EventSubject: v1alpha1.EventSubject{Name: "si-1", Platform: "cf", InstanceID: "one", ServiceID: "s"}}
	of.Periods = []v1alpha1.UsagePeriod{
		{
			Cluster: "berlin", Provider: "acme", PlanID: "p", From: *at("2026-02-28 23:59:43"), To: at("2026-03-01 00:00:07"), Currency: "EUR",
			PricePerHour: resource.NewScaledQuantity(1_234_567_891, resource.Nano), Reserved: corev1.ResourceList{"memory": resource.MustParse("4Gi"), "cpu": resource.MustParse("2")},
		},
		{Cluster: "free", PlanID: "p", From: *at("2026-03-02 00:00:00")},
	}
	q := usage.Query{Window: usage.Window{From: at("2026-02-01 00:00:00").Time, To: at("2026-03-02 12:00:00").Time}}
	q.Names = func(string, string) (string, string) { return "compute", "small, or \"less\"" }
	var out bytes.Buffer
	if err := usage.WriteFOCUS(&out, []usage.Metered{of}, q, "Example Cloud"); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 4 {
		t.Fatalf("%v: %v", err, rows)
	}
	var got []string
	for _, row := range rows[1:] {
		cells := map[string]string{}
		for i, title := range rows[0] {
			cells[title] = row[i]
		}
		for column, isNullable := range mandatory {
			if cell, found := cells[column]; !found || cell == "" && !isNullable {
				t.Errorf("%s is %q, there: %t", column, cell, found)
			}
		}
		number := func(column string) *big.Rat {
			value, ok := new(big.Rat).SetString(cells[column])
			if !ok {
				t.Fatalf("%s is %q", column, cells[column])
			}
			return value
		}
		off := new(big.Rat).Sub(new(big.Rat).Mul(number("PricingQuantity"), number("ContractedUnitPrice")), number("ContractedCost"))
		if off.Abs(off).Cmp(big.NewRat(1, 1_000_000_000)) > 0 {
			t.Errorf("the cost is off by %s: %v", off.FloatString(12), cells)
		}
		got = append(got, strings.Join([]string{
			cells["BillingPeriodStart"], cells["ChargePeriodStart"], cells["ChargePeriodEnd"], cells["BilledCost"], cells["BillingCurrency"], cells["BillingAccountId"], cells["PublisherName"], cells["ChargeDescription"],
		}, " "))
	}
	want := `2026-02-01T00:00:00Z 2026-02-28T23:59:43Z 2026-03-01T00:00:00Z 0.005829904 EUR cf acme small, or "less" on berlin: cpu 2, memory 4Gi
2026-03-01T00:00:00Z 2026-03-01T00:00:00Z 2026-03-01T00:00:07Z 0.002400549 EUR cf acme small, or "less" on berlin: cpu 2, memory 4Gi
2026-03-01T00:00:00Z 2026-03-02T00:00:00Z 2026-03-02T12:00:00Z 0 XXX cf Example Cloud small, or "less" on free: `
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s", text)
	}
}
