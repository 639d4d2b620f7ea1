package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// amounts is a resource list in the order of its names, for comparison and reading.
func amounts(list corev1.ResourceList) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		lines = append(lines, string(name)+"="+amount.String())
	}
	return lines
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// always is the part of every quota that does not depend on the plan.
var always = []string{"services.loadbalancers", "0", "services.nodeports", "0"}

func TestQuota(t *testing.T) {
	accelerated := &v1alpha1.MemberCluster{Status: v1alpha1.MemberClusterStatus{
		StorageClasses: []string{"fast", "slow"},
		Allocatable:    list("cpu", "64", "memory", "256Gi", "pods", "110", "nvidia.com/gpu", "4", "hugepages-2Mi", "1Gi"),
	}}
	for _, test := range []struct {
		name     string
		reserved corev1.ResourceList
		cluster  *v1alpha1.MemberCluster
		want     corev1.ResourceList
	}{
		{
			"bounds requests and limits alike",
			list("cpu", "2", "memory", "4Gi", "ephemeral-storage", "10Gi", "pods", "20"), &v1alpha1.MemberCluster{},
			list("requests.cpu", "2", "limits.cpu", "2", "requests.memory", "4Gi", "limits.memory", "4Gi",
				"requests.ephemeral-storage", "10Gi", "limits.ephemeral-storage", "10Gi", "pods", "20",
				"requests.storage", "0", "persistentvolumeclaims", "0"),
		},
		{
			"leaves pods and ephemeral storage open when nothing is said of them",
			list("cpu", "2", "memory", "4Gi"), &v1alpha1.MemberCluster{},
			list("requests.cpu", "2", "limits.cpu", "2", "requests.memory", "4Gi", "limits.memory", "4Gi",
				"requests.storage", "0", "persistentvolumeclaims", "0"),
		},
		{
			"is zero for cpu and memory that were not bought",
			list("pods", "1"), &v1alpha1.MemberCluster{},
			list("requests.cpu", "0", "limits.cpu", "0", "requests.memory", "0", "limits.memory", "0", "pods", "1",
				"requests.storage", "0", "persistentvolumeclaims", "0"),
		},
		{
			"is zero for what the cluster has and nobody bought",
			list("cpu", "2", "memory", "4Gi"), accelerated,
			list("requests.cpu", "2", "limits.cpu", "2", "requests.memory", "4Gi", "limits.memory", "4Gi",
				"requests.nvidia.com/gpu", "0", "requests.hugepages-2Mi", "0",
				"fast.storageclass.storage.k8s.io/requests.storage", "0", "slow.storageclass.storage.k8s.io/requests.storage", "0",
				"requests.storage", "0", "persistentvolumeclaims", "0"),
		},
		{
			"is zero for what the provider does not sell",
			list("cpu", "2", "memory", "4Gi"), &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Sell: &v1alpha1.Sale{
				AtMost: list("cpu", "10", "example.com/fpga", "0"), Hide: []corev1.ResourceName{"nvidia.com/gpu", "slow.storageclass.storage.k8s.io/requests.storage", "memory"},
			}}},
			list("requests.cpu", "2", "limits.cpu", "2", "requests.memory", "4Gi", "limits.memory", "4Gi",
				"requests.nvidia.com/gpu", "0", "requests.example.com/fpga", "0", "slow.storageclass.storage.k8s.io/requests.storage", "0",
				"requests.storage", "0", "persistentvolumeclaims", "0"),
		},
		{
			"bounds extended resources and storage by class and in total",
			list("cpu", "2", "memory", "4Gi", "nvidia.com/gpu", "1",
				"fast.storageclass.storage.k8s.io/requests.storage", "10Gi", "slow.storageclass.storage.k8s.io/requests.storage", "90Gi"), accelerated,
			list("requests.cpu", "2", "limits.cpu", "2", "requests.memory", "4Gi", "limits.memory", "4Gi",
				"requests.nvidia.com/gpu", "1", "requests.hugepages-2Mi", "0",
				"fast.storageclass.storage.k8s.io/requests.storage", "10Gi", "slow.storageclass.storage.k8s.io/requests.storage", "90Gi",
				"requests.storage", "100Gi"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			maps.Copy(test.want, list(always...))
			hard := quota(test.reserved, offeredBy(test.cluster))
			maps.DeleteFunc(hard, func(name corev1.ResourceName, _ resource.Quantity) bool {
				return strings.HasPrefix(string(name), "count/")
			})
			got := amounts(hard)
			if want := amounts(test.want); !slices.Equal(got, want) {
				t.Errorf("quota is\n%q, want\n%q", got, want)
			}
		})
	}
}

func TestQuotaOfDevices(t *testing.T) {
	cluster := &v1alpha1.MemberCluster{Status: v1alpha1.MemberClusterStatus{
		DeviceClasses: []v1alpha1.DeviceClass{{Name: "large", ExtendedResource: "example.com/gpu"}, {Name: "new", ExtendedResource: "example.com/gpu"}, {Name: strings.Repeat("l", 64)}, {Name: strings.Repeat("l", 253)}},
		Allocatable:   list("large.deviceclass.resource.k8s.io/devices", "4"),
	}}
	long := strings.Repeat("l", 64) + ".deviceclass.resource.k8s.io/devices"
	for _, test := range []struct {
		name     string
		reserved corev1.ResourceList
		cluster  *v1alpha1.MemberCluster
		want     corev1.ResourceList
	}{
		{"bounds a class by each of its names, and claims by pods", list("pods", "5", "large.deviceclass.resource.k8s.io/devices", "2"), cluster, list(
			"large.deviceclass.resource.k8s.io/devices", "2", "requests.deviceclass.resource.kubernetes.io/large", "2", "requests.example.com/gpu", "2",
			"new.deviceclass.resource.k8s.io/devices", "0", "requests.deviceclass.resource.kubernetes.io/new", "0", long, "0",
			"count/resourceclaims.resource.k8s.io", "15", "count/resourceclaimtemplates.resource.k8s.io", "15")},
		{"is zero for classes and claims that nobody bought", list("pods", "5"), cluster, list(
			"large.deviceclass.resource.k8s.io/devices", "0", "requests.deviceclass.resource.kubernetes.io/large", "0", "requests.example.com/gpu", "0",
			"new.deviceclass.resource.k8s.io/devices", "0", "requests.deviceclass.resource.kubernetes.io/new", "0", long, "0",
			"count/resourceclaims.resource.k8s.io", "0", "count/resourceclaimtemplates.resource.k8s.io", "0")},
		{"adds what was bought as an extended resource", list("pods", "5", "large.deviceclass.resource.k8s.io/devices", "2", "new.deviceclass.resource.k8s.io/devices", "1", "example.com/gpu", "3"), cluster, list(
			"large.deviceclass.resource.k8s.io/devices", "2", "requests.deviceclass.resource.kubernetes.io/large", "2", "requests.example.com/gpu", "6",
			"new.deviceclass.resource.k8s.io/devices", "1", "requests.deviceclass.resource.kubernetes.io/new", "1", long, "0",
			"count/resourceclaims.resource.k8s.io", "15", "count/resourceclaimtemplates.resource.k8s.io", "15")},
		{"is zero for hidden classes of a declared capacity", list("pods", "5"), &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Sell: &v1alpha1.Sale{Hide: []corev1.ResourceName{"large.deviceclass.resource.k8s.io/devices"}}}}, list(
			"large.deviceclass.resource.k8s.io/devices", "0", "count/resourceclaims.resource.k8s.io", "0", "count/resourceclaimtemplates.resource.k8s.io", "0")},
	} {
		t.Run(test.name, func(t *testing.T) {
			hard := quota(test.reserved, offeredBy(test.cluster))
			maps.DeleteFunc(hard, func(name corev1.ResourceName, _ resource.Quantity) bool {
				return !strings.Contains(string(name), "resource") && !strings.Contains(string(name), "example.com")
			})
			if got, want := amounts(hard), amounts(test.want); !slices.Equal(got, want) {
				t.Errorf("quota is\n%q, want\n%q", got, want)
			}
		})
	}
}

// TestCounts compares the quota with the documentation (docs/operating.md).
func TestCounts(t *testing.T) {
	const policies corev1.ResourceName = "count/networkpolicies.networking.k8s.io"
	for _, test := range []struct {
		reserved                    corev1.ResourceList
		configMaps, pods, mebibytes int64
	}{
		{list("pods", "10"), 80, 80, 120},
		{list("pods", "20"), 120, 110, 160},
		{list("cpu", "2"), 480, 380, 600}, // as for 110 pods
	} {
		counts := quota(test.reserved, offer{})
		var most int64
		for name, count := range counts {
			switch {
			case name == "count/configmaps" || name == "count/secrets":
				most += count.Value() * maxData
			// The kinds that consumers may create; RBAC denies them the rest.
			case strings.HasPrefix(string(name), "count/") && !strings.Contains(string(name), "rbac.") && name != "count/serviceaccounts" && name != policies:
				most += count.Value() * maxObject
			}
		}
		// Two for isolation, and for each of 20 components, which a plan has at most, one, one for its links, and one for a backup.
		if got := counts[policies]; got.Value() < 2+3*20+10 {
			t.Errorf("%v: %s NetworkPolicies, which leave no room for hooks of bindings", test.reserved, &got)
		}
		configMaps, pods := counts["count/configmaps"], counts["count/pods"]
		if configMaps.Value() != test.configMaps || pods.Value() != test.pods {
			t.Errorf("%v: %s ConfigMaps and %s pods, want %d and %d", test.reserved, &configMaps, &pods, test.configMaps, test.pods)
		}
		if most>>20 > test.mebibytes {
			t.Errorf("%v: at most %d MiB in all, want %d", test.reserved, most>>20, test.mebibytes)
		}
	}
}

func TestContainerLimits(t *testing.T) {
	for _, test := range []struct {
		name           string
		hard           corev1.ResourceList
		share, minimum corev1.ResourceList
	}{
		{
			"share what was bought among as many containers as pods",
			list("limits.cpu", "2", "limits.memory", "4Gi", "limits.ephemeral-storage", "10Gi", "pods", "20"),
			list("cpu", "100m", "memory", "204Mi", "ephemeral-storage", "512Mi"),
			list("cpu", "1m", "memory", "4Mi", "ephemeral-storage", "1Mi"),
		},
		{
			"share it among ten where pods are not counted",
			list("limits.cpu", "2", "limits.memory", "4Gi"),
			list("cpu", "200m", "memory", "409Mi"),
			list("cpu", "1m", "memory", "4Mi"),
		},
		{
			"never fall below the least",
			list("limits.cpu", "10m", "limits.memory", "20Mi", "pods", "100"),
			list("cpu", "1m", "memory", "4Mi"),
			list("cpu", "1m", "memory", "4Mi"),
		},
		{
			"give no default for what was not bought",
			list("limits.cpu", "2", "limits.memory", "0"),
			list("cpu", "200m"),
			list("cpu", "1m", "memory", "4Mi"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			share, minimum := containerLimits(test.hard)
			if got, want := amounts(share), amounts(test.share); !slices.Equal(got, want) {
				t.Errorf("share is %q, want %q", got, want)
			}
			if got, want := amounts(minimum), amounts(test.minimum); !slices.Equal(got, want) {
				t.Errorf("minimum is %q, want %q", got, want)
			}
		})
	}
}

func TestExceeded(t *testing.T) {
	current := corev1.ResourceQuota{
		Spec:   corev1.ResourceQuotaSpec{Hard: list("requests.cpu", "4", "requests.memory", "8Gi", "pods", "10")},
		Status: corev1.ResourceQuotaStatus{Used: list("requests.cpu", "3", "requests.memory", "9Gi", "pods", "2")},
	}
	for _, test := range []struct {
		name string
		hard corev1.ResourceList
		want string
	}{
		{"a larger plan fits", list("requests.cpu", "8", "requests.memory", "16Gi"), ""},
		{"a smaller plan above what is used fits", list("requests.cpu", "3", "requests.memory", "8Gi"), ""},
		{"a smaller plan below what is used does not", list("requests.cpu", "2", "requests.memory", "8Gi"), "uses 3 of requests.cpu, the new plan allows 2"},
		{"the same plan stays, even above its quota", list("requests.cpu", "4", "requests.memory", "8Gi"), ""},
		{"all that does not fit is named", list("requests.cpu", "1", "pods", "1"), "uses 2 of pods, the new plan allows 1; uses 3 of requests.cpu, the new plan allows 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := exceeded(current, test.hard); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A client decodes the answer of the API server into the object that it has sent, while others read what was ordered.
func TestAnAnswerChangesNoOrder(t *testing.T) {
	of := &target{Tenant: &tenant.Tenant{Namespace: "ns", Instance: &v1alpha1.ServiceInstance{}}, hard: list("limits.cpu", "1")}
	if err := json.Unmarshal([]byte(`{"spec": {"hard": {"limits.cpu": "9", "answered": "1"}}}`), of.quotaObject(of.hard)); err != nil {
		t.Fatal(err)
	}
	if got := amounts(of.hard); !slices.Equal(got, []string{"limits.cpu=1"}) {
		t.Errorf("the order is %v", got)
	}
}
