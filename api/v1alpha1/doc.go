// Package v1alpha1 holds Sluice's resources. The hub stores them, and they are the only
// types that the OSB server and the controllers share.
//
// A ServiceInstance or ServiceBinding *is* the operation that a platform asked
// for: creating or changing it commits the request, controllers do the rest, and
// last_operation only reads. All kinds live in one namespace of the hub.
//
// The package knows nothing of HTTP, of member clusters or of controllers; it
// imports apimachinery and the core API types only.
//
// +kubebuilder:object:generate=true
// +groupName=sluice.dev
package v1alpha1
