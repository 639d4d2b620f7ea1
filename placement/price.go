package placement

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Price is an amount of money per hour, exact to a billionth of the currency's unit.
type Price struct {
	// Currency as an ISO 4217 code.
	Currency string `json:"currency"`
	// NanoPerHour is the price of one hour in billionths of the currency's unit.
	NanoPerHour int64 `json:"nanoPerHour"`
}

// PriceOf converts a plan's price; nil stays nil.
func PriceOf(p *v1alpha1.Price) *Price {
	if p == nil {
		return nil
	}
	if p.PerMonth != nil {
		return &Price{Currency: p.Currency, NanoPerHour: p.PerMonth.ScaledValue(resource.Nano) / hoursPerMonth}
	}
	return &Price{Currency: p.Currency, NanoPerHour: p.PerHour.ScaledValue(resource.Nano)}
}

// hoursPerMonth is a twelfth of a year, as public clouds count it.
const hoursPerMonth = 730

// quantity converts the amount for the API.
func (p Price) quantity() *resource.Quantity {
	return resource.NewScaledQuantity(p.NanoPerHour, resource.Nano)
}

// times is the price of n; nil stays nil.
func (p *Price) times(n int64) *Price {
	if p == nil || n == 1 {
		return p
	}
	return &Price{p.Currency, mulDiv(p.NanoPerHour, n, 1)}
}

// String renders the price, for instance "0.35 EUR/h".
func (p Price) String() string {
	return fmt.Sprintf("%s %s/h", strconv.FormatFloat(float64(p.NanoPerHour)/1e9, 'f', -1, 64), p.Currency)
}

// mulDiv returns a*b/c rounded up, exact even where a*b exceeds 64 bits, and the
// largest int64 where the result does. It takes a and b ≥ 0 and c > 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b)) //nolint:gosec // not negative
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	hi += carry
	if hi >= uint64(c) { //nolint:gosec // positive
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, uint64(c)) //nolint:gosec // positive
	return int64(min(quotient, math.MaxInt64))   //nolint:gosec // bounded
}
