// Package lease reports whether a replica is the leader, and stops its writes when it no longer
// is.
//
// Replicas elect the one that reconciles by a Lease of the hub. A leader may be stopped for
// longer than the Lease lasts (a paused VM, a stalled node, SIGSTOP). When it runs again it
// continues where it was, although another replica leads by then. Two mechanisms keep that from
// doing harm; decision 35 in docs/decisions has the argument:
//
//   - Confirm asks the hub whether this replica still holds the Lease. Everything committed
//     before Confirm asked is visible to every later leader when it takes over.
//   - Fence refuses writes once the Lease was not renewed in time, by a clock that goes on
//     while the process is stopped.
//
// The package knows nothing of what leaders do.
package lease
