// Package workload turns a workload plan into objects of Kubernetes and into credentials. It is pure:
// the same order gives the same objects, and nothing is asked or written. It knows neither clients
// nor placement; the catalog uses it to check plans, placement to know what they take, drivers to
// deliver them, and bindings to return their credentials.
package workload
