// Package osb orders instances from other brokers, by Open Service Broker API 2.17, as a platform does.
//
// The id of an instance at a broker is derived from the hub, the broker and the instance, so each request can
// be repeated, also by a process that was killed in between: the broker answers what has become of the first.
// What a request may have left behind is deleted when the operation fails, as the specification asks of
// platforms ("Orphan Mitigation"): the controller undoes a failed operation by Remove, which is done only
// when the broker says that nothing is left.
package osb
