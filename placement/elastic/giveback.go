package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// idleFor returns how long nothing has been placed on a cluster, as far as this process knows.
func (e *Controller) idleFor(cluster string) time.Duration {
	if len(e.Inventory.Snapshot().Reservations(cluster)) > 0 {
		delete(e.idle, cluster)
		return 0
	}
	if _, known := e.idle[cluster]; !known {
		e.idle[cluster] = e.Clock.Now()
	}
	return e.Clock.Since(e.idle[cluster])
}

// retire records that the cluster is to be given back, before anything else is done. Only the
// leader knows that nothing is placed there.
func (e *Controller) retire(ctx context.Context, instance *v1alpha1.ServiceInstance) error {
	if e.Leadership != nil {
		if err := e.Leadership.Confirm(ctx); err != nil {
			return err
		}
	}
	log.FromContext(ctx).Info("Giving a cluster back", "cluster", v1alpha1.InstanceClusterName(instance.Name))
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationRetired))
	err := e.Client.Patch(ctx, instance, patch)
	return client.IgnoreNotFound(err)
}

// giveBack removes the cluster from the inventory, which waits until nothing is placed there
// any more, and then deletes it.
func (e *Controller) giveBack(ctx context.Context, instance *v1alpha1.ServiceInstance, member *v1alpha1.MemberCluster) error {
	var object client.Object = instance
	if member != nil {
		object = member
		delete(e.idle, member.Name)
	}
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := e.Client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())}) // not a new one of the same name
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("give back cluster %s: %w", v1alpha1.InstanceClusterName(instance.Name), err)
	}
	return nil
}

// seeToOrphans retires the clusters of policies that make clusters no more, as soon as nothing
// is placed on them.
func (e *Controller) seeToOrphans(ctx context.Context, policies []*placement.Policy) error {
	has, err := e.fleet(ctx, e.of(""))
	if err != nil {
		return err
	}
	var problems []error
	for i := range has.instances {
		instance := &has.instances[i]
		of := instance.Labels[v1alpha1.LabelElastic]
		if !instance.DeletionTimestamp.IsZero() || slices.ContainsFunc(policies, func(p *placement.Policy) bool { return p.Name == of }) {
			continue
		}
		member := has.member(instance)
		switch {
		case instance.Annotations[v1alpha1.AnnotationRetired] != "":
			problems = append(problems, e.giveBack(ctx, instance, member))
		case member == nil || len(e.Inventory.Snapshot().Reservations(member.Name)) == 0:
			problems = append(problems, e.retire(ctx, instance))
		}
	}
	return errors.Join(problems...)
}
