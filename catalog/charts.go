package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/internal/workload"
)

const (
	// retryCharts is when charts that could not be obtained are asked for again.
	retryCharts = time.Minute
	// unusedFor is how long a chart that nothing uses is kept. Until then every replica has read the
	// catalog without it.
	unusedFor = time.Hour
)

// Archives fetches the archives of charts.
type Archives interface {
	// Archive returns the archive of a chart by the plan's name for it. It may block for a minute.
	Archive(ctx context.Context, name string) ([]byte, error)
}

// offered returns a spec with the parameters that the charts of its workloads describe, and with complete
// add-ons.
func offered(spec *v1alpha1.ServiceOfferingSpec, charts workload.Charts, addOns func(*v1alpha1.ClusterPlan) error) (*v1alpha1.ServiceOfferingSpec, error) {
	spec = spec.DeepCopy()
	for i := range spec.Plans {
		plan := &spec.Plans[i]
		if plan.Cluster != nil && addOns != nil {
			if err := addOns(plan.Cluster); err != nil {
				return nil, fmt.Errorf("plan %s: addOns: %w", plan.Name, err)
			}
		}
		if plan.Workload == nil {
			continue
		}
		w, err := workload.Offered(plan.Workload, charts)
		if err != nil {
			return nil, fmt.Errorf("plan %s: workload: %w", plan.Name, err)
		}
		plan.Workload = w
	}
	return spec, nil
}

// keeper has the charts of the hub, and puts those that are missing there.
type keeper struct {
	*Controller
	ctx context.Context
	// failed reports that a chart could not be obtained.
	failed bool
}

// Chart implements workload.Charts.
func (k *keeper) Chart(of *v1alpha1.WorkloadChart) (*charts.Chart, error) {
	chart, err := k.Charts.Chart(of)
	if apierrors.IsNotFound(err) {
		if err = k.obtain(of); err == nil {
			chart, err = k.Charts.Chart(of)
		}
	}
	if err != nil {
		k.failed = true
		return nil, err
	}
	return chart, nil
}

// obtain puts a chart onto the hub.
func (k *keeper) obtain(of *v1alpha1.WorkloadChart) error {
	archive, err := k.Archives.Archive(k.ctx, of.From)
	if err != nil {
		return err
	}
	if actual := charts.Digest(archive); actual != of.Digest {
		return fmt.Errorf("its digest is %s, the plan names %s", actual, of.Digest)
	}
	if len(archive) > v1alpha1.MostChartBytes {
		return fmt.Errorf("its archive has %d bytes, more than the %d that the hub keeps", len(archive), v1alpha1.MostChartBytes)
	}
	chart, err := charts.Open(archive)
	if err != nil {
		return err
	}
	kept := &v1alpha1.Chart{Spec: v1alpha1.ChartSpec{Chart: chart.Name, Version: chart.Version, Archive: archive}}
	kept.Name, kept.Namespace = v1alpha1.ChartName(of.Digest), k.Namespace
	if err := k.Client.Create(k.ctx, kept); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep it on the hub: %w", err)
	}
	log.FromContext(k.ctx).Info("Kept a chart", "chart", chart.Name, "version", chart.Version, "digest", of.Digest)
	return nil
}

// discardCharts removes the charts that nothing has used for an hour. It returns when to look again;
// 0 if all are in use.
func (c *Controller) discardCharts(ctx context.Context, offerings []v1alpha1.ServiceOffering) (again time.Duration, err error) {
	kept := &metav1.PartialObjectMetadataList{}
	kept.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ChartList"))
	if err := c.Live.List(ctx, kept, client.InNamespace(c.Namespace)); err != nil {
		return 0, fmt.Errorf("list the charts: %w", err)
	}
	used := chartsOf(offerings)
	if slices.ContainsFunc(kept.Items, func(chart metav1.PartialObjectMetadata) bool { return !used[chart.Name] }) {
		if err := c.addRunningCharts(ctx, used); err != nil {
			return 0, err
		}
	}
	var failures []error
	for i := range kept.Items {
		chart := &kept.Items[i]
		since, marked := unusedSince(chart)
		switch {
		case used[chart.Name] && marked:
			err = c.markChart(ctx, chart, nil)
		case used[chart.Name]:
			continue
		case !marked:
			now := c.now().UTC().Format(time.RFC3339)
			err, again = c.markChart(ctx, chart, &now), unusedFor
		case c.now().Sub(since) >= unusedFor:
			log.FromContext(ctx).Info("A chart is gone that nothing used", "digest", chart.Name)
			err = client.IgnoreNotFound(c.Client.Delete(ctx, chart, client.Preconditions{UID: &chart.UID, ResourceVersion: &chart.ResourceVersion}))
		default:
			err, again = nil, unusedFor
		}
		failures = append(failures, err)
	}
	return again, errors.Join(failures...)
}

// unusedSince returns when a chart was marked as unused.
func unusedSince(chart *metav1.PartialObjectMetadata) (since time.Time, marked bool) {
	written, marked := chart.Annotations[v1alpha1.AnnotationUnusedSince]
	since, err := time.Parse(time.RFC3339, written)
	return since, marked && err == nil
}

// markChart writes since when a chart is unused; nil means that it is used.
func (c *Controller) markChart(ctx context.Context, chart *metav1.PartialObjectMetadata, since *string) error {
	before := chart.DeepCopy()
	delete(chart.Annotations, v1alpha1.AnnotationUnusedSince)
	if since != nil {
		metav1.SetMetaDataAnnotation(&chart.ObjectMeta, v1alpha1.AnnotationUnusedSince, *since)
	}
	if err := c.Client.Patch(ctx, chart, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("mark chart %s: %w", chart.Name, err)
	}
	return nil
}

// chartNames is a set of charts, by the names of the objects that keep them.
type chartNames map[string]bool

func (n chartNames) add(w *v1alpha1.WorkloadPlan) {
	if w == nil {
		return
	}
	for _, chart := range w.Charts() {
		n[v1alpha1.ChartName(chart.Digest)] = true
	}
}

// chartsOf returns the charts that offerings use.
func chartsOf(offerings []v1alpha1.ServiceOffering) chartNames {
	used := chartNames{}
	for i := range offerings {
		for _, spec := range []*v1alpha1.ServiceOfferingSpec{&offerings[i].Spec, offerings[i].Status.Accepted} {
			if spec == nil {
				continue
			}
			for k := range spec.Plans {
				used.add(spec.Plans[k].Workload)
			}
		}
	}
	return used
}

// addRunningCharts adds the charts that instances use. It reads them all from the hub.
func (c *Controller) addRunningCharts(ctx context.Context, used chartNames) error {
	err := pages.Each(ctx, c.Live, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		status := &o.(*v1alpha1.ServiceInstance).Status
		if status.Decision != nil {
			used.add(status.Decision.Workload)
		}
		if status.Delivered != nil {
			used.add(status.Delivered.Decision.Workload)
		}
		return nil
	}, client.InNamespace(c.Namespace))
	if err != nil {
		return fmt.Errorf("find the charts in use: %w", err)
	}
	return nil
}
