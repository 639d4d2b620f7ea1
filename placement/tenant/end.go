package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/podrules"
)

const (
	// Patience is how long after its deletion a namespace waits for objects that block it,
	// before Sluice removes them by force.
	Patience = 10 * time.Minute
	// shortened is the grace period that Sluice gives pods with more than podrules.MaxGrace.
	shortened = 30 * time.Second
)

// writable are the kinds that consumers write. Their objects may have finalizers that were set
// before there was an admission policy, or on a cluster without one.
var writable = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Service"},
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "batch", Version: "v1", Kind: "CronJob"}, {Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
}

// ofKubernetes are the finalizers that Kubernetes itself sets and removes on those kinds.
var ofKubernetes = []string{
	metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents, "kubernetes.io/pvc-protection",
	"service.kubernetes.io/load-balancer-cleanup", "batch.kubernetes.io/job-tracking",
}

// blocker is an object that may block the deletion of its namespace for longer than Kubernetes
// needs.
type blocker struct {
	client.Object
	what string // "configmap data keeps the finalizers example.com/hold"
}

// blockers lists the objects that block the deletion of the namespace, or would: those with
// finalizers that are not Kubernetes' own, and pods with more than podrules.MaxGrace. It needs Sluice's
// rights there.
func (t *Tenant) blockers(ctx context.Context) ([]blocker, error) {
	found := make([][]blocker, len(writable))
	group, inner := errgroup.WithContext(ctx)
	for i, kind := range writable {
		group.Go(func() error {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err := t.Connection.Client.List(inner, list, client.InNamespace(t.Namespace)); err != nil {
				return fmt.Errorf("list each %s in %s: %w", kind.Kind, t.Namespace, err)
			}
			for j := range list.Items {
				o := &list.Items[j]
				o.SetGroupVersionKind(kind)
				if foreign := foreignFinalizers(o); len(foreign) > 0 {
					found[i] = append(found[i], blocker{o, fmt.Sprintf("%s %s keeps the finalizers %s", strings.ToLower(kind.Kind), o.Name, strings.Join(foreign, ", "))})
				}
			}
			return nil
		})
	}
	pods, err := t.blockingPods(inner)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(append([][]blocker{pods}, found...)...), err
}

func (t *Tenant) blockingPods(ctx context.Context) (found []blocker, err error) {
	var pods corev1.PodList
	if err := t.Connection.Client.List(ctx, &pods, client.InNamespace(t.Namespace)); err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", t.Namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch foreign := foreignFinalizers(pod); {
		case len(foreign) > 0:
			found = append(found, blocker{pod, fmt.Sprintf("pod %s has the finalizers %s", pod.Name, strings.Join(foreign, ", "))})
		case pod.DeletionTimestamp != nil: // the time at which a pod on a node ends
			found = append(found, blocker{pod, fmt.Sprintf("pod %s on node %s terminates until %s", pod.Name, pod.Spec.NodeName, pod.DeletionTimestamp.UTC().Format(time.RFC3339))})
		case graceOf(pod) > podrules.MaxGrace && pod.Spec.NodeName != "":
			found = append(found, blocker{pod, fmt.Sprintf("pod %s takes %s to end", pod.Name, graceOf(pod))})
		}
	}
	return found, nil
}

// graceOf returns the grace period of a pod, or the one given at its deletion.
func graceOf(pod *corev1.Pod) time.Duration {
	seconds := ptr.Deref(pod.DeletionGracePeriodSeconds, ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0))
	return time.Duration(min(seconds, int64(time.Duration(1<<62)/time.Second))) * time.Second
}

func foreignFinalizers(o client.Object) []string {
	return slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return slices.Contains(ofKubernetes, f) })
}

// keepRights keeps Sluice's rights in a namespace that is about to be deleted, if it contains
// an object that would block the deletion. Otherwise the rights would be among the first
// objects to go.
func (t *Tenant) keepRights(ctx context.Context) error {
	found, err := t.blockers(ctx)
	switch {
	case apierrors.IsForbidden(err): // Sluice has no rights, so there is nothing to keep
		log.FromContext(ctx).Info("cannot look for what will keep the namespace", "cluster", t.Connection.Cluster, "namespace", t.Namespace, "reason", err.Error())
		return nil
	case err != nil || len(found) == 0:
		return err
	}
	return t.Apply(ctx, t.selfBinding().WithFinalizers(v1alpha1.Finalizer))
}

// unblock removes the objects that block a namespace's deletion, as far as Sluice still has its
// rights there, and returns those that remain. Pods with too long a grace period get a shorter
// one at once; all others are removed after Patience. If none remains, it gives up Sluice's
// rights.
func (t *Tenant) unblock(ctx context.Context, namespace *corev1.Namespace) ([]blocker, error) {
	kept, err := t.rightsKept(ctx)
	if err != nil {
		return nil, err
	}
	if !kept {
		// Best effort, because some drivers may not read pods. The namespace's conditions have the most
		// important facts.
		found, _ := t.blockingPods(ctx)
		return found, nil
	}
	found, err := t.blockers(ctx)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, t.letRightsGo(ctx)
	}
	patience := t.Patience
	if patience == 0 {
		patience = Patience
	}
	overdue := time.Since(namespace.DeletionTimestamp.Time) > patience
	for i := range found {
		if err := t.unblockOne(ctx, &found[i], overdue); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return found, fmt.Errorf("remove by force what keeps namespace %s: %s: %w", t.Namespace, found[i].what, err)
		}
		if !overdue {
			found[i].what += "; Sluice removes it by force after " + namespace.DeletionTimestamp.Add(patience).UTC().Format(time.RFC3339)
		}
	}
	return found, nil
}

func (t *Tenant) unblockOne(ctx context.Context, b *blocker, overdue bool) error {
	pod, isPod := b.Object.(*corev1.Pod)
	uid := b.GetUID()
	as := client.Preconditions{UID: &uid}
	if isPod && !overdue && graceOf(pod) > podrules.MaxGrace {
		return t.Connection.Client.Delete(ctx, pod, as, client.GracePeriodSeconds(int64(shortened.Seconds())))
	}
	if !overdue {
		return nil
	}
	log.FromContext(ctx).Info("removing by force what keeps a namespace", "cluster", t.Connection.Cluster, "namespace", t.Namespace, "what", b.what)
	if len(b.GetFinalizers()) > 0 {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, uid))
		if err := t.Connection.Client.Patch(ctx, b.Object, patch); err != nil {
			return err
		}
	}
	if !isPod {
		return nil
	}
	return t.Connection.Client.Delete(ctx, pod, as, client.GracePeriodSeconds(0))
}

// rightsKept reports whether keepRights has kept the rights.
func (t *Tenant) rightsKept(ctx context.Context) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBindingList"})
	if err := t.Connection.Client.List(ctx, list, client.InNamespace(t.Namespace), client.MatchingFields{"metadata.name": selfBindingName}); err != nil {
		return false, fmt.Errorf("read Sluice's RoleBinding in %s: %w", t.Namespace, err)
	}
	return len(list.Items) == 1 && slices.Contains(list.Items[0].Finalizers, v1alpha1.Finalizer), nil
}

func (t *Tenant) letRightsGo(ctx context.Context) error {
	binding := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: selfBindingName}}
	binding.SetGroupVersionKind(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"})
	return client.IgnoreNotFound(t.Connection.Client.Patch(ctx, binding, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
}

// remaining describes what blocks a namespace's deletion: its own conditions, and at most three
// of the blocking objects.
func (t *Tenant) remaining(ctx context.Context, namespace *corev1.Namespace) (string, error) {
	var details []string
	found, err := t.unblock(ctx, namespace)
	const shown = 3
	for i, b := range found {
		if i == shown {
			details = append(details, fmt.Sprintf("%d more", len(found)-shown))
			break
		}
		details = append(details, b.what)
	}
	for _, condition := range namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue {
			details = append(details, fmt.Sprintf("%s: %s", condition.Type, condition.Message))
		}
	}
	return strings.Join(details, "; "), err
}
