package controller

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/internal/probe"
)

// Probes adds up the results of probes of member clusters, by time window, for the clusters that
// are measured: of their API servers, and of the probes that run on them. It is kept in memory: a
// window in which the broker restarted, or another replica took over, has too few probes.
type Probes struct {
	// Window is the length of a window, aligned to the clock in UTC; it must not be 0.
	Window time.Duration

	mu       sync.Mutex
	clusters map[string]*measured // those that are measured
}

// measured is the results for one cluster: those of the open window, and those of finished
// windows that are not signed yet.
type measured struct {
	open *window
	over []*window
}

// window is the results for one cluster in one window.
type window struct {
	cluster string
	start   time.Time
	// api has the probes of the API server; pings, transfers and starts are those of the probe that runs on the cluster.
	api, pings, transfers, starts tally
	// signed is the measurement, once it is signed. A retry stores the same one.
	signed string
}

// tally counts probes of one kind.
type tally struct {
	probes, answered int
	// latencies of the answered probes, in ascending order of size.
	latencies []latencies
}

// latencies counts the latencies of one size; see size.
type latencies struct{ size, count uint32 }

// measure starts measuring a cluster.
func (p *Probes) measure(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clusters == nil {
		p.clusters = map[string]*measured{}
	}
	if p.clusters[cluster] == nil {
		p.clusters[cluster] = &measured{}
	}
}

// forget drops the results for a cluster and stops measuring it.
func (p *Probes) forget(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clusters, cluster)
}

// Probed adds the result of a probe of a cluster's API server. Like Pinged, Transferred and Started, it does not block, and
// ignores clusters that are not measured.
func (p *Probes) Probed(cluster string, at time.Time, latency time.Duration, err error) {
	p.add(cluster, at, func(w *window) *tally { return &w.api }, latency, err)
}

// Pinged adds the result of a ping to the probe that runs on a cluster.
func (p *Probes) Pinged(cluster string, at time.Time, latency time.Duration, err error) {
	p.add(cluster, at, func(w *window) *tally { return &w.pings }, latency, err)
}

// Transferred adds how long it took until that probe had received probe.TransferBytes.
func (p *Probes) Transferred(cluster string, at time.Time, took time.Duration, err error) {
	p.add(cluster, at, func(w *window) *tally { return &w.transfers }, took, err)
}

// Started adds how long a new pod of that probe took until it answered.
func (p *Probes) Started(cluster string, at time.Time, took time.Duration) {
	p.add(cluster, at, func(w *window) *tally { return &w.starts }, took, nil)
}

func (p *Probes) add(cluster string, at time.Time, to func(*window) *tally, latency time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.clusters[cluster]
	if m == nil {
		return
	}
	m.close(at, p.Window)
	if m.open == nil {
		m.open = &window{cluster: cluster, start: at.UTC().Truncate(p.Window)}
	}
	if at.Before(m.open.start) {
		return // the clock was set back
	}
	to(m.open).add(latency, err == nil)
}

// close ends the open window if it is over.
func (m *measured) close(now time.Time, length time.Duration) {
	if m.open != nil && !now.Before(m.open.start.Add(length)) {
		m.over = append(m.over, m.open)
		m.open = nil
	}
}

// over returns the finished windows for which done was not called.
func (p *Probes) over(now time.Time) (all []*window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.clusters {
		m.close(now, p.Window)
		all = append(all, m.over...)
	}
	slices.SortFunc(all, func(x, y *window) int {
		return cmp.Or(strings.Compare(x.cluster, y.cluster), x.start.Compare(y.start))
	})
	return all
}

// done drops a window that is signed and stored, or is not going to be.
func (p *Probes) done(w *window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.clusters[w.cluster]; m != nil {
		m.over = slices.DeleteFunc(m.over, func(other *window) bool { return other == w })
	}
}

func (t *tally) add(latency time.Duration, answered bool) {
	t.probes++
	if !answered {
		return
	}
	t.answered++
	of := size(latency)
	i, found := slices.BinarySearchFunc(t.latencies, of, func(l latencies, of uint32) int { return cmp.Compare(l.size, of) })
	if !found {
		t.latencies = slices.Insert(t.latencies, i, latencies{size: of})
	}
	t.latencies[i].count++
}

// maxSize is the largest size: 100 seconds. Longer latencies count as this.
const maxSize = 1_000_000

// size rounds a latency up, in tenths of a millisecond: exact up to 10 ms, and at most 2.5 %
// too high above. So there are 740 sizes, for any number of probes.
func size(latency time.Duration) uint32 {
	tenths := min(max(math.Ceil(float64(latency)/float64(time.Millisecond/10)), 1), maxSize)
	scale := 1.0
	for tenths > 1000*scale {
		scale *= 10
	}
	step := 1.0
	switch {
	case tenths > 500*scale:
		step = 10 * scale
	case tenths > 200*scale:
		step = 5 * scale
	case tenths > 100*scale:
		step = 2 * scale
	}
	return uint32(math.Ceil(tenths/step) * step)
}

// milliseconds converts a size.
func milliseconds(size uint32) float64 { return float64(size) / 10 }

// quantile returns the smallest latency, in milliseconds, that at least the given share of all
// latencies does not exceed (nearest rank). There must be at least one latency.
func (t *tally) quantile(share float64) float64 {
	rank := max(int(math.Ceil(share*float64(t.answered))), 1)
	for _, l := range t.latencies {
		if rank -= int(l.count); rank <= 0 {
			return milliseconds(l.size)
		}
	}
	return milliseconds(maxSize)
}

// isComplete reports whether enough probes were made, of the expected number, and one was answered.
func (t *tally) isComplete(expected float64) bool {
	return float64(t.probes) >= leastShare*expected && t.answered > 0
}

// uptime returns the share of answered probes, as a measurement has it.
func (t *tally) uptime() map[string]any {
	return map[string]any{"ratio": math.Floor(1e4*float64(t.answered)/float64(t.probes)) / 1e4, "probes": t.probes}
}

// latency returns the quantiles from a vantage, as a measurement has them.
func (t *tally) latency(vantage string) map[string]any {
	return map[string]any{"p50Ms": t.quantile(0.5), "p95Ms": t.quantile(0.95), "p99Ms": t.quantile(0.99), "vantage": vantage}
}

// throughput returns the median rate of transfers, as a measurement has it; nil if none succeeded.
func (t *tally) throughput() map[string]any {
	if t.answered == 0 {
		return nil
	}
	rate := 8e-3 * probe.TransferBytes / t.quantile(0.5) // kbit in a millisecond
	return map[string]any{"mbitPerSecond": math.Floor(100*rate) / 100, "transfers": t.answered}
}

// podStart returns the quantiles of the starts of pods, as a measurement has them; nil if there were none.
func (t *tally) podStart() map[string]any {
	if t.answered == 0 {
		return nil
	}
	return map[string]any{"p50Ms": t.quantile(0.5), "p95Ms": t.quantile(0.95), "starts": t.answered}
}

// dataPlane returns the part of a measurement about the probe that runs on the cluster; nil if there was none for the
// whole window, or if it never answered.
func (w *window) dataPlane(expected float64, vantage string) map[string]any {
	if !w.pings.isComplete(expected) {
		return nil
	}
	part := map[string]any{"uptime": w.pings.uptime(), "latency": w.pings.latency(vantage)}
	if throughput := w.transfers.throughput(); throughput != nil {
		part["throughput"] = throughput
	}
	if start := w.starts.podStart(); start != nil {
		part["podStart"] = start
	}
	return part
}

// evidence lists the number of probes of each latency, so that the measurement can be checked: of the API server, then of
// pings, transfers and starts of the probe that runs on the cluster, if there were any. Probes without a latency were not
// answered. It is shorter than 60,000 bytes.
func (w *window) evidence() string {
	var b strings.Builder
	w.api.list(&b, "milliseconds,probes")
	if w.pings.probes > 0 {
		w.pings.list(&b, "dataPlane milliseconds,probes")
	}
	if w.transfers.probes > 0 {
		w.transfers.list(&b, fmt.Sprintf("dataPlane milliseconds,transfers of %d bytes", probe.TransferBytes))
	}
	if w.starts.probes > 0 {
		w.starts.list(&b, "dataPlane milliseconds,starts of pods")
	}
	return b.String()
}

func (t *tally) list(b *strings.Builder, header string) {
	b.WriteString(header + "\n")
	for _, l := range t.latencies {
		b.WriteString(strconv.FormatFloat(milliseconds(l.size), 'f', 1, 64))
		fmt.Fprintf(b, ",%d\n", l.count)
	}
	if lost := t.probes - t.answered; lost > 0 {
		fmt.Fprintf(b, ",%d\n", lost)
	}
}
