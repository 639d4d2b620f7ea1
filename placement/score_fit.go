package placement

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The score fit keeps room for orders that are yet to come: 100, less the points that an order loses on a
// cluster. What is scarce is an extended resource, because only some clusters have it.
//
//   - up to mostStranding for what an order makes useless of a scarce resource: without the cores and the
//     memory beside it that half an ordinary order for it takes;
//   - needlessLoss if the order does not ask for a scarce resource that the cluster has free;
//   - up to 2·evenSkew for cores and memory that it leaves in another proportion than the whole fleet has
//     (none if the order asks for something scarce);
//   - slackLoss for each doubling of what is free over what is asked, of cores and memory on average or of
//     what is scarce, if the order asks for it; then also besideLoss for cores and memory; up to mostSlack.
//
// All are computed in thousandths of a point. The first is after the fragmentation gradient of Weng et al.
// (Beware of Fragmentation, USENIX ATC 2023), for one order that stands for all.
const (
	mostStranding = 25_000
	needlessLoss  = 10_000
	evenSkew      = 10_000
	slackLoss     = 3_750
	besideLoss    = 600
	mostSlack     = 45_000
)

// sold has the holdings of orders that hold some of a scarce resource.
type sold struct {
	orders      int64
	amount      int64 // of that resource
	cpu, memory int64 // thousandths and MiB, of the same orders
}

// isScarce reports whether a resource is an extended one of nodes.
func isScarce(name corev1.ResourceName) bool {
	return unitOf(name) == pieces && strings.Contains(string(name), "/") && name != v1alpha1.ResourcePublicPorts
}

// with counts a reservation of a scarce resource; sign is 1, or −1 to take it away.
func (s sold) with(r Resources, name corev1.ResourceName, sign int64) sold {
	return sold{s.orders + sign, s.amount + sign*r[name], s.cpu + sign*r[corev1.ResourceCPU], s.memory + sign*(r[corev1.ResourceMemory]>>20)}
}

// fit scores clusters for one request.
type fit struct {
	cpu, memory need
	// asks are the amounts of which slack is lost: of what is scarce or, if nothing of it is asked for, of
	// cores and memory, or else of all.
	asks   []need
	scarce []scarce
	// logs are the logarithms of asks, which are the same for all clusters.
	logs []int64
	// fleet is the proportion of cores to memory, as two factors: what the fleet has of the other.
	fleet [2]int64
	// most is how far the order can move a cluster out of that proportion, shifted to be small enough.
	most  int64
	shift int
	// page and its columns, in the order of asks and scarce.
	page               *page
	cpus, mem          column
	askColumns, rarely []column
}

// scarce is a resource that only some clusters have.
type scarce struct {
	need
	// typical amount of an order for it.
	typical int64
	// cpu and memory are the amounts of the resource for which some thousandths and MiB are needed.
	cpu, memory ratio
}

// ratio is an amount for each other amount, both small enough to multiply.
type ratio struct{ amount, each int64 }

// smallEnough is the most of the factors that capacities are multiplied by.
const smallEnough = 1 << 20

func newRatio(amount, each int64) ratio {
	amount, each = max(amount, 1), max(each, 1)
	if shift := max(bits.Len64(uint64(max(amount, each)))-bits.Len64(smallEnough), 0); shift > 0 { // both positive
		amount, each = max(amount>>shift, 1), max(each>>shift, 1)
	}
	return ratio{amount, each}
}

// mostScarce limits the scarce resources that are looked at.
const mostScarce = 8

// newFit returns the scorer of a request.
func newFit(needs []need, s *Snapshot) *fit {
	asked := Resources{}
	for _, n := range needs {
		asked[n.name] = n.amount
	}
	of := func(name corev1.ResourceName) need {
		return need{name: name, amount: asked[name], column: s.columnOf(name)}
	}
	f := &fit{cpu: of(corev1.ResourceCPU), memory: of(corev1.ResourceMemory)}
	for _, name := range s.scarce(asked) {
		known := s.sold[name]
		if asked[name] > 0 {
			known = known.with(asked, name, 1)
		}
		one := scarce{need: of(name), typical: max(known.amount/max(known.orders, 1), 1)}
		one.cpu, one.memory = newRatio(2*known.amount, known.cpu), newRatio(2*known.amount, known.memory)
		f.scarce = append(f.scarce, one)
	}
	has := func(which func(need) bool) bool {
		f.asks = slices.DeleteFunc(slices.Clone(needs), func(n need) bool { return n.amount <= 0 || !which(n) })
		return len(f.asks) > 0
	}
	_ = has(func(n need) bool { return isScarce(n.name) }) ||
		has(func(n need) bool { return n.name == corev1.ResourceCPU || n.name == corev1.ResourceMemory }) || has(func(need) bool { return true })
	var cores, memory int64
	for _, p := range s.pages {
		for _, size := range p.column(f.cpu.column).size {
			cores += size
		}
		for _, size := range p.column(f.memory.column).size {
			memory += size >> 20
		}
	}
	if cores > 0 && memory > 0 && (len(f.asks) == 0 || !isScarce(f.asks[0].name)) {
		proportion := newRatio(cores, memory)
		f.fleet = [2]int64{proportion.each, proportion.amount}
		f.most = bounded(f.cpu.amount)*f.fleet[0] + bounded(f.memory.amount>>20)*f.fleet[1]
		f.shift = max(bits.Len64(uint64(f.most))-48, 0) // not negative
		f.most >>= f.shift
	}
	for i := range f.asks {
		f.logs = append(f.logs, log2(f.asks[i].amount))
	}
	f.askColumns, f.rarely = make([]column, len(f.asks)), make([]column, len(f.scarce))
	return f
}

// scarce returns the scarce resources that matter: first those that most orders hold, then by name.
func (s *Snapshot) scarce(asked Resources) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name := range s.columns {
		if isScarce(name) {
			names = append(names, name)
		}
	}
	orders := func(name corev1.ResourceName) int64 {
		if asked[name] > 0 {
			return 1 << 62
		}
		return s.sold[name].orders
	}
	slices.SortFunc(names, func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(orders(b), orders(a)), strings.Compare(string(a), string(b)))
	})
	return names[:min(len(names), mostScarce)]
}

// score returns the points of a cluster.
func (f *fit) score(at position) int32 {
	if f.page != at.page {
		f.enter(at.page)
	}
	cores, memory := f.cpus.free[at.row], f.mem.free[at.row]
	if at.held != nil {
		cores, memory = cores+at.held[corev1.ResourceCPU], memory+at.held[corev1.ResourceMemory]
	}
	memory >>= 20
	lost := f.skewed(cores, memory) + f.slack(at, cores, memory) + f.scarcity(at, cores, memory)
	return int32((100_000 - lost) / 1000) // the most that can be lost is 100
}

// enter takes the columns of a page.
func (f *fit) enter(p *page) {
	f.page, f.cpus, f.mem = p, p.column(f.cpu.column), p.column(f.memory.column)
	for i := range f.asks {
		f.askColumns[i] = p.column(f.asks[i].column)
	}
	for i := range f.scarce {
		f.rarely[i] = p.column(f.scarce[i].column)
	}
}

// skewed returns the loss for the proportion of what is left.
func (f *fit) skewed(cores, memory int64) int64 {
	if f.fleet[0] == 0 {
		return 0
	}
	if f.most == 0 {
		return evenSkew
	}
	skew := func(cores, memory int64) int64 { return abs(bounded(cores)*f.fleet[0] - bounded(memory)*f.fleet[1]) }
	more := skew(cores-f.cpu.amount, memory-f.memory.amount>>20) - skew(cores, memory) // at most that, either way
	return evenSkew + evenSkew*(more>>f.shift)/f.most
}

// slack returns the loss for what is free beyond what is asked for.
func (f *fit) slack(at position, cores, memory int64) int64 {
	if len(f.asks) == 0 {
		return 0
	}
	var octaves int64
	for i := range f.asks {
		free := f.askColumns[i].free[at.row]
		if at.held != nil {
			free += at.held[f.asks[i].name]
		}
		octaves += max(log2(free)-f.logs[i], 0)
	}
	switch len(f.asks) {
	case 1:
	case 2:
		octaves >>= 1 // as a division, and several times faster
	default:
		octaves /= int64(len(f.asks))
	}
	lost := slackLoss * octaves / 1024
	if isScarce(f.asks[0].name) {
		lost += besideLoss * (max(log2(cores)-log2(f.cpu.amount), 0) + max(log2(memory)-log2(f.memory.amount>>20), 0)) / 2048
	}
	return min(lost, mostSlack)
}

// log2 returns the binary logarithm in units of 1/1024, linear between powers of two; that of less than
// one is 0.
func log2(x int64) int64 {
	if x < 1 {
		return 0
	}
	n := bits.Len64(uint64(x)) - 1 // positive
	if n <= 10 {
		return int64(n)<<10 + x<<(10-n) - 1024
	}
	return int64(n)<<10 + x>>(n-10) - 1024
}

// scarcity returns the loss for scarce resources that the order does not need or strands.
func (f *fit) scarcity(at position, cores, memory int64) int64 {
	var needless, stranding int64
	for i := range f.scarce {
		one := &f.scarce[i]
		free := f.rarely[i].free[at.row]
		if at.held != nil {
			free += at.held[one.name]
		}
		if free <= 0 {
			continue
		}
		if one.amount == 0 {
			needless = needlessLoss
		}
		after := one.stranded(free-one.amount, cores-f.cpu.amount, memory-f.memory.amount>>20)
		if after == 0 {
			continue
		}
		if more := after - one.stranded(free, cores, memory); more > 0 {
			stranding += mostStranding * min(more, 16*max(one.typical, one.amount)) / (16 * max(one.typical, one.amount))
		}
	}
	return needless + min(stranding, mostStranding)
}

// stranded returns how much of what is free cannot be used with these cores and memory, in sixteenths.
func (s *scarce) stranded(free, cores, memory int64) int64 {
	return max(16*bounded(free)-min(s.cpu.of(cores), s.memory.of(memory)), 0)
}

// of returns sixteenths of the amount for which there is enough of the other.
func (r ratio) of(enough int64) int64 {
	whole, rest := bounded(enough)*r.amount/r.each, bounded(enough)*r.amount%r.each
	return 16*whole + 16*rest/r.each
}

// bounded keeps amounts small enough to multiply by smallEnough.
func bounded(amount int64) int64 { return min(max(amount, -1<<40), 1<<40) }

func abs(x int64) int64 { return max(x, -x) }
