package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
)

const (
	// readPatience limits how long it takes to read a chart from the hub.
	readPatience = 10 * time.Second
	// mostOpen is the number of charts that are held in memory.
	mostOpen = 64
)

// Hub has the charts that the hub keeps. It is safe for concurrent use.
type Hub struct {
	// Reader reads from the hub without a cache: archives are large, and never change.
	Reader client.Reader
	// Namespace of the hub that holds the resources.
	Namespace string

	once sync.Once
	open *lru.Cache[string, *charts.Chart]
}

// Chart returns the chart of a component. It blocks for a round trip, ten seconds at most, unless the
// chart was used before. The error satisfies apierrors.IsNotFound if the hub does not keep the chart.
func (h *Hub) Chart(of *v1alpha1.WorkloadChart) (*charts.Chart, error) {
	h.once.Do(func() { h.open, _ = lru.New[string, *charts.Chart](mostOpen) }) // the size is positive
	if chart, ok := h.open.Get(of.Digest); ok {
		return chart, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), readPatience)
	defer cancel()
	var kept v1alpha1.Chart
	err := h.Reader.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: v1alpha1.ChartName(of.Digest)}, &kept)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the hub does not keep %s: %w", of.Digest, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s from the hub: %w", of.Digest, err)
	}
	chart, err := Open(&kept)
	if err != nil {
		return nil, err
	}
	h.open.Add(of.Digest, chart)
	return chart, nil
}

// Open reads a chart that the hub keeps. It refuses an archive that is not the one that the name says:
// who may write to the hub's charts may not choose what plans run.
func Open(kept *v1alpha1.Chart) (*charts.Chart, error) {
	if actual := charts.Digest(kept.Spec.Archive); actual != kept.Digest() {
		return nil, fmt.Errorf("the archive of Chart %s has the digest %s: delete the Chart, and Sluice obtains it anew", kept.Name, actual)
	}
	return charts.Open(kept.Spec.Archive)
}
