package controller

import "time"

// Measure says what the broker certifies of member clusters.
type Measure struct {
	// Window of one measurement, aligned to the clock in UTC; 0 means a day.
	Window time.Duration
	// Vantage names where the broker probes from; empty measures nothing.
	Vantage string
	// ProbeEvery is the time between two probes of a cluster.
	ProbeEvery time.Duration
}

func (m Measure) window() time.Duration {
	if m.Window == 0 {
		return 24 * time.Hour
	}
	return m.Window
}

// validity of a measurement: two windows, so that one follows before the other ends.
func (m Measure) validity() time.Duration { return 2 * m.window() }
