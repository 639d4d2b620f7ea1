// Package lease tells a replica whether it is the leader, and keeps it from acting
// when it no longer is.
//
// Replicas elect the one that reconciles by a Lease of the hub. A leader that is
// stopped for longer than the Lease lasts (a paused VM, a stalled node, SIGSTOP) goes on
// where it was when it wakes, although another leads by then. Two things keep that from
// doing harm; decision 35 in docs/decisions has the argument:
//
//   - Confirm asks the hub whether the Lease is still the replica's own. What was
//     committed before it asked is seen by every later leader when it takes over.
//   - Fence refuses writes once the Lease was not renewed in time, by a clock that runs
//     while the process is stopped.
//
// The package knows nothing of what leaders do.
package lease
