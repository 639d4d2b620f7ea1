package placement

import (
	"slices"
	"time"
)

// health is how the last probes of a member cluster went.
type health struct {
	failures int
	lastErr  error
	// latencies of the last probes that were answered, oldest first.
	latencies []time.Duration
}

const (
	// toleratedFailures is how many probes in a row may fail before a cluster that was
	// ready is not any more, so that one lost packet moves nothing.
	toleratedFailures = 3
	// rememberedLatencies is the number of probes over which the median is taken.
	rememberedLatencies = 9
)

func (h *health) failed(err error) {
	h.failures++
	h.lastErr = err
}

func (h *health) answered(latency time.Duration) {
	h.failures, h.lastErr = 0, nil
	h.latencies = append(h.latencies, latency)
	h.latencies = h.latencies[max(len(h.latencies)-rememberedLatencies, 0):]
}

// median latency; zero before the first answer.
func (h *health) median() time.Duration {
	if len(h.latencies) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(h.latencies))[len(h.latencies)/2]
}

// reachable tells whether the cluster counts as answering, given whether it did.
func (h *health) reachable(before bool) bool {
	return h.lastErr == nil || before && h.failures < toleratedFailures
}
