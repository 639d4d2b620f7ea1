// Package reader has the readers of member clusters' capacity: of nodes, and of what an operator has
// declared.
//
// A reader knows what a cluster has and what others use there. It does not know what is sold (that follows
// in package placement), whether the cluster answers, or what Sluice delivers there. No decision waits for
// a reader: decisions are made by what was read last.
package reader
