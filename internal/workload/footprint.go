package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Footprint describes a workload before its cluster is known.
type Footprint struct {
	// Takes are the resources of an instance on each cluster: they are reserved, and its quota allows
	// them. If the plan divides replicas, they are those of a cluster with one replica.
	Takes corev1.ResourceList
	// Replica is the resources of each further replica on a cluster; nil if the plan divides none.
	Replica corev1.ResourceList
	// LargestPods of each component, by its name: what no other of its pods exceeds. Hooks do not count.
	LargestPods map[string][]corev1.ResourceList
	// Components are the resources of each component, which together are Takes. Those of the first
	// include the hooks, which run beside it.
	Components map[string]corev1.ResourceList
	// Images that its pods run, sorted, each once.
	Images []string
	// Pods that it makes, as far as rules of policies read them, each once.
	Pods []Pod
	// Public lists the protocols of its public ports, and TCP the components of those that speak TCP. Hosts are the
	// ones that it asks for, by their first labels or as a whole, with the fields that ask for them; HostOf has them
	// by component.
	Public []v1alpha1.AppProtocol
	TCP    []string
	Hosts  map[string]string
	HostOf map[string]string
}

// sampleExposure stands for that of the cluster, as long as that is not known.
var sampleExposure = &v1alpha1.ClusterExposure{
	Gateway: v1alpha1.ExposureGateway{Namespace: "sample", Name: "sample"}, Domain: "sample.example",
	TLS: &v1alpha1.ExposureTLS{Port: 443}, TCP: &v1alpha1.ExposureTCP{First: samplePort, Last: samplePort},
}

// samplePort stands for the port that a placement has for a public port.
const samplePort = 30000

// FootprintOf renders a workload with the given parameters, and with secrets and a cluster that are
// made up; so are the values of parameters that are sealed. Replicas is the greatest number of replicas
// that the plan divides over clusters; 0 means that it divides none. It blocks as Render. The error is a
// *RefusedError as of Render, or because a container does not say what it takes, or because the workload
// cannot be divided.
func FootprintOf(plan *v1alpha1.WorkloadPlan, charts Charts, raw json.RawMessage, replicas int32) (*Footprint, error) {
	raw, err := sampledParameters(plan, raw)
	if err != nil {
		return nil, refused("%v", err)
	}
	parameters, err := withDefaults(plan, raw)
	if err != nil {
		return nil, refused("%v", err)
	}
	o := sampleBound(plan, parameters)
	objects, err := o.asPlanned(charts, Cluster{Exposure: sampleExposure}, "sluice-sample")
	if err != nil {
		return nil, err
	}
	if err := checkPriorities(objects); err != nil {
		return nil, err
	}
	f := &Footprint{Hosts: map[string]string{}, HostOf: map[string]string{}, Public: plan.Speaks(""), TCP: plan.TCP()}
	hosts, err := o.hostsAsked()
	if err != nil {
		return nil, err
	}
	for component, host := range hosts {
		f.Hosts[host.name], f.HostOf[component] = host.field, host.name
	}
	if f.Takes, err = Taken(objects); err != nil {
		return nil, err
	}
	if replicas > 0 {
		if f.Replica, err = o.replica(charts, replicas); err != nil {
			return nil, err
		}
	}
	if f.Components, err = takenByComponent(plan, objects); err != nil {
		return nil, err
	}
	if f.LargestPods, err = largestPods(objects); err != nil {
		return nil, err
	}
	// The greater of the hooks: of one at a time, as others wait for their turn at the quota.
	hooks := corev1.ResourceList{}
	for _, kind := range []HookKind{HookBind, HookUnbind} {
		hook, err := o.Hook(kind, "sluice-sample", APIServer{})
		if err != nil {
			return nil, err
		}
		taken, err := Taken(hook)
		if err != nil {
			return nil, err
		}
		mostOf(hooks, taken)
		objects = append(objects, hook...)
	}
	moving, err := o.moving(sampleData)
	if err != nil {
		return nil, err
	}
	for _, hook := range moving {
		taken, err := Taken(hook)
		if err != nil {
			return nil, err
		}
		mostOf(hooks, taken)
		objects = append(objects, hook...)
	}
	add(f.Takes, hooks, 1)
	add(f.Components[plan.Components[0].Name], hooks, 1)
	f.Pods = podsOf(objects, plan.Components[0].Name)
	f.Images = imagesOf(f.Pods)
	return f, nil
}

// mostOf raises each amount to another, if that is greater.
func mostOf(most, other corev1.ResourceList) {
	for name, amount := range other {
		if before := most[name]; amount.Cmp(before) > 0 {
			most[name] = amount
		}
	}
}

// Taken returns what the objects take at most at one time: the requests and limits of their pods,
// with as many as an autoscaler allows and with those that a rollout adds, and their claims.
// Persistent storage is counted by class, as in v1alpha1.Placement.
func Taken(objects []*unstructured.Unstructured) (corev1.ResourceList, error) {
	most, err := scaled(objects)
	if err != nil {
		return nil, err
	}
	taken := corev1.ResourceList{}
	for _, o := range objects {
		if err := take(taken, o, most[o.GetKind()+"/"+o.GetName()]); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// takenByComponent is Taken for each component.
func takenByComponent(plan *v1alpha1.WorkloadPlan, objects []*unstructured.Unstructured) (map[string]corev1.ResourceList, error) {
	taken := map[string]corev1.ResourceList{}
	for i := range plan.Components {
		name := plan.Components[i].Name
		var err error
		taken[name], err = Taken(slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
			return o.GetLabels()[v1alpha1.LabelComponent] != name
		}))
		if err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// scaled returns the greatest numbers of pods of the objects that have an autoscaler, by kind and
// name.
func scaled(objects []*unstructured.Unstructured) (map[string]int64, error) {
	most := map[string]int64{}
	for _, o := range objects {
		if o.GetKind() != "HorizontalPodAutoscaler" {
			continue
		}
		hpa := &autoscalingv2.HorizontalPodAutoscaler{}
		if err := typed(o, hpa); err != nil {
			return nil, err
		}
		most[hpa.Spec.ScaleTargetRef.Kind+"/"+hpa.Spec.ScaleTargetRef.Name] = int64(hpa.Spec.MaxReplicas)
	}
	return most, nil
}

// typed converts an object, strictly: a field that the kind does not have is refused.
func typed(o *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
		return refused("%s: %v", describeObject(o), err)
	}
	return nil
}

// take adds what one object takes. most is the number of pods that its autoscaler allows, or 0.
func take(taken corev1.ResourceList, o *unstructured.Unstructured, most int64) error {
	switch o.GetKind() {
	case "Deployment":
		d := &appsv1.Deployment{}
		if err := typed(o, d); err != nil {
			return err
		}
		pods := max(replicas(d.Spec.Replicas), most)
		return takePods(taken, o, &d.Spec.Template.Spec, pods+surge(d, pods))
	case "StatefulSet":
		s := &appsv1.StatefulSet{}
		if err := typed(o, s); err != nil {
			return err
		}
		pods := max(replicas(s.Spec.Replicas), most)
		for i := range s.Spec.VolumeClaimTemplates {
			if err := takeClaim(taken, o, &s.Spec.VolumeClaimTemplates[i].Spec, pods); err != nil {
				return err
			}
		}
		return takePods(taken, o, &s.Spec.Template.Spec, pods)
	case "Job":
		j := &batchv1.Job{}
		if err := typed(o, j); err != nil {
			return err
		}
		return takePods(taken, o, &j.Spec.Template.Spec, replicas(j.Spec.Parallelism))
	case "CronJob":
		c := &batchv1.CronJob{}
		if err := typed(o, c); err != nil {
			return err
		}
		if c.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent && c.Spec.ConcurrencyPolicy != batchv1.ReplaceConcurrent {
			return refused("%s: spec.concurrencyPolicy: want Forbid or Replace; otherwise nothing limits the resources of its Jobs", describeObject(o))
		}
		return takePods(taken, o, &c.Spec.JobTemplate.Spec.Template.Spec, replicas(c.Spec.JobTemplate.Spec.Parallelism))
	case "PersistentVolumeClaim":
		c := &corev1.PersistentVolumeClaim{}
		if err := typed(o, c); err != nil {
			return err
		}
		return takeClaim(taken, o, &c.Spec, 1)
	case "Service":
		return typed(o, &corev1.Service{})
	case "ConfigMap":
		return typed(o, &corev1.ConfigMap{})
	case "Secret":
		return typed(o, &corev1.Secret{})
	}
	return nil
}

// replicas returns a number of pods, which is 1 by Kubernetes' default.
func replicas(n *int32) int64 {
	if n == nil {
		return 1
	}
	return int64(*n)
}

// surge returns the number of pods that a rollout adds, by Kubernetes' default a quarter rounded up.
func surge(d *appsv1.Deployment, pods int64) int64 {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || pods == 0 {
		return 0
	}
	most := intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil && r.MaxSurge != nil {
		most = *r.MaxSurge
	}
	extra, err := intstr.GetScaledValueFromIntOrPercent(&most, int(pods), true)
	if err != nil {
		return pods // not a percentage: the API server refuses it
	}
	return int64(extra)
}

// takePods adds a number of equal pods. A quota bounds requests and limits by the same amount, so
// that the greater of the two counts.
func takePods(taken corev1.ResourceList, o *unstructured.Unstructured, spec *corev1.PodSpec, pods int64) error {
	if len(spec.Containers) == 0 {
		return refused("%s: its pods have no containers", describeObject(o))
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if limit, ok := c.Resources.Limits[name]; !ok || limit.IsZero() {
				return refused("%s: container %s: resources.limits.%s: is missing; without it the resources of the pod are unknown", describeObject(o), c.Name, name)
			}
		}
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].Ephemeral != nil {
			return refused("%s: volume %s: ephemeral is refused: its claims are made and deleted with each pod, so that their number is unknown; use emptyDir, a PersistentVolumeClaim, or volumeClaimTemplates of a StatefulSet", describeObject(o), spec.Volumes[i].Name)
		}
	}
	pod := &corev1.Pod{Spec: *spec}
	each := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for name, limit := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if request := each[name]; limit.Cmp(request) > 0 {
			each[name] = limit
		}
	}
	each[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	add(taken, each, pods)
	return nil
}

func takeClaim(taken corev1.ResourceList, o *unstructured.Unstructured, spec *corev1.PersistentVolumeClaimSpec, claims int64) error {
	size := spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case spec.StorageClassName == nil || *spec.StorageClassName == "":
		return refused("%s: storageClassName: is missing; storage is sold by class", describeObject(o))
	case size.Sign() <= 0:
		return refused("%s: resources.requests.storage: is missing", describeObject(o))
	}
	add(taken, corev1.ResourceList{v1alpha1.StorageResource(*spec.StorageClassName): size}, claims)
	return nil
}

func add(taken, each corev1.ResourceList, times int64) {
	if times <= 0 {
		return
	}
	for name, amount := range each {
		sum := taken[name]
		amount = amount.DeepCopy()
		amount.Mul(times)
		sum.Add(amount)
		taken[name] = sum
	}
}

// Exceeds returns where an amount is more than a limit, for instance "takes 4 cpu, the plan allows
// 2"; "" if it fits. What has no limit fits.
func Exceeds(taken, limits corev1.ResourceList) string {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		amount, limit := taken[name], limits[name]
		if amount.Cmp(limit) > 0 {
			return fmt.Sprintf("takes %s %s, the plan allows %s", amount.String(), name, limit.String())
		}
	}
	return ""
}

func componentOf(o *unstructured.Unstructured) string { return o.GetLabels()[v1alpha1.LabelComponent] }
