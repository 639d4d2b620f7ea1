// Package v1alpha1 holds the resources with which a consumer orders from an Open Service Broker in its own cluster. They
// are no resources of the hub: `sluice claims` carries them out, by OSB 2.17, at any broker.
//
// A claim is the order, and its status is the record of what was asked of the broker: it is written before
// anything is sent. A kill at any instant therefore loses nothing, because each request can be repeated.
//
// +kubebuilder:object:generate=true
// +groupName=claims.sluice.dev
package v1alpha1
