package main

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement/replay"
)

// supposer plays drains and losses of clusters for the market. Its reader is the cache, which every replica has.
type supposer struct {
	hub       client.Reader
	namespace string
	catalog   *catalog.Catalog
}

// moves returns what would happen to the instances on a cluster if it were drained, or lost.
func (d supposer) moves(ctx context.Context, cluster string, lost bool) ([]market.Move, error) {
	var clusters v1alpha1.MemberClusterList
	var instances v1alpha1.ServiceInstanceList
	var policies v1alpha1.PlacementPolicyList
	var consumers v1alpha1.ConsumerList
	if err := errors.Join(
		listCached(ctx, d.hub, d.namespace, &clusters), listCached(ctx, d.hub, d.namespace, &instances),
		listCached(ctx, d.hub, d.namespace, &policies), listCached(ctx, d.hub, d.namespace, &consumers),
	); err != nil {
		return nil, err
	}
	fleet := replay.Fleet{Clusters: clusters.Items, Instances: instances.Items, Policies: policies.Items, Consumers: consumers.Items}
	leave := fleet.Drain
	if lost {
		leave = fleet.Lose
	}
	moves, err := leave(d.catalog.Snapshot(), cluster, time.Now())
	if err != nil {
		return nil, err
	}
	told := make([]market.Move, len(moves))
	for i, m := range moves {
		told[i] = market.Move(m)
	}
	return told, nil
}
