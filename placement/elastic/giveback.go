package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// idleFor returns how long a cluster has not been used, as far as this process knows.
func (e *Controller) idleFor(cluster string) time.Duration {
	if e.isUsed(cluster) {
		delete(e.idle, cluster)
		return 0
	}
	if _, known := e.idle[cluster]; !known {
		e.idle[cluster] = e.Clock.Now()
	}
	return e.Clock.Since(e.idle[cluster])
}

// silentFor returns how long a cluster that has been made takes no placements, as far as this process knows. is is false
// if it takes them.
func (e *Controller) silentFor(cluster string, member *v1alpha1.MemberCluster) (silence time.Duration, is bool) {
	c := e.Inventory.Snapshot().Cluster(cluster)
	if member != nil && c != nil && c.Ready && c.AccessVerified && len(c.Allocatable) > 0 {
		delete(e.silent, cluster)
		return 0, false
	}
	if _, known := e.silent[cluster]; !known {
		e.silent[cluster] = e.Clock.Now()
	}
	return e.Clock.Since(e.silent[cluster]), true
}

// forget removes what this process knows of a cluster: the next one may have the same name.
func (e *Controller) forget(cluster string) {
	delete(e.idle, cluster)
	delete(e.silent, cluster)
}

// readPeerings finds the clusters that operators keep peered.
func (e *Controller) readPeerings(ctx context.Context) error {
	var peerings v1alpha1.PeeringList
	if err := e.Client.List(ctx, &peerings, client.InNamespace(e.Namespace)); err != nil {
		return fmt.Errorf("list the peerings: %w", err)
	}
	e.peered = map[string]bool{}
	for i := range peerings.Items {
		if spec := &peerings.Items[i].Spec; spec.Kept {
			e.peered[spec.Consumer], e.peered[spec.Provider] = true, true
		}
	}
	return nil
}

// isUsed reports whether an instance is placed on a cluster, beside the probe that measures it, or an operator keeps it
// peered: it could not leave the inventory.
func (e *Controller) isUsed(cluster string) bool {
	if e.peered[cluster] {
		return true
	}
	probe := v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID(cluster))
	return slices.ContainsFunc(e.Inventory.Snapshot().Reservations(cluster), func(r *placement.Reservation) bool { return r.Instance != probe })
}

// giveBack has a cluster deleted. Its member cluster leaves the inventory first, and takes no more
// placements from then on. Only the leader knows that nothing is placed there, and it does not know while removals are held.
func (e *Controller) giveBack(ctx context.Context, instance *v1alpha1.ServiceInstance) error {
	name := v1alpha1.InstanceClusterName(instance.Name)
	if e.Hold != nil {
		if err := e.Hold(ctx); err != nil {
			return fmt.Errorf("give back cluster %s: %w", name, err)
		}
	}
	if e.Leadership != nil {
		if err := e.Leadership.Confirm(ctx); err != nil {
			return err
		}
	}
	log.FromContext(ctx).Info("Giving a cluster back", "cluster", name)
	e.forget(name)
	err := e.Client.Delete(ctx, instance, client.Preconditions{UID: ptr.To(instance.UID)}) // not a new one of the same name
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("give back cluster %s: %w", name, err)
	}
	return nil
}

// seeToOrphans gives back the clusters of policies that make clusters no more, as soon as nothing is
// placed on them.
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
		if member := has.member(instance); member == nil || !e.isUsed(member.Name) {
			problems = append(problems, e.giveBack(ctx, instance))
		}
	}
	return errors.Join(problems...)
}
