package console

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// earnings are the prices of an hour of what is delivered, by currency.
type earnings map[string]resource.Quantity

func (e earnings) add(p *v1alpha1.Placement) {
	if p.PricePerHour != nil {
		sum := e[p.Currency]
		sum.Add(*p.PricePerHour)
		e[p.Currency] = sum
	}
}

func (e earnings) addAll(other earnings) {
	for currency, q := range other {
		sum := e[currency]
		sum.Add(q)
		e[currency] = sum
	}
}

// texts formats them, for instance "0.84 EUR an hour".
func (e earnings) texts() (texts []string) {
	for _, currency := range slices.Sorted(maps.Keys(e)) {
		texts = append(texts, money(e[currency], currency)+" an hour")
	}
	return texts
}
