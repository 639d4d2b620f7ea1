package workload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// HookKind is a hook of bindings.
type HookKind string

// Hooks of bindings.
const (
	HookBind   HookKind = "bind"
	HookUnbind HookKind = "unbind"
)

// keepHook is how many seconds Kubernetes keeps a hook that has ended, if Sluice does not delete it.
const keepHook = 600

// returns reports whether a hook returns results.
func (o *Order) returns(kind HookKind) bool {
	return kind == HookBind && o.Plan.Bindings != nil && len(o.Plan.Bindings.Results) > 0
}

// HookName is the name of a hook's Job and Secret for the binding of the order.
func (o *Order) HookName(kind HookKind) string {
	name, _ := o.binding["name"].(string)
	return string(kind) + "-" + name
}

// hookOf returns a hook of a plan; nil if it has none of that kind.
func hookOf(plan *v1alpha1.WorkloadPlan, kind HookKind) *v1alpha1.WorkloadHook {
	switch {
	case plan.Bindings == nil:
		return nil
	case kind == HookBind:
		return plan.Bindings.Bind
	default:
		return plan.Bindings.Unbind
	}
}

// Hook returns the objects of a hook for the binding of the order (see For): a Job, the last of them,
// and the objects that its pod needs. There are none if the plan has no such hook. api is where pods reach the API
// server, for hooks with results. The error is a *RefusedError.
func (o *Order) Hook(kind HookKind, namespace string, api APIServer) ([]*unstructured.Unstructured, error) {
	hook := hookOf(o.Plan, kind)
	if hook == nil {
		return nil, nil
	}
	addresses, err := o.Addresses(inside, nowhere)
	if err != nil {
		return nil, err
	}
	e := o.expressions(addresses)
	if kind == HookBind { // what it returned before is not for it
		e.variables[varBinding] = maps.Clone(o.binding)
		e.variables[varBinding].(map[string]any)["results"] = map[string]any{}
	}
	r := &rendering{order: o, expressions: e, component: o.HookName(kind), namespace: namespace, path: field.NewPath("bindings", string(kind))}
	template := r.hookPods(hook, nil)
	if o.returns(kind) {
		r.returning(template.Spec, api)
	}
	r.hookJob(hook, template, keepHook)
	return r.hookObjects()
}

// hookPods renders the template of the pod of a hook, which has the given volumes of a component.
func (r *rendering) hookPods(hook *v1alpha1.WorkloadHook, volumes []v1alpha1.WorkloadVolume) *corev1ac.PodTemplateSpecApplyConfiguration {
	template := r.pods(r.path, &v1alpha1.WorkloadContainer{WorkloadProcess: hook.WorkloadProcess, Volumes: volumes, GracePeriodSeconds: new(int64)})
	template.Spec.WithRestartPolicy(corev1.RestartPolicyNever)
	template.Spec.Containers[0].WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError)
	return template
}

// hookJob renders the Job of a hook: it runs once, and what fails is not tried again. Kubernetes keeps it
// for so many seconds after its end; with 0 until it is deleted.
func (r *rendering) hookJob(hook *v1alpha1.WorkloadHook, template *corev1ac.PodTemplateSpecApplyConfiguration, keep int32) {
	spec := batchv1ac.JobSpec().WithTemplate(template).WithBackoffLimit(0).WithParallelism(1).WithCompletions(1).
		WithActiveDeadlineSeconds(cmp.Or(hook.TimeoutSeconds, 60))
	if keep > 0 {
		spec.WithTTLSecondsAfterFinished(keep)
	}
	r.add(batchv1ac.Job(r.component, r.namespace).WithLabels(r.labels()).WithSpec(spec))
}

// hookObjects returns what was rendered of a hook, checked. The error is a *RefusedError.
func (r *rendering) hookObjects() ([]*unstructured.Unstructured, error) {
	if r.err != nil {
		return nil, &RefusedError{r.err.Error()}
	}
	if err := check(slices.DeleteFunc(slices.Clone(r.objects), isRight)); err != nil {
		return nil, err
	}
	if logins, err := r.order.logins(r.expressions); err != nil || len(logins) == 0 {
		return r.objects, err
	}
	return r.objects, pullAs(r.objects)
}

// HookEnd returns the condition with which the Job of a hook has ended, complete or failed; nil if it has
// not.
func HookEnd(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c
		}
	}
	return nil
}

// HookFailure returns why the Job of a hook failed. The reason is for end users. The detail is for operators:
// the end of the pod's output, or what Kubernetes says, without the secrets of the order and the given texts.
// Pods lists the ones of the Job.
func (o *Order) HookFailure(job *batchv1.Job, pods []corev1.Pod, hide ...string) (reason, detail string) {
	failed := HookEnd(job)
	if failed.Reason == batchv1.JobReasonDeadlineExceeded {
		return fmt.Sprintf("it did not end within %d s", ptr.Deref(job.Spec.ActiveDeadlineSeconds, 0)), ""
	}
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
				redacting := o.expressions(nil)
				redacting.hide = append(redacting.hide, hide...)
				return fmt.Sprintf("exit code %d", e.ExitCode), strings.TrimSpace(redacting.redacted(e.Message))
			}
		}
	}
	return "its pod no longer exists", failed.Message
}
