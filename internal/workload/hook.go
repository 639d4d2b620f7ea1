package workload

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

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

// Redacted removes the secrets of the order from a message.
func (o *Order) Redacted(message string) string { return o.expressions(nil).redacted(message) }
