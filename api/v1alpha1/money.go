package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The greatest amounts of money, in units of a currency. Both can be counted in billionths of the unit, the price of an
// hour also for a month.
const (
	MaxMoney        = math.MaxInt64 / 1_000_000_000
	MaxPricePerHour = MaxMoney / HoursPerMonth
)

// CheckMoney returns an error if a quantity is no amount of money from 0 to the greatest.
func CheckMoney(amount resource.Quantity, most int64) error {
	if amount.Sign() < 0 || amount.CmpInt64(most) > 0 {
		return fmt.Errorf("%s: want an amount of money from 0 to %d", amount.String(), most)
	}
	return nil
}

// Check returns an error if a price is no amount of money. A price that is nil is none.
func (p *Price) Check() error {
	if p == nil {
		return nil
	}
	if p.PerHour != nil {
		if err := CheckMoney(*p.PerHour, MaxPricePerHour); err != nil {
			return fmt.Errorf("perHour: %w", err)
		}
	}
	if p.PerMonth != nil {
		if err := CheckMoney(*p.PerMonth, MaxMoney); err != nil {
			return fmt.Errorf("perMonth: %w", err)
		}
	}
	return nil
}

// Check returns an error if one of the prices is of no resource, or no amount of money. A list that is nil has none.
func (p *PriceList) Check() error {
	if p == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.PerHour)) {
		if err := CheckResource(name); err != nil {
			return fmt.Errorf("perHour: %w", err)
		}
		if err := CheckMoney(p.PerHour[name], MaxPricePerHour); err != nil {
			return fmt.Errorf("perHour: %s: %w", name, err)
		}
	}
	return nil
}
