// Package sinks delivers the events of instances, bindings, member clusters and peerings to EventSinks.
//
// What has to be delivered to a sink is a queue of such resources, not of events: they keep their events
// themselves, and after their end their journals do. So a sink that does not answer costs no memory for what happens
// meanwhile, events of one instance are sent one after the other, and those of others do not wait for them.
//
// How far a delivery is, is one time for each sink (EventSinkStatus.DeliveredUntil). A restart goes on from a slack
// before it, so that events that were written late, or by another clock, are not left out.
package sinks
