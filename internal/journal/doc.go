// Package journal keeps what happened to service instances, bindings, member clusters and peerings.
//
// An event is written into the status of its resource, in the same write as the change that it reports. So
// no event is lost, and none is made up: a write that fails has neither. Once a status has many, the older
// ones move to the resource's Journal; before a resource is removed, all of them do. A Journal outlives its
// resource until Retention removes it.
//
// This package reads no member cluster and decides nothing.
package journal
