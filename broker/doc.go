// Package broker is the Open Service Broker API 2.17 server.
//
// A request becomes at most one write to the hub, the commit point, and
// controllers do the rest: provision creates a ServiceInstance, update changes its
// spec, deprovision deletes it; bind and unbind do the same with a ServiceBinding.
// Fetches and last_operation only read, and read live, because a cache may not
// know yet what the answer before has promised. Whatever is answered with a 4xx
// status has changed nothing.
//
// server.go is the only file with URLs; one file a route holds what the route
// does; errors.go is the only place that turns errors into responses; wire.go is
// the only place that knows which field came with which version of the API.
//
// The package must not know member clusters, placements or how credentials are
// made; it meets the controllers in api/v1alpha1 and in catalog only.
package broker
