package controller

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Probes keeps what probes of member clusters found, by window of time. It is in
// memory: a window in which the broker restarted, or another replica took over,
// falls short.
type Probes struct {
	// Window is the length of one, aligned to the clock in UTC; it must not be 0.
	Window time.Duration

	mu   sync.Mutex
	open map[string]*window // by cluster
	over []*window
}

// window is what was found of one cluster in one window.
type window struct {
	cluster string
	start   time.Time
	probes  []probe
}

// probe is one of them; a latency below zero is one that was not answered.
type probe struct {
	at      time.Time
	latency time.Duration
}

// Probed takes what a probe of a cluster found. It does not block.
func (p *Probes) Probed(cluster string, at time.Time, latency time.Duration, err error) {
	if err != nil {
		latency = -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(at)
	w := p.open[cluster]
	if w == nil {
		w = &window{cluster: cluster, start: at.UTC().Truncate(p.Window)}
		if p.open == nil {
			p.open = map[string]*window{}
		}
		p.open[cluster] = w
	}
	w.probes = append(w.probes, probe{at, latency})
}

// close ends the windows that are over.
func (p *Probes) close(now time.Time) {
	for cluster, w := range p.open {
		if !now.Before(w.start.Add(p.Window)) {
			p.over = append(p.over, w)
			delete(p.open, cluster)
		}
	}
}

// take returns the windows that are over at a time, once.
func (p *Probes) take(now time.Time) []*window {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(now)
	over := p.over
	p.over = nil
	return over
}

// latencies of the probes that were answered, in milliseconds, in order of size.
func (w *window) latencies() (answered []float64) {
	for _, p := range w.probes {
		if p.latency >= 0 {
			answered = append(answered, math.Round(float64(p.latency)/float64(time.Millisecond)*10)/10)
		}
	}
	slices.Sort(answered)
	return answered
}

// evidence lists the probes, for whoever wants to check what was made of them.
func (w *window) evidence() string {
	var b strings.Builder
	b.WriteString("seconds,milliseconds\n")
	for _, p := range w.probes {
		fmt.Fprintf(&b, "%.1f,", p.at.Sub(w.start).Seconds())
		if p.latency >= 0 {
			fmt.Fprintf(&b, "%.1f", float64(p.latency)/float64(time.Millisecond))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// quantile is the smallest value that at least a share of all is not above (nearest rank).
func quantile(sorted []float64, share float64) float64 {
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
