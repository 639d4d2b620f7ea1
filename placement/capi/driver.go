package capi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Driver creates clusters. It keeps no state and is safe for concurrent use.
type Driver struct {
	// Connections to the management clusters.
	Connections *member.Connections
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
	// Charts of add-ons; nil means none.
	Charts *store.Store
	// Members takes clusters into the inventory; nil means that none joins.
	Members Members
}

// Members takes the clusters that the driver creates into the inventory, and out again. Each method is
// idempotent and resumable.
type Members interface {
	// Join makes the cluster of an instance the member cluster that its shape describes, or none. It
	// returns *delivery.PendingError until the member cluster is ready, or has left.
	Join(ctx context.Context, management string, instance *v1alpha1.ServiceInstance, shape *v1alpha1.ClusterShape) error
	// Joined returns nil if Join has nothing to change. It writes nothing.
	Joined(ctx context.Context, instance *v1alpha1.ServiceInstance, shape *v1alpha1.ClusterShape) error
	// Leave takes the cluster of an instance out of the inventory. It takes no more placements then. It
	// returns *delivery.PendingError while anything is delivered to it, or it is peered.
	Leave(ctx context.Context, instance *v1alpha1.ServiceInstance) error
}

var (
	_ delivery.Driver = (*Driver)(nil)
	_ delivery.Leaver = (*Driver)(nil)
)

// Deliver creates or updates the Cluster on the management cluster as the placement says, and
// returns nil once it is complete, and a member cluster if it is to become one. Until then it returns *delivery.PendingError with its
// progress. It is refused if the class does not exist, and if Cluster API rejects the topology;
// an existing Cluster is not changed then.
func (d *Driver) Deliver(ctx context.Context, delivery delivery.Delivery) error {
	t, err := tenant.Open(ctx, d.Connections, d.Hub, delivery.Placement.Cluster, delivery.Instance)
	if err != nil {
		return err
	}
	err = d.deliver(ctx, t, delivery.Placement.Shape)
	if err == nil && d.Members != nil {
		err = d.Members.Join(ctx, t.Connection.Cluster, t.Instance, delivery.Placement.Shape)
	}
	if err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return t.FormerLife()
		}
		return fmt.Errorf("deliver to %s: %w", t.Connection.Cluster, err)
	}
	return nil
}

func (d *Driver) deliver(ctx context.Context, t *tenant.Tenant, shape *v1alpha1.ClusterShape) error {
	made, readErr := read(ctx, t)
	if readErr == nil {
		shape = notLowered(t.Instance, made, shape)
	}
	want, err := clusterOf(t, shape)
	if err != nil {
		return err
	}
	// While the cluster is being created, one read a check is enough.
	if readErr == nil && asApplied(made, want) {
		if waits := d.complete(ctx, t, made, shape); waits != nil {
			return waits
		}
	}
	if err := checkClass(ctx, t, shape); err != nil {
		return err
	}
	if _, err := t.Ensure(ctx); err != nil {
		return err
	}
	err = t.ApplyInside(ctx, tenant.FromUnstructured(want))
	if err != nil {
		return refusal(err)
	}
	if made, err = read(ctx, t); err != nil {
		return err
	}
	return d.complete(ctx, t, made, shape)
}

// notLowered returns the shape with the version that the cluster has by now, if that is higher
// and the delivery is of the instance's previous state. An upgrade that failed cannot be
// reverted, because Cluster API refuses it, so the version reached is kept. An order for a
// lower version is refused.
func notLowered(instance *v1alpha1.ServiceInstance, made *clusterv1.Cluster, shape *v1alpha1.ClusterShape) *v1alpha1.ClusterShape {
	before := instance.Status.Delivered
	if before == nil || len(before.Decision.Placements) == 0 || !equality.Semantic.DeepEqual(before.Decision.Placements[0].Shape, shape) {
		return shape
	}
	has, err := version.ParseSemantic(made.Spec.Topology.Version)
	if err != nil || !has.GreaterThan(version.MustParseSemantic(shape.Version)) {
		return shape
	}
	kept := shape.DeepCopy()
	kept.Version = made.Spec.Topology.Version
	return kept
}

// complete installs the add-ons as soon as the cluster answers, because its machines may need
// them to become ready (a network, for instance). It returns nil once everything is ready.
func (d *Driver) complete(ctx context.Context, t *tenant.Tenant, made *clusterv1.Cluster, shape *v1alpha1.ClusterShape) error {
	waits := progress(made, shape)
	if len(shape.AddOns) == 0 && waits != nil || !meta.IsStatusConditionTrue(made.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition) {
		return waits
	}
	err := d.installAddOns(ctx, t, shape.AddOns)
	pending := (*delivery.PendingError)(nil)
	switch {
	case waits == nil, err != nil && !errors.As(err, &pending):
		return err
	case err != nil:
		return &delivery.PendingError{Step: pending.Step, Detail: pending.Detail + "; " + waits.Error(), Every: often}
	}
	return waits
}

// asApplied reports whether the last apply of a Cluster was the one that is wanted now. It does
// not detect changes by others since then.
func asApplied(made *clusterv1.Cluster, want *unstructured.Unstructured) bool {
	return made.DeletionTimestamp.IsZero() && made.Annotations[annotationApplied] == want.GetAnnotations()[annotationApplied]
}

// refusal converts a rejection by Cluster API's webhooks to *delivery.RefusedError.
func refusal(err error) error {
	byWebhook := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "admission webhook")
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || byWebhook {
		return &delivery.RefusedError{
			Reason: err.Error(), Remedy: "change the parameters to values that the class allows",
			Consumer: "the plan's clusters cannot have these parameters: change them",
		}
	}
	return err
}

// checkClass refuses a class that does not exist, and waits for one that Cluster API has not
// read yet. With either, Cluster API would accept a Cluster and leave it waiting.
func checkClass(ctx context.Context, t *tenant.Tenant, shape *v1alpha1.ClusterShape) error {
	class := &clusterv1.ClusterClass{}
	key := client.ObjectKey{Namespace: shape.ClassNamespace, Name: shape.Class}
	err := get(ctx, t.Connection.Client, "ClusterClass", key, class)
	switch {
	case meta.IsNoMatchError(err):
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("%s does not serve the kind ClusterClass", t.Connection.Cluster),
			Remedy: "its operator has to install Cluster API, with the feature gate ClusterTopology",
		}
	case apierrors.IsNotFound(err):
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("ClusterClass %s is not on %s", key, t.Connection.Cluster),
			Remedy: "its operator has to create it, or the plan name another",
		}
	case err != nil:
		return fmt.Errorf("read ClusterClass %s: %w", key, err)
	}
	for _, condition := range []string{clusterv1.ClusterClassVariablesReadyCondition, clusterv1.ClusterClassRefVersionsUpToDateCondition} {
		c := meta.FindStatusCondition(class.Status.Conditions, condition)
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != class.Generation {
			waits := &delivery.PendingError{Step: fmt.Sprintf("read ClusterClass %s on %s", key, t.Connection.Cluster), Detail: condition + " is not true"}
			if c != nil && c.Message != "" {
				waits.Detail += ": " + c.Message
			}
			return waits
		}
	}
	return nil
}

// Observe returns nil while the Cluster is as it was delivered, all its parts are available, and it is
// the member cluster that it is to be.
func (d *Driver) Observe(ctx context.Context, delivery delivery.Delivery) error {
	t, err := tenant.Open(ctx, d.Connections, d.Hub, delivery.Placement.Cluster, delivery.Instance)
	if err != nil {
		return err
	}
	err = d.observe(ctx, t, delivery.Placement.Shape)
	if err == nil && d.Members != nil {
		err = d.Members.Joined(ctx, t.Instance, delivery.Placement.Shape)
	}
	if err != nil {
		return fmt.Errorf("observe %s: %w", t.Connection.Cluster, err)
	}
	return nil
}

func (d *Driver) observe(ctx context.Context, t *tenant.Tenant, shape *v1alpha1.ClusterShape) error {
	if err := t.Check(ctx); err != nil {
		return err
	}
	made, err := read(ctx, t)
	if err != nil {
		return err
	}
	want, err := clusterOf(t, notLowered(t.Instance, made, shape))
	if err != nil {
		return err
	}
	if _, err := t.LiveAsWanted(ctx, want); err != nil {
		return err
	}
	if failing := unavailable(made); failing != "" {
		return fmt.Errorf("cluster %s: %s", made.Name, complaint(made, failing))
	}
	if len(shape.AddOns) == 0 {
		return nil
	}
	return d.observeAddOns(ctx, t, shape.AddOns)
}

// Remove takes the cluster out of the inventory, deletes the Cluster, waits until Cluster API has
// released all of its infrastructure, and then deletes the namespace. It does not touch a namespace of
// somebody else.
func (d *Driver) Remove(ctx context.Context, delivery delivery.Delivery) error {
	if err := d.Leave(ctx, delivery.Instance); err != nil {
		return err
	}
	t, err := tenant.Open(ctx, d.Connections, d.Hub, delivery.Placement.Cluster, delivery.Instance)
	if err != nil {
		return err
	}
	standing, err := t.Standing(ctx)
	if err != nil || standing == tenant.Gone {
		return err
	}
	// Its credentials are not needed any more: remove them from memory.
	d.Connections.ForgetInstance(delivery.Placement.Cluster, delivery.Instance.Name)
	if standing == tenant.Held {
		if err := removeCluster(ctx, t); err != nil {
			return err
		}
	}
	return t.Remove(ctx)
}

// Leave implements delivery.Leaver.
func (d *Driver) Leave(ctx context.Context, instance *v1alpha1.ServiceInstance) error {
	if d.Members == nil {
		return nil
	}
	return d.Members.Leave(ctx, instance)
}

func removeCluster(ctx context.Context, t *tenant.Tenant) error {
	made, err := read(ctx, t)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil
	case apierrors.IsForbidden(err):
		// The process was killed before Sluice had its rights there: nothing was created.
		if _, err := t.Ensure(ctx); err != nil {
			return err
		}
		return &delivery.PendingError{Step: "read what " + t.Connection.Cluster + " has made"}
	case err != nil:
		return fmt.Errorf("remove from %s: %w", t.Connection.Cluster, err)
	}
	pending := &delivery.PendingError{Step: fmt.Sprintf("delete cluster %s on %s", made.Name, t.Connection.Cluster), Every: often}
	if made.DeletionTimestamp.IsZero() {
		// The resource version is no precondition: Cluster API changes the object all the time
		// while it is created.
		err := t.Connection.Client.Delete(ctx, reference(t, made), client.Preconditions{UID: &made.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove from %s: delete cluster %s: %w", t.Connection.Cluster, made.Name, err)
		}
		return pending
	}
	pending.Detail = complaint(made, clusterv1.ClusterDeletingCondition)
	return pending
}

func reference(t *tenant.Tenant, made *clusterv1.Cluster) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	o.SetNamespace(t.Namespace)
	o.SetName(made.Name)
	return o
}

// read returns the instance's Cluster.
func read(ctx context.Context, t *tenant.Tenant) (*clusterv1.Cluster, error) {
	made := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: t.Namespace, Name: v1alpha1.InstanceClusterName(t.Instance.Name)}
	return made, get(ctx, t.Connection.Client, "Cluster", key, made)
}

// get reads an object of Cluster API with a client whose scheme lacks its type.
func get(ctx context.Context, c client.Client, kind string, key client.ObjectKey, into any) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(kind))
	if err := c.Get(ctx, key, o); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
}
