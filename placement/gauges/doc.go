// Package gauges counts what the hub has, for Prometheus: instances and bindings by state, member clusters and
// their capacity, peerings.
//
// It follows the manager's cache, on every replica, and lists nothing when it is scraped. The number of its series is
// bounded by the plans, regions and peerings, and two for each member cluster.
package gauges
