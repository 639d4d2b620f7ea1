// Package member connects Sluice to member clusters. It finds a cluster's kubeconfig (sealed in
// its MemberCluster, or in a Secret of the hub) and refuses one that is not self-contained. It
// keeps one connection a cluster until the access changes. A connection accepts only answers
// from the API server of the cluster that it was opened to (package answers). Places limits the
// work on each cluster at a time.
//
// It knows nothing of instances, bindings or drivers, and it starts no goroutines. A connection
// is checked when it is opened: on first use, and after its access has changed.
package member
