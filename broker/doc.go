// Package broker is the Open Service Broker API 2.17 server.
//
// A request makes at most one write to the hub, which is the commit point; controllers do
// the rest. Provision creates a ServiceInstance, update changes its spec, deprovision deletes
// it; bind and unbind do the same with a ServiceBinding. Fetches and last_operation only
// read, except that a fetch of a binding may ask for new credentials. They read the hub
// without a cache, because a cache may not know yet what the last response promised. A
// request that is answered with a 4xx status has changed nothing.
//
// server.go is the only file with URLs. Each route has one file. errors.go is the only place
// that turns errors into responses. wire.go is the only place that knows in which version of
// the API each field was added.
//
// The package must not know member clusters, placements or how credentials are made. It
// shares only api/v1alpha1 and catalog with the controllers.
package broker
