package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// Measure configures the measurements that the broker certifies.
type Measure struct {
	// Probes holds the results of probes; nil measures nothing.
	Probes *Probes
	// Every is the time between two probes of a cluster.
	Every time.Duration
	// Vantage names the place that probes are made from.
	Vantage string
}

// leastShare is the smallest share of a window's probes that makes a measurement. With fewer,
// the broker itself was down, and the window is skipped.
const leastShare = 0.9

// validity returns how long a measurement is valid: two windows, so that the next one exists
// before it ends.
func (m Measure) validity() time.Duration {
	if m.Probes == nil {
		return 0
	}
	return 2 * m.Probes.Window
}

// measurement signs what was measured, once for each cluster and complete window.
type measurement struct {
	Options
	hub      client.Client
	clusters ctrlcache.Informers
}

// Start signs until ctx ends. It runs on the leader only, which also makes the probes.
func (r *measurement) Start(ctx context.Context) error {
	stop, err := r.follow(ctx)
	if err != nil {
		return err
	}
	defer stop()
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

// follow starts measuring exactly the clusters that have to prove an offering, until stop is
// called.
func (r *measurement) follow(ctx context.Context) (stop func(), err error) {
	informer, err := r.clusters.GetInformer(ctx, &v1alpha1.MemberCluster{})
	if err != nil {
		return nil, fmt.Errorf("follow the member clusters: %w", err)
	}
	look := func(o any) {
		if cluster, ok := o.(*v1alpha1.MemberCluster); ok && cluster.Spec.Trust != nil {
			r.Measure.Probes.measure(cluster.Name)
		} else if ok {
			r.Measure.Probes.forget(cluster.Name)
		}
	}
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, now any) { look(now) },
		DeleteFunc: func(o any) {
			if key, err := cache.DeletionHandlingObjectToName(o); err == nil {
				r.Measure.Probes.forget(key.Name)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow the member clusters: %w", err)
	}
	return func() { _ = informer.RemoveEventHandler(handle) }, nil
}

// look signs the windows that are over, and removes measurements that have ended. If a
// measurement could not be stored, it is retried at each pass until the measurement would have
// ended.
func (r *measurement) look(ctx context.Context) error {
	now := r.Clock.Now()
	var problems []error
	for _, w := range r.Measure.Probes.over(now) {
		err := r.issue(ctx, w)
		if err != nil {
			problems = append(problems, fmt.Errorf("of cluster %s from %s: %w", w.cluster, w.start.Format(time.RFC3339), err))
		}
		if err == nil || !now.Before(r.ends(w)) {
			r.Measure.Probes.done(w)
		}
	}
	return errors.Join(append(problems, r.collect(ctx, now))...)
}

// ends returns when the measurement of a window ends.
func (r *measurement) ends(w *window) time.Time {
	return w.start.Add(r.Measure.Probes.Window + r.Measure.validity())
}

// issue stores a signed measurement, if the window is complete. It is idempotent.
func (r *measurement) issue(ctx context.Context, w *window) error {
	cluster := &v1alpha1.MemberCluster{}
	err := r.hub.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: w.cluster}, cluster)
	if apierrors.IsNotFound(err) || err == nil && cluster.Spec.Trust == nil {
		return nil // no offering has to be proven
	}
	if err != nil {
		return err
	}
	if !w.api.isComplete(r.expected()) {
		return nil
	}
	if w.signed == "" {
		if w.signed, err = r.sign(ctx, w, cluster.Spec.Trust.Offering); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
	}
	err = r.hub.Create(ctx, &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(w.signed)),
			Labels: map[string]string{v1alpha1.LabelCluster: w.cluster, v1alpha1.LabelClusterUID: cluster.Status.UID},
		},
		Spec: v1alpha1.SelfDescriptionSpec{Credential: w.signed, Presenter: v1alpha1.Presenter{Provider: cluster.Spec.Provider}, Evidence: w.evidence()},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// sign returns a credential with the measurement of a window.
func (r *measurement) sign(ctx context.Context, w *window, offering string) (string, error) {
	signer, err := r.signer(ctx, r.hub)
	if err != nil {
		return "", err
	}
	end := w.start.Add(r.Measure.Probes.Window)
	subject := map[string]any{
		"id": offering, "type": selfdescription.TypeClusterMeasurement,
		"window":         map[string]any{"start": w.start.Format(time.RFC3339), "end": end.Format(time.RFC3339)},
		"uptime":         w.api.uptime(),
		"latency":        w.api.latency(r.Measure.Vantage),
		"evidenceDigest": selfdescription.DigestOf(w.evidence()).SRI(),
	}
	if part := w.dataPlane(r.expected(), r.Measure.Vantage); part != nil {
		subject["dataPlane"] = part
	}
	return signer.Credential(selfdescription.Document{ValidFrom: end, ValidUntil: r.ends(w), Subject: subject})
}

// expected returns the number of probes of each kind in a window.
func (r *measurement) expected() float64 {
	return float64(r.Measure.Probes.Window) / float64(r.Measure.Every)
}

// collect removes measurements that have ended; newer ones have replaced them.
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
