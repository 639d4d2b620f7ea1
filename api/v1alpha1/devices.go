package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DevicesResource returns the resource name under which devices of a DeviceClass (resource.k8s.io) are counted and
// reserved: that of their ResourceQuota.
func DevicesResource(class string) corev1.ResourceName {
	return corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
}

// DeviceClassOf is the inverse of DevicesResource.
func DeviceClassOf(name corev1.ResourceName) (class string, ok bool) {
	return strings.CutSuffix(string(name), corev1.ResourceClaimsPerClass)
}

// IsDevices reports whether a resource is the devices of some DeviceClass.
func IsDevices(name corev1.ResourceName) bool {
	_, is := DeviceClassOf(name)
	return is
}
