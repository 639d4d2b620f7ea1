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
)

// Probes adds up the results of member cluster probes, by time window, for the clusters that
// are measured. It is kept in memory: a window in which the broker restarted, or another
// replica took over, has too few probes.
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
	cluster          string
	start            time.Time
	probes, answered int
	// latencies of the answered probes, in ascending order of size.
	latencies []latencies
	// signed is the measurement, once it is signed. A retry stores the same one.
	signed string
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

// Probed adds the result of a probe of a cluster. It does not block, and ignores clusters that
// are not measured.
func (p *Probes) Probed(cluster string, at time.Time, latency time.Duration, err error) {
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
	m.open.add(latency, err == nil)
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

func (w *window) add(latency time.Duration, answered bool) {
	w.probes++
	if !answered {
		return
	}
	w.answered++
	of := size(latency)
	i, found := slices.BinarySearchFunc(w.latencies, of, func(l latencies, of uint32) int { return cmp.Compare(l.size, of) })
	if !found {
		w.latencies = slices.Insert(w.latencies, i, latencies{size: of})
	}
	w.latencies[i].count++
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
func (w *window) quantile(share float64) float64 {
	rank := max(int(math.Ceil(share*float64(w.answered))), 1)
	for _, l := range w.latencies {
		if rank -= int(l.count); rank <= 0 {
			return milliseconds(l.size)
		}
	}
	return milliseconds(maxSize)
}

// evidence lists the number of probes of each latency, so that the measurement can be checked.
// Probes without a latency were not answered. It is shorter than 20,000 bytes.
func (w *window) evidence() string {
	var b strings.Builder
	b.WriteString("milliseconds,probes\n")
	for _, l := range w.latencies {
		b.WriteString(strconv.FormatFloat(milliseconds(l.size), 'f', 1, 64))
		fmt.Fprintf(&b, ",%d\n", l.count)
	}
	if lost := w.probes - w.answered; lost > 0 {
		fmt.Fprintf(&b, ",%d\n", lost)
	}
	return b.String()
}
