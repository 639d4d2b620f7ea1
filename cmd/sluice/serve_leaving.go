package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement/replay"
)

// supposer answers the market's questions about what would be, by the engine: who moves when a cluster is drained or lost,
// and what a policy of a provider or a platform changes. Its reader is the cache, which every replica has.
type supposer struct {
	hub       client.Reader
	namespace string
	catalog   *catalog.Catalog
}

// leavingTime limits how long the departure from a cluster is played for one answer. It is less than the console waits.
const leavingTime = 10 * time.Second

// moves returns what would happen to the instances on a cluster if it were drained, or lost, and how many of them there was
// no time for.
func (d supposer) moves(ctx context.Context, cluster string, lost bool) (told []market.Move, untried int, err error) {
	ctx, cancel := context.WithTimeout(ctx, leavingTime)
	defer cancel()
	var clusters v1alpha1.MemberClusterList
	var instances v1alpha1.ServiceInstanceList
	var policies v1alpha1.PlacementPolicyList
	var consumers v1alpha1.ConsumerList
	if err := errors.Join(
		listCached(ctx, d.hub, d.namespace, &clusters), listCached(ctx, d.hub, d.namespace, &instances),
		listCached(ctx, d.hub, d.namespace, &policies), listCached(ctx, d.hub, d.namespace, &consumers),
	); err != nil {
		return nil, 0, err
	}
	fleet := replay.Fleet{Clusters: clusters.Items, Instances: instances.Items, Policies: policies.Items, Consumers: consumers.Items}
	moves, untried, err := fleet.Leave(ctx, d.catalog.Snapshot(), cluster, lost, time.Now())
	switch {
	case errors.Is(err, replay.ErrNoCluster):
		return nil, 0, &market.Error{Status: http.StatusNotFound, Code: "NotFound", Description: fmt.Sprintf(
			"This replica of Sluice has not read the cluster %s yet. If it was just added, ask again in a second.", cluster)}
	case err != nil:
		return nil, 0, err
	}
	told = make([]market.Move, len(moves))
	for i, m := range moves {
		told[i] = market.Move(m)
	}
	return told, untried, nil
}
