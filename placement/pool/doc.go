// Package pool carries out orders from pools: member clusters, mostly of small providers, that are sold as one.
//
// A pool orders an instance of the same plan for itself, which is placed on members of the pool and delivered like any other:
// by way of the pool's front, as with the role HubAndSpoke. What the consumer reads of its own instance names the pool only.
// The name of the pool's instance follows from that of the consumer's, so each step can be repeated, also by a process that
// was killed in between.
package pool
