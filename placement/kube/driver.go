package kube

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/internal/carried"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Driver delivers instances as namespaces. It keeps no state and is safe for
// concurrent use.
type Driver struct {
	// Connections to the member clusters.
	Connections *member.Connections
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
	// InternetEgress lets pods reach the internet; private, link-local and cluster
	// addresses stay out of reach.
	InternetEgress bool
	// ProbeAddresses are the private addresses that pods of probes may reach beside the internet, as CIDRs: those of the
	// broker.
	ProbeAddresses []string
	// Charts that the hub keeps.
	Charts workload.Charts
	// Patience has the meaning of tenant.Tenant.Patience.
	Patience time.Duration
}

var _ delivery.Driver = (*Driver)(nil)

// target is one instance on one cluster, connected.
type target struct {
	*Driver
	*tenant.Tenant
	of    delivery.Delivery
	hard  corev1.ResourceList
	facts workload.Cluster
	// isNew means that the namespace was created by this call, so that nothing can be in it.
	isNew bool
	// stale is deleted when the workload works, and takes room of the quota until then.
	stale stale
	room  corev1.ResourceList
	// grown is the storage that volumes have beyond the order.
	grown corev1.ResourceList
}

func (d *Driver) target(ctx context.Context, of delivery.Delivery) (*target, error) {
	cluster, err := d.Connections.Cluster(ctx, of.Placement.Cluster)
	if err != nil {
		return nil, err
	}
	connection, err := d.Connections.Open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if err := d.exposeElsewhere(ctx, of.Workload); err != nil {
		return nil, err
	}
	t := tenant.Of(connection, d.Hub, of.Instance)
	t.Patience, t.Agreed = d.Patience, podrules.Annotations(of.Placement.Workloads...)
	if of.State != nil && d.Connections.Keys != nil {
		t.Carried, t.Keys = carried.Of(of.Instance, of.State), d.Connections.Keys
	}
	return &target{
		Driver: d, Tenant: t, of: of,
		hard: quota(of.Placement.Reserved, offeredBy(cluster)), facts: workload.ClusterOf(cluster),
	}, nil
}

// Deliver creates or updates the instance's namespace on the cluster as the placement says, and
// returns once its quota is enforced. It is idempotent. It blocks for a few round trips, or for
// some seconds if the cluster is slow to see new permissions or quotas.
//
// It is refused if the namespace belongs to somebody else, and if more is in use than a smaller plan
// allows; then nothing is changed.
//
// If the instance runs a workload, Deliver returns once that works, see health; or, with data, once the
// hooks have copied it, see copyData.
func (d *Driver) Deliver(ctx context.Context, of delivery.Delivery) error {
	t, err := d.target(ctx, of)
	if err != nil {
		return err
	}
	if err := t.deliver(ctx); err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return t.FormerLife()
		}
		return fmt.Errorf("deliver to %s: %w", t.Connection.Cluster, err)
	}
	t.sayGrown()
	return nil
}

func (t *target) deliver(ctx context.Context) error {
	objects, err := t.render()
	if err != nil {
		return err
	}
	digest, err := t.digest(objects)
	if err != nil {
		return err
	}
	switch {
	case t.of.Data != nil:
	case t.of.Applied == digest:
		if err = t.look(ctx, objects); err == nil {
			return t.asLive(ctx, objects)
		}
		if !apierrors.IsNotFound(err) {
			return applied(err, digest)
		}
	case t.of.Applied == lowered+digest:
		if err = t.end(ctx, objects); !apierrors.IsNotFound(err) {
			return applied(err, lowered+digest)
		}
	}
	return t.apply(ctx, objects, digest)
}

// apply applies everything, and waits for the quota and the workload.
func (t *target) apply(ctx context.Context, objects []*unstructured.Unstructured, digest string) error {
	var err error
	if t.isNew, err = t.Ensure(ctx); err != nil {
		return err
	}
	var before corev1.ResourceQuota
	var known []string
	if !t.isNew {
		group, inner := errgroup.WithContext(ctx)
		group.Go(func() (err error) {
			before, err = t.currentQuota(inner)
			return err
		})
		group.Go(func() (err error) {
			if known, err = t.knownKinds(inner); err != nil {
				return err
			}
			return t.weigh(inner, known, objects)
		})
		if err := group.Wait(); err != nil {
			return err
		}
	}
	if !t.of.Workload.Runs() {
		// First, because it may refuse.
		if err := t.checkUse(before); err != nil {
			return err
		}
		if len(t.stale.kinds()) > 0 {
			digest = ""
		}
		if err := t.fill(ctx, objects, t.hard, known, digest); err != nil || t.of.Preparing || t.of.Data != nil || t.keeps() {
			return err
		}
		return t.dropStale(ctx, objects)
	}
	// Room for the old and the new objects, until the new have replaced the old.
	both := greater(before.Spec.Hard, withRoom(t.hard, t.room))
	if equality.Semantic.DeepEqual(both, t.hard) && t.stale.isEmpty() {
		return t.fill(ctx, objects, both, known, digest)
	}
	if err := t.fill(ctx, objects, both, known, ""); err != nil || t.of.Preparing || t.keeps() {
		return err
	}
	if err := t.enforce(ctx, t.hard); err != nil || t.of.Data != nil {
		return applied(err, lowered+digest)
	}
	return t.dropStale(ctx, objects)
}

// keeps reports, and says, whether what is stale has to stay. Its room in the quota stays, too: else each call would raise
// the quota and lower it again.
func (t *target) keeps() bool {
	keeps := t.of.KeepsVolumes && !t.stale.isEmpty()
	if keeps && t.of.Said != nil {
		t.of.Said.Kept = true
	}
	return keeps
}

// lowered precedes the digest of what is applied once only the quota has to be put in force, without the room for what was
// there before.
const lowered = "lowered "

// end is apply once only that is missing.
func (t *target) end(ctx context.Context, objects []*unstructured.Unstructured) error {
	known, err := t.knownKinds(ctx)
	if err != nil {
		return err
	}
	if err := t.weigh(ctx, known, objects); err != nil {
		return err
	}
	if err := t.look(ctx, objects); err != nil {
		return err
	}
	if err := t.awaitQuota(ctx, t.hard); err != nil || t.keeps() {
		return err
	}
	return t.dropStale(ctx, objects)
}

// fill applies the limits and the objects of the order, and waits until these work; or copies the data of the workload. Known are the kinds that the set may have on the cluster already.
func (t *target) fill(ctx context.Context, objects []*unstructured.Unstructured, hard corev1.ResourceList, known []string, digest string) error {
	if t.of.Data == nil {
		if err := t.run(ctx, objects, hard, known); err != nil || t.of.Preparing {
			return err
		}
		return applied(t.settle(ctx, objects), digest)
	}
	if err := t.enforce(ctx, hard); err != nil {
		return err
	}
	return t.copyData(ctx, objects, known)
}

// enforce applies the limits of the namespace, and returns once the quota is in force.
func (t *target) enforce(ctx context.Context, hard corev1.ResourceList) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.enforceQuota(ctx, hard) })
	group.Go(func() error { return t.applyAll(ctx, t.limits()) })
	return group.Wait()
}

// enforceQuota applies the quota, and returns once it is in force.
func (t *target) enforceQuota(ctx context.Context, hard corev1.ResourceList) error {
	if err := t.ApplyInside(ctx, t.quotaObject(hard)); err != nil {
		return err
	}
	return t.awaitQuota(ctx, hard)
}

// applyAll applies objects in the namespace. They depend only on the self-binding.
func (t *target) applyAll(ctx context.Context, objects []tenant.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, o := range objects {
		group.Go(func() error { return t.ApplyInside(ctx, o) })
	}
	return group.Wait()
}

// limits returns the objects that limit the namespace, except the quota.
func (t *target) limits() []tenant.Object {
	return append(t.networkPolicies(), t.limitRangeObject(t.hard))
}

// Observe compares the cluster with what Deliver would apply, field by field, and
// names the first difference. It writes nothing and blocks for a few round trips.
func (d *Driver) Observe(ctx context.Context, of delivery.Delivery) error {
	t, err := d.target(ctx, of)
	if err != nil {
		return err
	}
	if err := t.Check(ctx); err != nil {
		return fmt.Errorf("observe %s: %w", t.Connection.Cluster, err)
	}
	objects, err := t.renderAsLive(ctx)
	if err != nil {
		return fmt.Errorf("observe %s: %w", t.Connection.Cluster, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, o := range append(t.limits(), t.quotaObject(t.hard)) {
		group.Go(func() error { return t.Compare(ctx, o) })
	}
	group.Go(func() error { return t.checkParent(ctx, objects) })
	group.Go(func() error { return t.observeWorkload(ctx, objects) })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("observe %s: %w", t.Connection.Cluster, err)
	}
	t.sayGrown()
	return nil
}

// Remove deletes the namespace and with it everything of the instance. It never blocks for
// longer than a few round trips: while the cluster still removes the content of the namespace,
// it returns *delivery.PendingError with the cluster's message. It does not touch a namespace
// of somebody else. For a cluster that is no longer in the inventory it returns nil: Sluice
// cannot reach it any more.
func (d *Driver) Remove(ctx context.Context, of delivery.Delivery) error {
	t, err := d.target(ctx, of)
	if member.IsUnknown(err) {
		log.FromContext(ctx).Info("cluster left the inventory; what was delivered to it is left to its operator", "cluster", of.Placement.Cluster)
		return nil
	}
	if err != nil {
		return err
	}
	return t.Tenant.Remove(ctx)
}
