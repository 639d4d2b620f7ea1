package gauges

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	instances = desc("sluice_instances",
		"Service instances by service offering, plan and state: waiting, in progress, ready, not ready, failed or deleting.", "service", "plan", "state")
	waitingSince = desc("sluice_instances_waiting_since_timestamp_seconds",
		"Time since which the oldest waiting instance of a plan waits for a cluster to take it.", "service", "plan")
	bindings = desc("sluice_bindings",
		"Service bindings by service offering, plan and state: in progress, ready, expiring, expired, not ready, failed or deleting.", "service", "plan", "state")
	clusterReady = desc("sluice_cluster_ready",
		"1 if the member cluster is ready, else 0.", "cluster")
	reservedRatio = desc("sluice_cluster_reserved_ratio",
		"Reserved share of what a member cluster has allocatable, of the resource of which it is greatest.", "cluster", "resource")
	allocatable = desc("sluice_fleet_allocatable",
		"What member clusters have, by region, in cores, bytes or pieces.", "region", "resource")
	reserved = desc("sluice_fleet_reserved",
		"What instances have reserved on member clusters, by region, in cores, bytes or pieces.", "region", "resource")
	free = desc("sluice_fleet_free",
		"What member clusters that take instances have left to sell, by region, in cores, bytes or pieces.", "region", "resource")
	peeringReady = desc("sluice_peering_ready",
		"1 if the peering is ready, else 0.", "consumer", "provider")
	peeringLatency = desc("sluice_peering_latency_seconds",
		"Round trip between the clusters of a peering, as Liqo measures it.", "consumer", "provider")
)

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{instances, waitingSince, bindings, clusterReady, reservedRatio, allocatable, reserved, free, peeringReady, peeringLatency} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector. The values are of one instant.
func (g *Gauges) Collect(values chan<- prometheus.Metric) {
	for _, m := range g.collect() {
		values <- m
	}
}

func (g *Gauges) collect() (all []prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
	}
	for d, counts := range map[*prometheus.Desc]map[group]int{instances: g.instances, bindings: g.bindings} {
		named := map[[3]string]int{} // plans that are not in the catalog have one name
		for of, n := range counts {
			service, plan := g.named(of.plan)
			named[[3]string{service, plan, of.state}] += n
		}
		for labels, n := range named {
			gauge(d, float64(n), labels[:]...)
		}
	}
	for labels, since := range g.oldest() {
		gauge(waitingSince, float64(since.UnixMilli())/1000, labels[:]...)
	}
	g.collectClusters(gauge)
	for of, ready := range g.peerings {
		gauge(peeringReady, bit(ready), of.consumer, of.provider)
		if latency := g.latency(of); latency > 0 {
			gauge(peeringLatency, latency.Seconds(), of.consumer, of.provider)
		}
	}
	return all
}

// latency returns the round trip between the clusters of a peering, as the provider has it or, if that has none, the
// consumer; zero if neither has one that holds.
func (g *Gauges) latency(of pair) time.Duration {
	for _, ends := range [][2]string{{of.provider, of.consumer}, {of.consumer, of.provider}} {
		if c := g.clusters[ends[0]]; c != nil {
			if m := c.Latencies[ends[1]]; m.Median > 0 && m.Holds(g.clock.Now()) {
				return m.Median
			}
		}
	}
	return 0
}

// oldest returns since when instances wait, by the names of their plans.
func (g *Gauges) oldest() map[[2]string]time.Time {
	plans := map[plan]time.Time{}
	for _, w := range g.waiting {
		if since, ok := plans[w.plan]; !ok || w.since.Before(since) {
			plans[w.plan] = w.since
		}
	}
	named := map[[2]string]time.Time{}
	for of, at := range plans {
		service, plan := g.named(of)
		if since, ok := named[[2]string{service, plan}]; !ok || at.Before(since) {
			named[[2]string{service, plan}] = at
		}
	}
	return named
}

func (g *Gauges) collectClusters(gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	has, holds, left := map[capacity]int64{}, map[capacity]int64{}, map[capacity]int64{}
	for name, c := range g.clusters {
		gauge(clusterReady, bit(g.ready[name]), name)
		if c.Pool != nil {
			continue // what it has is that of its members
		}
		ratio, of := -1.0, corev1.ResourceName("")
		for resource, amount := range c.Allocatable {
			if amount <= 0 {
				continue
			}
			taken, at := g.reserved[name][resource], capacity{c.Region, resource}
			has[at] += amount
			holds[at] += taken
			left[at] += 0 // a region without any has a zero
			if g.ready[name] && !c.Cordoned {
				left[at] += max(c.Unreserved(resource)-taken, 0)
			}
			if share := float64(taken) / float64(amount); share > ratio || share == ratio && resource < of {
				ratio, of = share, resource
			}
		}
		if of != "" {
			gauge(reservedRatio, ratio, name, string(of))
		}
	}
	for d, amounts := range map[*prometheus.Desc]map[capacity]int64{allocatable: has, reserved: holds, free: left} {
		for of, amount := range amounts {
			gauge(d, inUnits(of.name, amount), of.region, string(of.name))
		}
	}
}

// inUnits returns an amount of placement.Resources in cores, bytes or pieces.
func inUnits(name corev1.ResourceName, amount int64) float64 {
	if name == corev1.ResourceCPU {
		return float64(amount) / 1000
	}
	return float64(amount)
}

// named returns the names of a plan, which are never ids.
func (g *Gauges) named(of plan) (service, plan string) {
	return g.names.Labels(of.serviceID, of.planID)
}

func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
