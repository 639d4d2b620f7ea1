// Package catalog holds what Sluice sells: service offerings, their plans, the schemas of
// their parameters, and which platform may see them.
//
// The Controller (on the leader) decides which ServiceOfferings are valid together, and
// writes the served ones to their status. The Feed (on every replica) turns those statuses
// into an immutable Snapshot, which requests and placements read without locks.
//
// The package must not know HTTP, member clusters or how a plan is delivered.
package catalog
