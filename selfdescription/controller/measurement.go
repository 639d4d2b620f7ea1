package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// Measure says what the broker certifies of member clusters.
type Measure struct {
	// Probes that are made; nil measures nothing.
	Probes *Probes
	// Every is the time between two probes of a cluster.
	Every time.Duration
	// Vantage names where they are made from.
	Vantage string
}

// leastShare of the probes of a window must have been made, or nothing is said of it:
// the broker itself was away.
const leastShare = 0.9

// validity of a measurement: two windows, so that one follows before the other ends.
func (m Measure) validity() time.Duration {
	if m.Probes == nil {
		return 0
	}
	return 2 * m.Probes.Window
}

// measurement signs what was measured, once for each cluster and complete window.
type measurement struct {
	Options
	hub client.Client
}

// Start signs until ctx ends. It runs on the leader only, who probes.
func (r *measurement) Start(ctx context.Context) error {
	ticker := time.NewTicker(min(r.Measure.Probes.Window/60, time.Minute))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := r.look(ctx); err != nil {
				log.FromContext(ctx).Error(err, "Measurements")
			}
		}
	}
}

// look signs the windows that are over, and removes measurements that have ended.
func (r *measurement) look(ctx context.Context) error {
	now := r.Clock.Now()
	var problems []error
	for _, w := range r.Measure.Probes.take(now) {
		if err := r.issue(ctx, w); err != nil {
			problems = append(problems, fmt.Errorf("of cluster %s from %s: %w", w.cluster, w.start.Format(time.RFC3339), err))
		}
	}
	return errors.Join(append(problems, r.collect(ctx, now))...)
}

// issue stores a signed measurement, if the window is complete.
func (r *measurement) issue(ctx context.Context, w *window) error {
	cluster := &v1alpha1.MemberCluster{}
	err := r.hub.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: w.cluster}, cluster)
	if apierrors.IsNotFound(err) || err == nil && cluster.Spec.Trust == nil {
		return nil // nobody asks
	}
	if err != nil {
		return err
	}
	answered := w.latencies()
	expected := float64(r.Measure.Probes.Window) / float64(r.Measure.Every)
	if float64(len(w.probes)) < leastShare*expected || len(answered) == 0 {
		return nil
	}
	signer, err := r.signer(ctx, r.hub)
	if err != nil {
		return err
	}
	evidence := w.evidence()
	end := w.start.Add(r.Measure.Probes.Window)
	compact, err := signer.Credential(selfdescription.Document{
		ValidFrom: end, ValidUntil: end.Add(r.Measure.validity()),
		Subject: map[string]any{
			"id": cluster.Spec.Trust.Offering, "type": selfdescription.TypeClusterMeasurement,
			"window": map[string]any{"start": w.start.Format(time.RFC3339), "end": end.Format(time.RFC3339)},
			"uptime": map[string]any{"ratio": math.Floor(1e4*float64(len(answered))/float64(len(w.probes))) / 1e4, "probes": len(w.probes)},
			"latency": map[string]any{
				"p50Ms": quantile(answered, 0.5), "p95Ms": quantile(answered, 0.95), "p99Ms": quantile(answered, 0.99), "vantage": r.Measure.Vantage,
			},
			"evidenceDigest": selfdescription.DigestOf(evidence).SRI(),
		},
	})
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	err = r.hub.Create(ctx, &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact)),
			Labels: map[string]string{v1alpha1.LabelCluster: w.cluster},
		},
		Spec: v1alpha1.SelfDescriptionSpec{Credential: compact, Provider: cluster.Spec.Provider, Evidence: evidence},
	})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// collect removes measurements that have ended; the next ones have taken their place.
func (r *measurement) collect(ctx context.Context, now time.Time) error {
	var list v1alpha1.SelfDescriptionList
	if err := r.hub.List(ctx, &list, client.InNamespace(r.Namespace), client.HasLabels{v1alpha1.LabelCluster}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list measurements: %w", err)
	}
	for i := range list.Items {
		sd := &list.Items[i]
		if sd.Status.Issuer != r.DID || sd.Status.ValidUntil == nil || now.Before(sd.Status.ValidUntil.Time) {
			continue
		}
		if err := r.hub.Delete(ctx, sd.DeepCopy()); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove measurement %s: %w", sd.Name, err)
		}
	}
	return nil
}
