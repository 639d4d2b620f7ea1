package replay

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/placement"
)

// Fill puts what the hub's statuses say into an inventory, or returns an error and leaves it as
// it is. The reader must be live, not a cache that may lag behind.
func Fill(ctx context.Context, reader client.Reader, namespace string, inventory *placement.Inventory, now time.Time) error {
	var policies []v1alpha1.PlacementPolicy
	var consumers []v1alpha1.Consumer
	var clusters []*placement.Cluster
	var held []placement.Holding
	err := errors.Join(
		pages.Each(ctx, reader, &v1alpha1.PlacementPolicyList{}, func(o client.Object) error {
			policies = append(policies, *o.(*v1alpha1.PlacementPolicy))
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.ConsumerList{}, func(o client.Object) error {
			consumers = append(consumers, *o.(*v1alpha1.Consumer))
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.MemberClusterList{}, func(o client.Object) error {
			clusters = append(clusters, placement.ClusterOf(o.(*v1alpha1.MemberCluster), now))
			return nil
		}, client.InNamespace(namespace)),
		pages.Each(ctx, reader, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
			held = append(held, placement.HoldingOf(o.(*v1alpha1.ServiceInstance)))
			return nil
		}, client.InNamespace(namespace)),
	)
	if err != nil {
		return err
	}
	// Last, so that instances deleted between a failed attempt and its repetition hold nothing.
	inventory.SetPolicies(placement.CompilePolicies(policies))
	inventory.SetProofs(placement.ProofsOf(consumers, now))
	for _, c := range clusters {
		inventory.UpsertCluster(c)
	}
	inventory.ReserveAll(held)
	return nil
}
