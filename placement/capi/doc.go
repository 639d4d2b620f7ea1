// Package capi makes whole clusters on a management cluster, by Cluster API: for each
// instance a namespace, in it one Cluster with the topology that was decided, and
// nothing else. Cluster API and its providers do the rest.
//
// The instance is delivered when Cluster API says that the cluster is available, has
// the topology asked for, and has as many machines as asked for, available and up to
// date. Its administrator's credentials, the Secret <cluster>-kubeconfig, stay where
// they are: bindings get their own.
//
// Conditions, contracts and webhooks are those of Cluster API's v1beta2.
package capi
