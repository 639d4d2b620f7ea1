package reader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/placement"
)

var onePod = resource.MustParse("1")

// mostIdle bounds the reasons why no node takes workloads, in characters.
const mostIdle = 256

// usageOf sums over the nodes that take workloads: ready, not cordoned, without a taint that
// keeps pods out (so control-plane nodes do not count), and not Liqo's virtual nodes, which
// stand for other clusters' capacity. Foreign use is the sum of requests of the pods on those nodes
// that belong to no reservation. Pods not bound to a node use nothing yet. The quotas are those of instances without a
// reservation, most of them of other hubs; they count in full, even if their pods request less. Pods that come over a
// peering into an isolated namespace use a ResourceSlice's reservation of this hub, because it denies other slices there
// (placement/liqo). Devices are counted by classes.
func usageOf(nodes []*corev1.Node, pods []*corev1.Pod, quotas []*corev1.ResourceQuota, d devices, reserved, isolated func(namespace string) bool) Reading {
	u := Reading{Source: "read from its nodes", Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}, Foreign: corev1.ResourceList{}}
	free, idle := make(map[string]placement.Resources, len(nodes)), map[string]int{}
	for _, node := range nodes {
		if reason := idleness(node); reason != "" {
			idle[reason]++
		} else {
			free[node.Name] = placement.ResourcesOf(node.Status.Allocatable)
			u.Nodes++
			u.Architectures = insert(u.Architectures, node.Status.NodeInfo.Architecture)
			u.OperatingSystems = insert(u.OperatingSystems, node.Status.NodeInfo.OperatingSystem)
			sum(u.Capacity, node.Status.Capacity)
			sum(u.Allocatable, node.Status.Allocatable)
		}
	}
	if u.Nodes == 0 {
		u.Idle = idleMessage(idle)
	}
	withQuota := make(map[string]bool, len(quotas))
	for _, quota := range quotas {
		withQuota[quota.Namespace] = true
		sum(u.Foreign, reservedBy(quota, d.classes))
	}
	foreign := func(namespace string) bool { return !reserved(namespace) && !withQuota[namespace] }
	for _, pod := range pods {
		node, counted := free[pod.Spec.NodeName]
		if !counted || terminated(pod) {
			continue
		}
		requests := requestsOf(pod)
		node.Add(placement.ResourcesOf(requests), -1)
		if foreign(pod.Namespace) && !(liqo.IsShadowPod(pod) && isolated(pod.Namespace)) {
			sum(u.Foreign, requests)
		}
	}
	d.addTo(&u, free, foreign)
	maps.DeleteFunc(free, func(_ string, left placement.Resources) bool { return left[corev1.ResourcePods] < 1 })
	u.Holes = placement.HolesOf(slices.Collect(maps.Values(free))).API()
	return u
}

// insert adds a word to sorted ones, unless it is there or empty.
func insert(words []string, word string) []string {
	at, found := slices.BinarySearch(words, word)
	if found || word == "" {
		return words
	}
	return slices.Insert(words, at, word)
}

// idleness returns why a node takes no workloads; empty if it does. The taints that Kubernetes gives to nodes that are not ready
// or cordoned are not named.
func idleness(node *corev1.Node) string {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	var repelling []string
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute {
			repelling = append(repelling, t.ToString())
		}
	}
	switch {
	case liqo.IsVirtualNode(node):
		return "virtual"
	case !ready:
		return "not ready"
	case node.Spec.Unschedulable:
		return "cordoned"
	case len(repelling) == 1:
		return "with the taint " + repelling[0]
	case len(repelling) > 1:
		return "with the taints " + strings.Join(slices.Sorted(slices.Values(repelling)), " and ")
	}
	return ""
}

// idleMessage says why no node takes workloads, with a remedy, by the number of nodes for each reason.
func idleMessage(nodes map[string]int) string {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(nodes)) {
		reasons = append(reasons, fmt.Sprintf("%d %s", nodes[reason], reason))
	}
	return "no node takes pods: " + v1alpha1.Cut(cmp.Or(strings.Join(reasons, ", "), "there is none"), mostIdle) + "; add a node, or repair, uncordon or untaint one"
}

func terminated(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// requestsOf returns the requests that the scheduler counts for a pod (the larger of init
// containers and the sum of the others, sidecars and overhead included), and one pod.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = onePod
	return requests
}

func sum(total, more corev1.ResourceList) {
	for name, quantity := range more {
		q := total[name]
		q.Add(quantity)
		total[name] = q
	}
}

// reservedBy returns what is reserved by the quota of an instance's namespace. The amounts of the device classes count once,
// not also as the extended resources by which pods may take them.
func reservedBy(quota *corev1.ResourceQuota, classes []*resourcev1.DeviceClass) corev1.ResourceList {
	reserved := corev1.ResourceList{}
	for name, amount := range quota.Spec.Hard {
		resource, request := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		switch {
		case name == corev1.ResourceRequestsStorage: // the sum over the storage classes
		case strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass):
		case request, name == corev1.ResourcePods, v1alpha1.IsStorage(name), v1alpha1.IsDevices(name):
			reserved[corev1.ResourceName(resource)] = amount.DeepCopy()
		}
	}
	for _, class := range classes {
		if extended := extendedOf(class); extended != "" && has(reserved, extended) {
			q := reserved[extended]
			q.Sub(reserved[v1alpha1.DevicesResource(class.Name)])
			reserved[extended] = q
		}
	}
	maps.DeleteFunc(reserved, func(_ corev1.ResourceName, amount resource.Quantity) bool { return amount.Sign() <= 0 })
	return reserved
}

// strip keeps only the fields of an object that readings need; of a pod's
// containers, only the sum of their requests.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: stripped(&o.ObjectMeta, liqo.LabelNodeType),
			Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints},
			Status: corev1.NodeStatus{
				Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable, Conditions: readiness(o.Status.Conditions),
				NodeInfo: corev1.NodeSystemInfo{Architecture: o.Status.NodeInfo.Architecture, OperatingSystem: o.Status.NodeInfo.OperatingSystem},
			},
		}, nil
	case *corev1.Pod:
		requests := resourcehelper.PodRequests(o, resourcehelper.PodResourcesOptions{})
		return &corev1.Pod{
			ObjectMeta: stripped(&o.ObjectMeta, liqo.LabelManagedBy),
			Spec: corev1.PodSpec{
				NodeName:   o.Spec.NodeName,
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}},
			},
			Status: corev1.PodStatus{Phase: o.Status.Phase},
		}, nil
	case *corev1.Namespace:
		meta := stripped(&o.ObjectMeta)
		meta.Labels = o.Labels
		return &corev1.Namespace{ObjectMeta: meta}, nil
	case *corev1.ResourceQuota:
		return &corev1.ResourceQuota{ObjectMeta: stripped(&o.ObjectMeta, v1alpha1.LabelHub, v1alpha1.LabelInstance), Spec: corev1.ResourceQuotaSpec{Hard: o.Spec.Hard}}, nil
	case *storagev1.StorageClass:
		return &storagev1.StorageClass{ObjectMeta: stripped(&o.ObjectMeta)}, nil
	case *resourcev1.DeviceClass:
		return &resourcev1.DeviceClass{
			ObjectMeta: stripped(&o.ObjectMeta),
			Spec:       resourcev1.DeviceClassSpec{Selectors: o.Spec.Selectors, ExtendedResourceName: o.Spec.ExtendedResourceName},
		}, nil
	case *resourcev1.ResourceSlice:
		return &resourcev1.ResourceSlice{ObjectMeta: stripped(&o.ObjectMeta), Spec: o.Spec}, nil
	case *resourcev1.ResourceClaim:
		claim := &resourcev1.ResourceClaim{ObjectMeta: stripped(&o.ObjectMeta)}
		if allocation := o.Status.Allocation; allocation != nil {
			claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: allocation.Devices.Results}}
		}
		return claim, nil
	default:
		return object, nil // a tombstone
	}
}

// stripped keeps only the named labels.
func stripped(m *metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion}
	for _, name := range labels {
		if value, has := m.Labels[name]; has {
			if kept.Labels == nil {
				kept.Labels = map[string]string{}
			}
			kept.Labels[name] = value
		}
	}
	return kept
}

// readiness drops the heartbeat, which changes all the time.
func readiness(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for _, c := range conditions {
		if c.Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}
