// Package capi creates whole clusters on a management cluster, by Cluster API. For each
// instance it makes a namespace with one Cluster in it, of the decided topology, and nothing
// else. Cluster API and its providers do the rest.
//
// The instance is delivered when Cluster API reports that the cluster is available, has the
// wanted topology, and has as many machines as wanted, available and up to date. Its
// administrator's credentials stay in the Secret <cluster>-kubeconfig: bindings get their own.
//
// Conditions, contracts and webhooks are those of Cluster API's v1beta2.
package capi
