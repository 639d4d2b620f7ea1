package placement

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Resources are exact amounts by resource name, in the smallest useful unit:
// thousandths of a core for cpu; bytes for memory, ephemeral-storage, huge pages
// and persistent storage; pieces for everything else.
//
// Persistent storage is named per storage class, as in a ResourceQuota (see
// v1alpha1.StorageResource). Absent means zero.
type Resources map[corev1.ResourceName]int64

// ResourcesOf converts a Kubernetes resource list; amounts below the smallest
// unit are rounded up.
func ResourcesOf(list corev1.ResourceList) Resources {
	r := make(Resources, len(list))
	for name, quantity := range list {
		r[name] = amountOf(name, quantity)
	}
	return r
}

// amountOf returns a quantity in the smallest useful unit of a resource, rounded up.
func amountOf(name corev1.ResourceName, quantity resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

// List converts back to a Kubernetes resource list.
func (r Resources) List() corev1.ResourceList {
	list := make(corev1.ResourceList, len(r))
	for name, amount := range r {
		switch unitOf(name) {
		case milli:
			list[name] = *resource.NewMilliQuantity(amount, resource.DecimalSI)
		case bytes:
			list[name] = *resource.NewQuantity(amount, resource.BinarySI)
		default:
			list[name] = *resource.NewQuantity(amount, resource.DecimalSI)
		}
	}
	return list
}

// covers reports whether no amount is larger than the one here.
func (r Resources) covers(amounts Resources) bool {
	for name, amount := range amounts {
		if amount > r[name] {
			return false
		}
	}
	return true
}

// names returns the resource names in the order in which they are judged and
// shown: cpu and memory first, the rest by name.
func (r Resources) names() []corev1.ResourceName {
	rank := func(name corev1.ResourceName) int {
		switch name {
		case corev1.ResourceCPU:
			return 0
		case corev1.ResourceMemory:
			return 1
		default:
			return 2
		}
	}
	return slices.SortedFunc(maps.Keys(r), func(a, b corev1.ResourceName) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(string(a), string(b))
	})
}

// max returns, for each resource, the larger of the two amounts.
func (r Resources) max(other Resources) Resources {
	larger := maps.Clone(r)
	if larger == nil {
		larger = Resources{}
	}
	for name, amount := range other {
		larger[name] = max(larger[name], amount)
	}
	return larger
}

// Add adds sign times other to r.
func (r Resources) Add(other Resources, sign int64) {
	for name, amount := range other {
		r[name] += sign * amount
	}
}

// times returns n times r.
func (r Resources) times(n int64) Resources {
	if n == 1 {
		return r
	}
	product := make(Resources, len(r))
	for name, amount := range r {
		product[name] = n * amount
	}
	return product
}

// unit is the smallest unit of a resource.
type unit int

const (
	pieces unit = iota
	milli
	bytes
)

func unitOf(name corev1.ResourceName) unit {
	switch {
	case name == corev1.ResourceCPU:
		return milli
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, name == corev1.ResourceStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix), v1alpha1.IsStorage(name):
		return bytes
	default:
		return pieces
	}
}

// priced returns how many smallest units make one unit of a price list, which prices cores and
// GiB (see v1alpha1.PriceList).
func (u unit) priced() int64 {
	switch u {
	case milli:
		return 1000
	case bytes:
		return 1 << 30
	default:
		return 1
	}
}

// show formats an amount: 3200 of cpu as "3.2", bytes in the largest binary unit with two
// decimals at most. It cuts off rather than rounds, so that free capacity never looks
// sufficient when it is not.
func show(name corev1.ResourceName, amount int64) string {
	switch unitOf(name) {
	case milli:
		return strconv.FormatFloat(float64(amount)/1000, 'f', -1, 64)
	case bytes:
		return showBytes(amount)
	default:
		return strconv.FormatInt(amount, 10)
	}
}

func showBytes(amount int64) string {
	for _, scale := range []struct {
		suffix string
		bytes  int64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if amount >= scale.bytes || amount <= -scale.bytes {
			whole, rest := amount/scale.bytes, amount%scale.bytes
			hundredths := float64(whole) + float64(rest*100/scale.bytes)/100
			return strconv.FormatFloat(hundredths, 'f', -1, 64) + scale.suffix
		}
	}
	return strconv.FormatInt(amount, 10)
}
