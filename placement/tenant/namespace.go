package tenant

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// ensureNamespace creates the namespace, or updates Sluice's own. It creates rather than
// applies, because an apply would take over a namespace that somebody else has made in the
// meantime. A namespace with this instance's labels belongs to the instance, even if an earlier
// instance of the same name left it, which can happen only if a finalizer was removed by force.
// Its content belongs to the same consumer, so Sluice does not delete it.
func (t *Tenant) ensureNamespace(ctx context.Context) (created bool, err error) {
	annotations, err := t.annotationsWithOrder("")
	if err != nil {
		return false, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: t.Namespace, Labels: t.namespaceLabels(), Annotations: maps.Clone(annotations),
	}}
	maps.DeleteFunc(namespace.Annotations, func(name, _ string) bool {
		_, is := t.Agreed[name]
		return is
	})
	err = t.Connection.Client.Create(ctx, namespace, client.FieldOwner(v1alpha1.FieldManager))
	if err == nil && len(t.Agreed) > 0 {
		// By an apply, so that a later apply without a rule removes it.
		err = t.Apply(ctx, t.namespaceObject().WithUID(namespace.UID).WithAnnotations(annotations))
		return err == nil, err
	}
	if err == nil {
		return true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create namespace %s: %w", t.Namespace, err)
	}
	err = t.Connection.Client.Get(ctx, client.ObjectKey{Name: t.Namespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return false, t.FormerLife() // gone between the two requests
	case err != nil:
		return false, fmt.Errorf("read namespace %s: %w", t.Namespace, err)
	case !t.owns(namespace):
		return false, t.foreign()
	case !namespace.DeletionTimestamp.IsZero():
		return false, t.FormerLife()
	}
	if annotations, err = t.annotationsWithOrder(namespace.Annotations[v1alpha1.AnnotationOrder]); err != nil {
		return false, err
	}
	// With its UID, so that a namespace that was replaced in the meantime causes a conflict.
	if err := t.Apply(ctx, t.namespaceObject().WithUID(namespace.UID).WithAnnotations(annotations)); err != nil {
		return false, err
	}
	return false, nil
}

// FormerLife returns the error for waiting until a namespace of the same name is gone.
func (t *Tenant) FormerLife() error {
	return &delivery.PendingError{
		Step:   "create namespace " + t.Namespace + " on " + t.Connection.Cluster,
		Detail: "the one before it is still being deleted",
	}
}

// owns reports whether a namespace belongs to this instance, by its labels.
func (t *Tenant) owns(namespace *corev1.Namespace) bool {
	return namespace.Labels[v1alpha1.LabelHub] == t.Hub && namespace.Labels[v1alpha1.LabelInstance] == t.Instance.Name
}

func (t *Tenant) foreign() error {
	return &delivery.RefusedError{
		Reason: fmt.Sprintf("namespace %s on %s does not carry this instance's labels", t.Namespace, t.Connection.Cluster),
		Remedy: "its owner has to remove it, as Sluice touches only what is its own",
	}
}

// removalCheck is the shortest time between two looks at a namespace that is being deleted: Kubernetes
// begins after five seconds, and its end triggers a look.
const removalCheck = 5 * time.Second

// Remove deletes the namespace if it belongs to the instance, and with it everything in it.
// While anything remains it returns *delivery.PendingError with the cluster's message. After
// Patience it removes by force what blocks the deletion.
func (t *Tenant) Remove(ctx context.Context) error {
	var namespace corev1.Namespace
	err := t.Connection.Client.Get(ctx, client.ObjectKey{Name: t.Namespace}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("remove from %s: read namespace %s: %w", t.Connection.Cluster, t.Namespace, err)
	case !t.owns(&namespace):
		return nil
	}
	pending := &delivery.PendingError{Step: "delete namespace " + t.Namespace + " on " + t.Connection.Cluster, NotBefore: removalCheck}
	if namespace.DeletionTimestamp.IsZero() {
		if err := t.keepRights(ctx); err != nil {
			return fmt.Errorf("remove from %s: %w", t.Connection.Cluster, err)
		}
		err := DeleteAsSeen(ctx, t.Connection.Client, &namespace)
		if err != nil {
			return fmt.Errorf("remove from %s: delete namespace %s: %w", t.Connection.Cluster, t.Namespace, err)
		}
		t.endPods(ctx)
		return pending
	}
	t.endPods(ctx) // again: Sluice may have been killed since it deleted the namespace
	if pending.Detail, err = t.remaining(ctx, &namespace); err != nil {
		return fmt.Errorf("remove from %s: %w", t.Connection.Cluster, err)
	}
	pending.Consumer = "waiting for what is left in the instance's namespace: " + pending.Detail
	return pending
}

// endPods deletes the pods in a namespace that is being deleted. Kubernetes does so too, but begins only
// after five seconds, and makes no new ones there. It needs Sluice's rights, which go with the namespace's
// content.
func (t *Tenant) endPods(ctx context.Context) {
	err := t.Connection.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(t.Namespace))
	if err != nil {
		log.FromContext(ctx).V(1).Info("cannot end the pods at once", "cluster", t.Connection.Cluster, "namespace", t.Namespace, "reason", err.Error())
	}
}

// DeleteAsSeen deletes exactly the object that was read. If there is another one of its name,
// or it has changed since, the result is a conflict. If it is gone, that is no error.
func DeleteAsSeen(ctx context.Context, c client.Client, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}
