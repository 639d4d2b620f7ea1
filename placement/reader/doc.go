// Package reader has the readers of member clusters' capacity: of nodes, of what an operator has
// declared, and of servers outside Sluice.
//
// A reader knows what a cluster has and what others use there. It does not know what is sold (that follows
// in package placement), whether the cluster answers, or what Sluice delivers there. No decision waits for
// a reader: decisions are made by what was read last. A server's answers are bounded and checked; one that
// is silent, or whose answers cannot be true, makes the capacity unknown.
package reader
