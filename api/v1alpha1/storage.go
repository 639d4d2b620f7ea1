package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// storageSuffix follows a storage class in the name of its resource (Kubernetes, "Resource
// Quotas", Quota for storage).
const storageSuffix = ".storageclass.storage.k8s.io/requests.storage"

// StorageResource returns the resource name under which persistent storage of a class is
// requested and reserved.
func StorageResource(class string) corev1.ResourceName {
	return corev1.ResourceName(class + storageSuffix)
}

// StorageClassOf is the inverse of StorageResource.
func StorageClassOf(name corev1.ResourceName) (class string, ok bool) {
	return strings.CutSuffix(string(name), storageSuffix)
}

// IsStorage reports whether a resource is persistent storage of some class.
func IsStorage(name corev1.ResourceName) bool {
	_, is := StorageClassOf(name)
	return is
}
