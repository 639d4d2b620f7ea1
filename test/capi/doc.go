// Package capi starts a Cluster API management cluster as processes of this host, for tests of what makes clusters.
//
//	bed := capi.Start(t, capi.Options{})
//	err := bed.Apply(t.Context(), capi.Class)         // a ClusterClass named "simulated"
//
// # What is real
//
// The management cluster is one of package controlplane. On it runs Cluster API's own core manager with its webhooks, as
// released: topologies, machine deployments and sets, machines, draining, conditions, deletion, and every error message.
// Each workload cluster that is made is again a full control plane of package controlplane.
//
// # What is simulated
//
// The provider: infrastructure, bootstrap and control plane, of the group simulated.test/v1alpha1. Its control plane is
// managed, without machines; its machines are nodes of package controlplane, which run no containers. A machine whose
// spec.fails is set never comes up and says so. With
// Options.Shared all clusters have the same control plane, so that there can be very many. Options.Docker takes the real
// providers of kubeadm and Docker instead.
package capi
