package kube

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/test/escape"
)

// TestGuards tries to escape from a namespace plan, with the policies alone: they also refuse what
// pod security and the quota would refuse.
func TestGuards(t *testing.T) {
	const ns = "sluice-1"
	guards := escape.GuardsOf(t, tenantGuards())
	labels := map[string]string{v1alpha1.LabelHub: "hub-1", v1alpha1.LabelInstance: "si-1"}
	consumer := user.DefaultInfo{Name: "system:serviceaccount:" + ns + ":sb-1", Groups: []string{"system:serviceaccounts"}}
	controller := user.DefaultInfo{Name: "system:serviceaccount:kube-system:job-controller"}
	refused := func(name string, r escape.Request, by string) {
		t.Helper()
		if r.Resource == "pods" && r.Params == nil {
			r.Params = &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}}
		}
		words := guards.Refusals(t.Context(), r)
		if by == "" && len(words) > 0 {
			t.Errorf("%s: refused: %q", name, words)
		}
		if by != "" && (len(words) != 1 || !strings.Contains(words[0], by)) {
			t.Errorf("%s: got %q, want one refusal with %q", name, words, by)
		}
	}
	pods := func(p *corev1.Pod) escape.Request { return escape.Create("", "pods", "Pod", p, consumer, labels) }
	for _, row := range escape.Pods() {
		p := escape.Pod(ns, "escape", "app")
		row.Make(p)
		refused(row.Name, pods(p), row.By)
	}
	for _, row := range escape.Agreed() {
		p := escape.Pod(ns, "agreed", "registry.example/team/app")
		row.Make(p)
		r := pods(p)
		r.Namespace.Annotations = podrules.Annotations(row.Rules...)
		refused(row.Name, r, row.By)
		r.Operation, r.Subresource, r.Old, r.Options = admission.Update, "ephemeralcontainers", &corev1.Pod{}, &metav1.UpdateOptions{}
		refused(row.Name+", later", r, row.By)
	}
	for _, attempt := range escape.Objects(ns) {
		if attempt.By == "ports" || attempt.By == "balancers" || attempt.Resource == "ingresses" {
			continue // by quota or by rights
		}
		refused(attempt.Name, escape.Create(attempt.Group, attempt.Resource, attempt.Kind, attempt.Object, consumer, labels), attempt.By)
	}

	plain := escape.Pod(ns, "plain", "app")
	plain.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"] = *ptr.To(list("g", "1")["g"])
	plain.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}, {Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}}
	plain.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	plain.Spec.Volumes = []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}, {Name: "b", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "c", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}, {Name: "d", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	plain.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}}}
	refused("a pod that takes nothing but what was bought", pods(plain), "")
	refused("a pod with nothing said", pods(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}), "")

	for class, by := range map[string]string{"gold": "the cluster's default priority", "usual": ""} {
		prior := escape.Pod(ns, "prior", "app")
		prior.Spec.PriorityClassName = class
		r := pods(prior)
		refused("a pod of the class "+class, r, by)
		r.Params = &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, GlobalDefault: true}
		refused("a pod of the class "+class+", compared with the default", r, "")
	}

	gateway := escape.Pod("liqo-tenant-theirs", "gateway", "liqo")
	gateway.Spec.HostNetwork = true
	gateway.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	refused("a gateway in a tenant namespace of Liqo's that Sluice created",
		escape.Create("", "pods", "Pod", gateway, controller, map[string]string{v1alpha1.LabelHub: "hub-1"}), "")

	// Objects admitted before: they may be labelled and may end, and their finalizers may be
	// removed.
	old := escape.Pod(ns, "old", "app")
	old.Spec.HostNetwork, old.Spec.NodeName, old.Finalizers = true, "node-1", []string{"example.com/hold"}
	labelled := old.DeepCopy()
	labelled.Labels, labelled.Finalizers = map[string]string{"a": "b"}, nil
	change := func(now, before client.Object) escape.Request {
		r := escape.Create("", "pods", "Pod", now, consumer, labels)
		r.Operation, r.Old, r.Options = admission.Update, before, &metav1.UpdateOptions{}
		return r
	}
	refused("a change that is none of its spec", change(labelled, old), "")
	refused("a change of its spec", change(func() *corev1.Pod { p := old.DeepCopy(); p.Spec.Containers[0].Image = "b"; return p }(), old), "namespaces of its node")
	scheduled := escape.Pod(ns, "scheduled", "app")
	scheduled.Spec.NodeName = "node-1"
	newer := scheduled.DeepCopy()
	newer.Spec.Containers[0].Image = "b"
	refused("another image, on the node that the scheduler chose", change(newer, scheduled), "")
	newer.Finalizers = []string{"example.com/hold"}
	refused("a finalizer later", change(newer, scheduled), "consumers may not set finalizers")

	end := func(seconds *int64) escape.Request {
		return escape.Request{
			Operation: admission.Delete, Resource: "pods", Kind: "Pod", Old: plain, Options: &metav1.DeleteOptions{GracePeriodSeconds: seconds}, User: consumer,
			Namespace: corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}},
		}
	}
	refused("ends a pod", end(nil), "")
	refused("ends a pod in ten minutes", end(ptr.To[int64](600)), "")
	refused("ends a pod in a year", end(ptr.To[int64](escape.Year)), "a pod ends within")
	evict := func(o *metav1.DeleteOptions) escape.Request {
		r := escape.Create("", "pods", "Eviction", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "plain"}, DeleteOptions: o}, consumer, labels)
		r.Subresource = "eviction"
		return r
	}
	refused("evicts a pod", evict(nil), "")
	refused("evicts a pod in a year", evict(&metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](escape.Year)}), "a pod ends within")

	held := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/hold"}}}
	meta := metav1.ObjectMeta{Namespace: ns, Name: "a"}
	refused("a Deployment", escape.Create("apps", "deployments", "Deployment", &appsv1.Deployment{ObjectMeta: meta}, consumer, labels), "")
	refused("a Deployment of pods with a finalizer", escape.Create("apps", "deployments", "Deployment",
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: held}}, consumer, labels), "templates may not have finalizers")
	refused("a CronJob", escape.Create("batch", "cronjobs", "CronJob", &batchv1.CronJob{ObjectMeta: meta}, consumer, labels), "")
	refused("a CronJob of pods with a finalizer", escape.Create("batch", "cronjobs", "CronJob",
		&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: held}}}}, consumer, labels), "templates may not have finalizers")
	refused("a StatefulSet whose volumes have a finalizer", escape.Create("apps", "statefulsets", "StatefulSet",
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: held.ObjectMeta}}}}, consumer, labels), "templates may not have finalizers")
	tracked := escape.Pod(ns, "tracked", "app")
	tracked.Finalizers = []string{batchv1.JobTrackingFinalizer}
	refused("a Job's pod, by its controller", escape.Create("", "pods", "Pod", tracked, controller, labels), "")

	large := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": strings.Repeat("x", 400<<10)}}
	smaller := large.DeepCopy()
	smaller.Data["a"] = smaller.Data["a"][:300<<10]
	shrink := escape.Create("", "configmaps", "ConfigMap", smaller, consumer, labels)
	shrink.Operation, shrink.Old = admission.Update, large
	refused("what was too large already shrinks", shrink, "")
	refused("a ConfigMap of the size that is allowed", escape.Create("", "configmaps", "ConfigMap",
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": strings.Repeat("x", 255<<10)}}, consumer, labels), "")
	claim := func(class *string, volume string) escape.Request {
		return escape.Create("", "persistentvolumeclaims", "PersistentVolumeClaim", &corev1.PersistentVolumeClaim{
			ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class, VolumeName: volume}}, consumer, labels)
	}
	protected := claim(ptr.To("fast"), "")
	protected.Object.SetFinalizers([]string{"kubernetes.io/pvc-protection"}) // by the API server
	refused("a claim", protected, "")
	refused("a claim of the default class", claim(nil, ""), "")
	refused("a claim of no class", claim(ptr.To(""), ""), "a volume of the provider's")
	refused("a claim of a volume", claim(ptr.To("fast"), "theirs"), "a volume of the provider's")
	kinds := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: setName}}
	for operation, request := range map[admission.Operation]escape.Request{
		admission.Create: {Object: kinds, Options: &metav1.CreateOptions{}}, admission.Update: {Object: kinds, Old: kinds, Options: &metav1.UpdateOptions{}},
		admission.Delete: {Old: kinds, Options: &metav1.DeleteOptions{}},
	} {
		request.Operation, request.Resource, request.Kind, request.User = operation, "configmaps", "ConfigMap", consumer
		request.Namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}}
		refused(string(operation)+" of the list of a workload's kinds", request, "is Sluice's own")
		request.User = user.DefaultInfo{Name: "system:serviceaccount:sluice-system:sluice"}
		refused(string(operation)+" of that list by Sluice", request, "")
	}
	if len(guards) != 7 {
		t.Errorf("%d policies, want seven", len(guards))
	}
}
