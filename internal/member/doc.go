// Package member connects Sluice to member clusters: it finds a cluster's
// kubeconfig (sealed in its MemberCluster, or in a Secret of the hub), refuses
// one that is not self-contained, and keeps one connection a cluster until the
// access changes. A connection believes only what the API server of the cluster says
// that it was opened to (package answers). Places bound what is done on each cluster at
// a time.
//
// It knows nothing of instances, bindings or drivers, and it starts no
// goroutines: a connection is checked when it is first asked for, and again
// after its access has changed.
package member
