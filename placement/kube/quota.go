package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// defaultPods is the number of pods assumed for the object counts of a quota without a pod
// count: the default maximum of a node.
const defaultPods = 110

// none is a quota of zero.
var none = *resource.NewQuantity(0, resource.DecimalSI)

// quota returns the ResourceQuota's spec.hard for a reservation.
//
// cpu, memory and ephemeral-storage bound both requests and limits: a consumer may use what was
// reserved, and no more. Resources that the cluster has but that were not reserved are zero,
// because Kubernetes does not bound an absent one. These are persistent storage, and the
// storage classes and extended resources in offered. cpu and memory are zero too in that case,
// and then nothing runs. Absent pods and ephemeral-storage stay unbounded. Objects are counted,
// see counted.
func quota(reserved corev1.ResourceList, offered offer) corev1.ResourceList {
	pods := int64(defaultPods)
	if bought, ok := reserved[corev1.ResourcePods]; ok {
		pods = bought.Value()
	}
	hard := Counts(pods)
	maps.Copy(hard, corev1.ResourceList{
		corev1.ResourceServicesNodePorts:     none,
		corev1.ResourceServicesLoadBalancers: none,
		corev1.ResourceRequestsCPU:           none,
		corev1.ResourceLimitsCPU:             none,
		corev1.ResourceRequestsMemory:        none,
		corev1.ResourceLimitsMemory:          none,
	})
	for _, name := range offered.names {
		hard[quotaName(name)] = none
	}
	storage := none.DeepCopy()
	for name, amount := range reserved {
		if name == v1alpha1.ResourcePublicPorts {
			continue // of the Gateway
		}
		hard[quotaName(name)] = amount
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage:
			hard["limits."+name] = amount
		case v1alpha1.IsStorage(name):
			storage.Add(amount)
		case v1alpha1.IsDevices(name) && !amount.IsZero():
			hard[claims] = *resource.NewQuantity(claimsBase+pods, resource.DecimalSI)
			hard[claimTemplates] = hard[claims]
		}
	}
	offered.boundPods(hard)
	hard[corev1.ResourceRequestsStorage] = storage
	if storage.IsZero() {
		hard[corev1.ResourcePersistentVolumeClaims] = none
	}
	return hard
}

// counted are the limits on a consumer's objects: a fixed number, and a number for each pod of the
// plan. With the limits on their size (guards.go) they limit what one instance takes in a
// cluster's etcd.
var counted = []struct {
	resource   corev1.ResourceName
	base, each int64
}{
	{"configmaps", 40, 4},
	{"secrets", 40, 4},
	{"services", 10, 1},
	{"persistentvolumeclaims", 10, 1},
	{"pods", 50, 3}, // includes pods that have ended
	{"deployments.apps", 10, 1},
	{"replicasets.apps", 40, 4}, // includes old revisions
	{"statefulsets.apps", 10, 1},
	{"daemonsets.apps", 10, 0},
	{"controllerrevisions.apps", 40, 4},
	{"jobs.batch", 50, 3},
	{"cronjobs.batch", 10, 1},
	{"horizontalpodautoscalers.autoscaling", 10, 1},
	{"endpointslices.discovery.k8s.io", 30, 2},
	// Kinds that consumers have no rights for, in case somebody grants them.
	{"leases.coordination.k8s.io", 20, 1},
	{"serviceaccounts", 1000, 0}, // one for each binding
	{"roles.rbac.authorization.k8s.io", 20, 0},
	{"rolebindings.rbac.authorization.k8s.io", 1000, 0},
	{"networkpolicies.networking.k8s.io", 100, 0}, // of Sluice's own: for isolation, components, links, hooks
	{"ingresses.networking.k8s.io", 0, 0},
	{"poddisruptionbudgets.policy", 0, 0}, // see editRules
	// Of plans without devices; those of others are claimsBase, and 1 for each pod.
	{"resourceclaims.resource.k8s.io", 0, 0},
	{"resourceclaimtemplates.resource.k8s.io", 0, 0},
}

// Limits on claims of devices, with which a plan with devices has some for each pod.
const (
	claims         corev1.ResourceName = "count/resourceclaims.resource.k8s.io"
	claimTemplates corev1.ResourceName = "count/resourceclaimtemplates.resource.k8s.io"
	claimsBase                         = 10
)

// Counts returns the limits on objects in a namespace whose plan has that many pods.
func Counts(pods int64) corev1.ResourceList {
	counts := corev1.ResourceList{}
	for _, c := range counted {
		counts["count/"+c.resource] = *resource.NewQuantity(c.base+c.each*pods, resource.DecimalSI)
	}
	return counts
}

// quotaName returns a quota's name for a reserved resource.
func quotaName(name corev1.ResourceName) corev1.ResourceName {
	if name == corev1.ResourcePods || v1alpha1.IsStorage(name) || v1alpha1.IsDevices(name) {
		return name
	}
	return "requests." + name
}

// offer has the resources of a cluster that a quota must bound even if none was reserved.
type offer struct {
	names []corev1.ResourceName
	// classes of devices.
	classes []v1alpha1.DeviceClass
}

// offeredBy lists the storage classes, device classes and extended resources of a cluster, and those that the provider does
// not sell.
func offeredBy(cluster *v1alpha1.MemberCluster) offer {
	offered := offer{classes: cluster.Status.DeviceClasses}
	for _, class := range cluster.Status.StorageClasses {
		offered.names = append(offered.names, v1alpha1.StorageResource(class))
	}
	for _, class := range offered.classes {
		if name := v1alpha1.DevicesResource(class.Name); isQuotable(name) {
			offered.names = append(offered.names, name)
		}
	}
	bounds := func(name corev1.ResourceName) bool {
		return v1alpha1.IsStorage(name) || v1alpha1.IsDevices(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || isExtended(name)
	}
	for name := range cluster.Status.Allocatable {
		if bounds(name) {
			offered.names = append(offered.names, name)
		}
	}
	if sell := cluster.Spec.Sell; sell != nil {
		for _, name := range slices.Concat(sell.Hide, slices.Collect(maps.Keys(sell.AtMost))) {
			if bounds(name) {
				offered.names = append(offered.names, name)
			}
		}
	}
	return offered
}

// boundPods bounds what pods request of devices by extended resources: each class has one that is named after it, and may
// have another. Newer versions of Kubernetes count claims by these names, too, so that none may be less than the
// class's own amount.
func (o offer) boundPods(hard corev1.ResourceList) {
	for _, class := range o.classes {
		amount := hard[v1alpha1.DevicesResource(class.Name)]
		if name := corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass + class.Name); isQuotable(name) {
			hard[name] = amount.DeepCopy()
		}
		if class.ExtendedResource == "" {
			continue
		}
		total := hard[quotaName(corev1.ResourceName(class.ExtendedResource))].DeepCopy()
		total.Add(amount)
		hard[quotaName(corev1.ResourceName(class.ExtendedResource))] = total
	}
}

// isQuotable reports whether a quota can have the name of a resource: some classes have a name that is too long.
func isQuotable(name corev1.ResourceName) bool {
	return len(validation.IsQualifiedName(string(name))) == 0
}

// isExtended reports whether a resource comes from a device plugin, such as nvidia.com/gpu.
func isExtended(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !v1alpha1.IsStorage(name) && !v1alpha1.IsDevices(name)
}

// The least that a container may request. A limit of zero would count as nothing in the quota,
// while the kubelet treats it as no limit at all.
var least = corev1.ResourceList{
	corev1.ResourceCPU:              resource.MustParse("1m"),
	corev1.ResourceMemory:           resource.MustParse("4Mi"),
	corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"),
}

// defaultContainers is how many containers without requests fit a quota without a pod count.
const defaultContainers = 10

// containerLimits returns the default for containers without requests or limits, and the least
// that a container may state. The default is an equal share of the quota for each of its pods.
// Request and limit are the same share, because the quota bounds both by the same amount.
func containerLimits(hard corev1.ResourceList) (share, minimum corev1.ResourceList) {
	containers := int64(defaultContainers)
	if pods, ok := hard[corev1.ResourcePods]; ok && pods.Value() > 0 {
		containers = pods.Value()
	}
	share, minimum = corev1.ResourceList{}, corev1.ResourceList{}
	for name, low := range least {
		total, bounded := hard["limits."+name]
		if !bounded {
			continue
		}
		minimum[name] = low
		if total.IsZero() {
			continue // none was bought: no default makes a pod fit
		}
		part := divide(name, total, containers)
		if part.Cmp(low) < 0 {
			part = low
		}
		share[name] = part
	}
	return share, minimum
}

// divide rounds down, to milli-cores for cpu and otherwise to MiB, so that the defaults stay
// readable and their sum does not exceed the total.
func divide(name corev1.ResourceName, total resource.Quantity, by int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(total.MilliValue()/by, resource.DecimalSI)
	}
	const mebibyte = 1 << 20
	return *resource.NewQuantity(total.Value()/by/mebibyte*mebibyte, resource.BinarySI)
}

// greater returns the greater of two amounts of each resource. If only one list has a resource, its
// amount counts.
func greater(a, b corev1.ResourceList) corev1.ResourceList {
	most := maps.Clone(b)
	for name, amount := range a {
		if other, ok := most[name]; !ok || amount.Cmp(other) > 0 {
			most[name] = amount
		}
	}
	return most
}

// exceeded describes the resources of which more is used than a smaller quota allows, for instance
// "uses 3 of requests.cpu, the new plan allows 2"; empty if it fits.
func exceeded(current corev1.ResourceQuota, hard corev1.ResourceList) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		allowed, used, before := hard[name], current.Status.Used[name], current.Spec.Hard[name]
		shrinks := allowed.Cmp(before) < 0
		if _, bounded := current.Spec.Hard[name]; !bounded {
			shrinks = true
		}
		if shrinks && used.Cmp(allowed) > 0 {
			lines = append(lines, fmt.Sprintf("uses %s of %s, the new plan allows %s", used.String(), name, allowed.String()))
		}
	}
	return strings.Join(lines, "; ")
}
