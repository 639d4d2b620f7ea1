package placement_test

import (
	"math/big"

	"github.com/sluice-dev/sluice/placement"
)

// The score fit of docs/placement.md, in thousandths of a point.

// doublings is the binary logarithm in 1024ths, linear between powers of two; that of less than one is 0.
func doublings(x int64) int64 {
	if x < 1 {
		return 0
	}
	n := int64(0)
	for x>>n > 1 {
		n++
	}
	part := new(big.Int).Mul(big.NewInt(x-1<<n), big.NewInt(1024))
	return 1024*n + part.Rsh(part, uint(n)).Int64()
}

func (o *oracle) fit(c *placement.Cluster, component *placement.Component) int64 {
	need := o.need(component)
	cores, mib, gpus := o.left(c, component, cpu), o.left(c, component, memory)>>20, o.left(c, component, gpu)
	asks, asksMiB := need[cpu], need[memory]>>20
	beyond := func(free, asked int64) int64 { return max(doublings(free)-doublings(asked), 0) }

	var lost int64
	if need[gpu] > 0 {
		lost = min(3750*beyond(gpus, need[gpu])/1024+600*(beyond(cores, asks)+beyond(mib, asksMiB))/2048, 45_000)
	} else {
		var sum, n int64
		if asks > 0 {
			sum, n = sum+beyond(cores, asks), n+1
		}
		if need[memory] > 0 {
			sum, n = sum+beyond(o.left(c, component, memory), need[memory]), n+1
		}
		lost = min(3750*(sum/max(n, 1))/1024, 45_000) + o.skew(cores, mib, asks, asksMiB)
	}
	if gpus > 0 {
		if need[gpu] == 0 {
			lost += 10_000
		}
		lost += o.strands(need, cores, mib, gpus)
	}
	return (100_000 - lost) / 1000
}

// skew is the loss for cores and memory that are left in another proportion than the fleet has.
func (o *oracle) skew(cores, mib, asks, asksMiB int64) int64 {
	var fleetCores, fleetMiB int64
	for _, c := range o.clusters {
		forSale, _ := sold(c, cpu)
		fleetCores += forSale
		forSale, _ = sold(c, memory)
		fleetMiB += forSale >> 20
	}
	if fleetCores == 0 || fleetMiB == 0 {
		return 0
	}
	most := asks*fleetMiB + asksMiB*fleetCores
	if most == 0 {
		return 10_000
	}
	out := func(cores, mib int64) int64 {
		d := cores*fleetMiB - mib*fleetCores
		return max(d, -d)
	}
	return 10_000 + 10_000*(out(cores-asks, mib-asksMiB)-out(cores, mib))/most
}

// strands is the loss for GPUs that become useless without cores and memory beside them.
func (o *oracle) strands(need placement.Resources, cores, mib, gpus int64) int64 {
	var orders, sum, sumCores, sumMiB int64
	count := func(r placement.Resources) {
		if r[gpu] > 0 {
			orders, sum, sumCores, sumMiB = orders+1, sum+r[gpu], sumCores+r[cpu], sumMiB+r[memory]>>20
		}
	}
	for _, h := range o.held {
		for _, r := range h.Held {
			count(r)
		}
	}
	count(need)
	useless := func(gpus, cores, mib int64) int64 {
		usable := min(16*cores*max(2*sum, 1)/max(sumCores, 1), 16*mib*max(2*sum, 1)/max(sumMiB, 1))
		return max(16*gpus-usable, 0)
	}
	after := useless(gpus-need[gpu], cores-need[cpu], mib-need[memory]>>20)
	order := 16 * max(sum/max(orders, 1), need[gpu], 1)
	return 25_000 * min(max(after-useless(gpus, cores, mib), 0), order) / order
}
