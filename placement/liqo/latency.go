package liqo

import (
	"cmp"
	"context"
	"slices"
	"time"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// latencyEvery is the shortest time between two writes of the latency of two clusters.
	latencyEvery = time.Minute
	// latencyConfirmed is the age at which an unchanged latency is written again, before it expires.
	latencyConfirmed = v1alpha1.ObservedLatencyTTL / 2
	// maxLatencies is the most that a cluster's status has.
	maxLatencies = 64
)

// latencyOf is Liqo's measurement of a connection; nil if there is none.
func latencyOf(c *networkingv1beta1.Connection) *v1alpha1.MeasuredLatency {
	latency := c.Status.Latency
	took, err := time.ParseDuration(latency.Value)
	if err != nil || took <= 0 || latency.Timestamp.IsZero() { // "N/A" before the first answer
		return nil
	}
	return &v1alpha1.MeasuredLatency{Median: metav1.Duration{Duration: took}, MeasuredAt: latency.Timestamp}
}

// recordLatency writes the latency of one cluster of a peering from the other to its status, if
// that is worth a write. A write that fails is repeated with the next reconciliation.
//
// The measurement of a cluster that has joined by invitation is not used: its owner controls the
// Connection. The other cluster measures the same connection.
func (r *Peerings) recordLatency(ctx context.Context, of, from *side) {
	if of.latency == nil || of.joined() != nil {
		return
	}
	now := metav1.NewTime(r.Clock.Now())
	measured := *of.latency
	measured.From = from.cluster.Name
	if now.Before(&measured.MeasuredAt) { // the cluster's clock is ahead
		measured.MeasuredAt = now
	}
	cluster := of.cluster.DeepCopy()
	if !setLatency(&cluster.Status, measured, now.Time) {
		return
	}
	if err := r.Client.Status().Update(ctx, cluster); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		log.FromContext(ctx).Error(err, "write a latency", "cluster", cluster.Name, "from", measured.From)
	}
}

// setLatency sets a measurement in a status, removes those that have expired, and reports whether
// the status is worth a write. It changes nothing otherwise.
func setLatency(status *v1alpha1.MemberClusterStatus, measured v1alpha1.MeasuredLatency, now time.Time) bool {
	isExpired := func(l v1alpha1.MeasuredLatency) bool {
		return now.Sub(l.MeasuredAt.Time) > v1alpha1.ObservedLatencyTTL
	}
	isSame := func(l v1alpha1.MeasuredLatency) bool { return l.From == measured.From }
	if i := slices.IndexFunc(status.Latencies, isSame); isExpired(measured) || i >= 0 && !isNews(status.Latencies[i], measured) {
		return false
	}
	status.Latencies = slices.DeleteFunc(status.Latencies, func(l v1alpha1.MeasuredLatency) bool { return isSame(l) || isExpired(l) })
	slices.SortStableFunc(status.Latencies, func(a, b v1alpha1.MeasuredLatency) int { return b.MeasuredAt.Compare(a.MeasuredAt.Time) })
	status.Latencies = append(status.Latencies[:min(len(status.Latencies), maxLatencies-1)], measured)
	slices.SortFunc(status.Latencies, func(a, b v1alpha1.MeasuredLatency) int { return cmp.Compare(a.From, b.From) })
	return true
}

// isNews reports whether a measurement differs from the written one by more than a tenth and a
// millisecond, or whether the written one expires soon.
func isNews(written, measured v1alpha1.MeasuredLatency) bool {
	since := measured.MeasuredAt.Sub(written.MeasuredAt.Time)
	before := written.Median.Duration
	return since >= latencyConfirmed || since >= latencyEvery && (measured.Median.Duration-before).Abs() > max(before/10, time.Millisecond)
}
