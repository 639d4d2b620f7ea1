package bindings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// A hook of a workload is a Job in the instance's namespace, named after the binding. It stays until
// the bind has succeeded, so that it is not repeated while the bind waits for something else, and is
// found again after a restart, with its results. What it needs belongs to the Job, which is made first, suspended: so
// nothing is left when the Job is gone, wherever Sluice was killed.

// hook is a hook of one binding on one cluster.
type hook struct {
	kind      workload.HookKind
	order     *workload.Order
	client    client.Client
	namespace string
	labels    map[string]string
	starting  *sync.Map // the namespaces in which a hook is being started
}

func (c *Controller) hook(ctx context.Context, kind workload.HookKind, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, cluster string) (*hook, error) {
	a, err := c.account(ctx, b, instance, cluster)
	if err != nil {
		return nil, err
	}
	order, err := c.order(b, instance)
	if err != nil {
		return nil, err
	}
	return &hook{kind: kind, order: order, client: a.client, namespace: a.namespace, labels: a.labels(), starting: &c.hooksStarting}, nil
}

// waitForHook returns the error for a hook that has not ended yet.
func waitForHook(kind workload.HookKind) error {
	return &pendingError{fmt.Sprintf("waiting for the %s hook", kind), hookCheck}
}

// hookError means that a hook has failed.
type hookError struct {
	kind workload.HookKind
	// reason is for end users; detail, without secrets, for operators.
	reason, detail string
}

func (e *hookError) Error() string {
	if e.detail == "" {
		return e.public()
	}
	return e.public() + ": " + e.detail
}

func (e *hookError) public() string { return fmt.Sprintf("the %s hook failed: %s", e.kind, e.reason) }

// run starts the hook unless it has been, and returns its results once it has ended well. Until then the
// error is a *pendingError. After a failure, which it returns as *hookError, nothing of the hook
// remains.
func (h *hook) run(ctx context.Context) (results map[string]string, err error) {
	job := &batchv1.Job{}
	err = h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: h.order.HookName(h.kind)}, job)
	switch {
	case apierrors.IsNotFound(err):
		err = h.start(ctx)
	case err != nil:
		err = fmt.Errorf("read the %s hook: %w", h.kind, err)
	case !job.DeletionTimestamp.IsZero(): // of an earlier failure
	case ptr.Deref(job.Spec.Suspend, false): // Sluice was killed while it started it
		_, err = h.end(ctx)
	default:
		switch ended := workload.HookEnd(job); {
		case ended == nil:
		case ended.Type == batchv1.JobFailed:
			err = h.failure(ctx, job)
		default:
			if results, err = h.results(ctx); err == nil {
				return results, nil
			}
		}
	}
	if failed := (*hookError)(nil); errors.As(err, &failed) {
		if _, ending := h.end(ctx); ending != nil {
			return nil, ending
		}
	}
	if err == nil {
		err = waitForHook(h.kind)
	}
	return nil, err
}

// start applies the hook's objects: the Job, suspended, then what its pod needs, which belongs to the
// Job; and lets it run. It does nothing while another hook runs.
func (h *hook) start(ctx context.Context) error {
	if _, starts := h.starting.LoadOrStore(h.namespace, nil); starts {
		return nil
	}
	defer h.starting.Delete(h.namespace)
	if busy, err := h.isBusy(ctx); busy || err != nil {
		return err
	}
	var api workload.APIServer
	if h.returns() {
		var err error
		if api, err = h.apiServer(ctx); err != nil {
			return err
		}
	}
	objects, err := h.order.Hook(h.kind, h.namespace, api)
	if err != nil {
		return err
	}
	job := objects[len(objects)-1]
	if err := h.apply(ctx, suspended(job, true)); err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: job.GetName(), UID: job.GetUID(), BlockOwnerDeletion: ptr.To(false)}
	for _, o := range objects[:len(objects)-1] {
		o.SetOwnerReferences([]metav1.OwnerReference{owner})
		if err := h.apply(ctx, o); err != nil {
			return err
		}
	}
	if h.returns() {
		if err := h.awaitRight(ctx); err != nil {
			return err
		}
	}
	return h.apply(ctx, suspended(job, false))
}

// isBusy reports whether another hook runs in the namespace, whose quota has room for one. Its deadline would pass while it
// waits for that room.
func (h *hook) isBusy(ctx context.Context) (bool, error) {
	var jobs batchv1.JobList
	if err := h.client.List(ctx, &jobs, client.InNamespace(h.namespace), client.HasLabels{v1alpha1.LabelBinding}); err != nil {
		return false, fmt.Errorf("list the hooks: %w", err)
	}
	return slices.ContainsFunc(jobs.Items, func(job batchv1.Job) bool {
		return job.Name != h.order.HookName(h.kind) && !ptr.Deref(job.Spec.Suspend, false) && workload.HookEnd(&job) == nil
	}), nil
}

// apply applies one object. Only the UID of the answer is kept.
func (h *hook) apply(ctx context.Context, o *unstructured.Unstructured) error {
	answer := o.DeepCopy()
	labels := answer.GetLabels()
	for name, value := range h.labels {
		labels[name] = value
	}
	answer.SetLabels(labels)
	answer.SetUID("")
	err := h.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(answer), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s of the %s hook: %w", o.GetKind(), o.GetName(), h.kind, err)
	}
	o.SetUID(answer.GetUID())
	return nil
}

// end deletes the hook, and reports whether nothing of it runs any more.
func (h *hook) end(ctx context.Context) (gone bool, err error) {
	// The Job first, as a hook that has ended well is asked for its results; in the foreground, so that it
	// is gone only after its pod.
	meta := metav1.ObjectMeta{Namespace: h.namespace, Name: h.order.HookName(h.kind)}
	err = h.client.Delete(ctx, &batchv1.Job{ObjectMeta: meta}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	gone = apierrors.IsNotFound(err)
	if err != nil && !gone {
		return false, fmt.Errorf("delete the %s hook: %w", h.kind, err)
	}
	// The rest goes with the Job, but secrets do not stay for that long.
	secrets := []string{meta.Name}
	if h.returns() {
		secrets = append(secrets, h.order.ResultsName())
	}
	for _, name := range secrets {
		err := h.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("delete the Secret %s of the %s hook: %w", name, h.kind, err)
		}
	}
	return gone, nil
}

// failure returns why a hook failed, as *hookError.
func (h *hook) failure(ctx context.Context, job *batchv1.Job) error {
	var pods corev1.PodList
	if err := h.client.List(ctx, &pods, client.InNamespace(h.namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return fmt.Errorf("list the pods of the %s hook: %w", h.kind, err)
	}
	failed := &hookError{kind: h.kind}
	failed.reason, failed.detail = h.order.HookFailure(job, pods.Items)
	return failed
}

// runsHooks reports whether hooks run on a cluster: those of a workload over several clusters run only
// beside its first component.
func runsHooks(instance *v1alpha1.ServiceInstance, cluster string) bool {
	for _, p := range placementsOf(instance) {
		if p.Cluster == cluster {
			return p.Runs(workloadOf(instance).Components[0].Name)
		}
	}
	return true
}

// bindHook runs the bind hook on a cluster, if there is one, and returns its results; nil if it has none.
func (c *Controller) bindHook(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, cluster string) (map[string]string, error) {
	if w := workloadOf(instance); w == nil || w.Bindings == nil || w.Bindings.Bind == nil || !runsHooks(instance, cluster) {
		return nil, nil
	}
	h, err := c.hook(ctx, workload.HookBind, b, instance, cluster)
	if err != nil {
		return nil, err
	}
	c.hooksEnded.Delete(b.UID)
	return h.run(ctx)
}

// endBindHooks deletes the bind hooks of a binding that has succeeded, once for each process and bind. What
// cannot be deleted now is tried again when the binding is looked at next.
func (c *Controller) endBindHooks(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) {
	w := workloadOf(instance)
	if _, ended := c.hooksEnded.Load(b.UID); ended || w == nil || w.Bindings == nil || w.Bindings.Bind == nil {
		return
	}
	for _, cluster := range clustersOf(instance) {
		h, err := c.hook(ctx, workload.HookBind, b, instance, cluster)
		if err == nil {
			_, err = h.end(ctx)
		}
		if err != nil {
			log.FromContext(ctx).Info("the bind hook is not deleted yet", "binding", b.Name, "cluster", cluster, "reason", err.Error())
			return
		}
	}
	c.hooksEnded.Store(b.UID, nil)
}

// unbindHook runs the unbind hook on a cluster, if there is one, once nothing of the bind hook runs any
// more.
func (c *Controller) unbindHook(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, cluster string) error {
	w := workloadOf(instance)
	if w == nil || w.Bindings == nil || !instance.DeletionTimestamp.IsZero() || !runsHooks(instance, cluster) {
		return nil // what goes with its instance needs no hook
	}
	for _, kind := range []workload.HookKind{workload.HookBind, workload.HookUnbind} {
		h, err := c.hook(ctx, kind, b, instance, cluster)
		if err != nil {
			return err
		}
		if kind == workload.HookUnbind && w.Bindings.Unbind != nil {
			if _, err := h.run(ctx); err != nil {
				return err
			}
		}
		gone, err := h.end(ctx)
		if err != nil {
			return err
		}
		if !gone && kind == workload.HookBind {
			return waitForHook(kind)
		}
	}
	return nil
}
