package controller

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/internal/member"
)

// health is the results of the last probes of a member cluster.
type health struct {
	failures int
	answers  int // in a row
	lastErr  error
	// latencies of the last answered probes, oldest first.
	latencies []time.Duration
}

const (
	// toleratedFailures is how many probes in a row must fail before a ready cluster becomes
	// not ready, so that one lost packet has no effect.
	toleratedFailures = 3
	// steadyAnswers is how many probes in a row must be answered before a cluster that did not
	// answer becomes ready, so that a flapping cluster gets no placements.
	steadyAnswers = 3
	// rememberedLatencies is how many latencies the median is computed from.
	rememberedLatencies = 9
)

func (h *health) failed(err error) {
	h.failures++
	if member.IsStranger(err) {
		h.failures = toleratedFailures // this is no lost packet: Sluice must do nothing there from now on
	}
	h.answers, h.lastErr = 0, err
}

func (h *health) answered(latency time.Duration) {
	h.answers++
	h.failures, h.lastErr = 0, nil
	h.latencies = append(h.latencies, latency)
	h.latencies = h.latencies[max(len(h.latencies)-rememberedLatencies, 0):]
}

// median returns the median latency; zero before the first answer.
func (h *health) median() time.Duration {
	if len(h.latencies) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(h.latencies))[len(h.latencies)/2]
}

// reachable reports whether the cluster counts as answering, given its previous status; before
// the first probe that is unknown.
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
