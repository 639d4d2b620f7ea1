package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// hookCheck is the longest time between two looks at pods that end and at hooks: no change of theirs triggers one.
const hookCheck = time.Second

// copyData stops the workload, and returns nil once the hooks of the step have ended well. The hooks belong
// to the set, so that the next delivery that is no step of a move deletes them, and lets the workload run.
// Nothing is deleted here.
func (t *target) copyData(ctx context.Context, objects []*unstructured.Unstructured, known []string) error {
	stopped, err := workload.Stopped(objects)
	if err != nil {
		return err
	}
	hooks, err := t.of.Workload.Copying(t.of.Data, t.facts, t.Namespace)
	if refused := (*workload.RefusedError)(nil); errors.As(err, &refused) {
		return &delivery.RefusedError{Reason: refused.Reason, Consumer: refused.Reason}
	}
	if err != nil {
		return err
	}
	t.ofSet(hooks)
	if err := t.announce(ctx, known, append(stopped, hooks...)); err != nil {
		return err
	}
	if err := t.applyWorkloads(ctx, stopped); err != nil {
		return err
	}
	if err := t.awaitStopped(ctx); err != nil {
		return err
	}
	if err := t.applyWorkloads(ctx, hooks); err != nil {
		return err
	}
	return t.awaitHooks(ctx, hooks)
}

// awaitStopped returns *delivery.PendingError while pods of the workload's components run, which use its
// volumes.
func (t *target) awaitStopped(ctx context.Context) error {
	var pods corev1.PodList
	if err := t.Connection.Client.List(ctx, &pods, client.InNamespace(t.Namespace), client.HasLabels{v1alpha1.LabelComponent}); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		for c := range t.of.Workload.Plan.Components {
			ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
			if name := t.of.Workload.Plan.Components[c].Name; p.Labels[v1alpha1.LabelComponent] == name && !ended {
				return &delivery.PendingError{Step: "stop the workload on " + t.Connection.Cluster, Detail: "pod " + p.Name + " of " + name, Every: hookCheck}
			}
		}
	}
	return nil
}

// awaitHooks returns nil once all of the hooks have ended well, and *delivery.RefusedError if one has failed and none runs any
// more: the volumes of one that runs are not written by another that follows.
func (t *target) awaitHooks(ctx context.Context, hooks []*unstructured.Unstructured) error {
	var waiting []string
	var failed *batchv1.Job
	for _, o := range hooks {
		if o.GetKind() != "Job" {
			continue
		}
		job := &batchv1.Job{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, job); err != nil {
			return fmt.Errorf("read Job %s: %w", o.GetName(), err)
		}
		switch ended := workload.HookEnd(job); {
		case ended == nil:
			why, more, err := t.blocked(ctx, o)
			if err != nil {
				return err
			}
			waiting = append(waiting, strings.TrimSuffix("Job "+job.Name+": "+why+more, ": "))
		case ended.Type == batchv1.JobFailed:
			failed = cmp.Or(failed, job)
		}
	}
	switch {
	case len(waiting) > 0:
	case failed != nil:
		return t.hookFailed(ctx, failed)
	default:
		return nil
	}
	return &delivery.PendingError{
		Step:   fmt.Sprintf("%s the volumes on %s", strings.ToLower(string(t.of.Data.Step)), t.Connection.Cluster),
		Detail: strings.Join(waiting, "; "), Every: hookCheck,
	}
}

// hookFailed returns why a hook failed, with the end of its output, as *delivery.RefusedError.
func (t *target) hookFailed(ctx context.Context, job *batchv1.Job) error {
	var pods corev1.PodList
	if err := t.Connection.Client.List(ctx, &pods, client.InNamespace(t.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return fmt.Errorf("list the pods of Job %s: %w", job.Name, err)
	}
	reason, detail := t.of.Workload.HookFailure(job, pods.Items, t.of.Data.Target.Password)
	why := strings.TrimSuffix(reason+": "+detail, ": ")
	return &delivery.RefusedError{Reason: fmt.Sprintf("Job %s on %s failed: %s", job.Name, t.Connection.Cluster, why)}
}
