package placement

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/internal/member"
)

// health is how the last probes of a member cluster went.
type health struct {
	failures int
	answers  int // in a row
	lastErr  error
	// latencies of the last probes that were answered, oldest first.
	latencies []time.Duration
}

const (
	// toleratedFailures is how many probes in a row may fail before a cluster that was
	// ready is not any more, so that one lost packet moves nothing.
	toleratedFailures = 3
	// steadyAnswers is how many probes in a row must be answered before a cluster that did
	// not answer counts as answering, so that one that comes and goes takes no placements.
	steadyAnswers = 3
	// rememberedLatencies is the number of probes over which the median is taken.
	rememberedLatencies = 9
)

func (h *health) failed(err error) {
	h.failures++
	if member.IsStranger(err) {
		h.failures = toleratedFailures // no lost packet: nothing may be done there from now on
	}
	h.answers, h.lastErr = 0, err
}

func (h *health) answered(latency time.Duration) {
	h.answers++
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

// reachable tells whether the cluster counts as answering, given whether it did; before
// the first probe it neither did nor did not.
func (h *health) reachable(before metav1.ConditionStatus) bool {
	switch before {
	case metav1.ConditionTrue:
		return h.lastErr == nil || h.failures < toleratedFailures
	case metav1.ConditionFalse:
		return h.lastErr == nil && h.answers >= steadyAnswers
	default:
		return h.lastErr == nil
	}
}
