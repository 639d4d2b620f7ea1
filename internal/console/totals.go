package console

import (
	"maps"
	"math/big"
	"slices"

	"github.com/sluice-dev/sluice/internal/usage"
)

// digits of a sum after the point.
const digits = 4

// totals adds up exact amounts of money by currency, and formats the sums, for instance "12.5 EUR".
func totals[T any](all []T, of func(i int) (amount, currency string)) (texts []string) {
	sums := map[string]*big.Rat{}
	for i := range all {
		amount, currency := of(i)
		exact, ok := new(big.Rat).SetString(amount)
		if !ok || currency == "" {
			continue
		}
		if sums[currency] == nil {
			sums[currency] = new(big.Rat)
		}
		sums[currency].Add(sums[currency], exact)
	}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		text := usage.Text(sums[currency], digits)
		if text == "0" && sums[currency].Sign() > 0 {
			text = "less than 0.0001"
		}
		texts = append(texts, text+" "+currency)
	}
	return texts
}
