package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// capacity shows a resource of all clusters: what there is, what is sold, and what is left.
func capacity(title, resource, unit string) panel {
	p := panel{title: title, width: 8, view: curves, unit: unit, description: "Allocatable is what clusters have, sold what instances have reserved, " +
		"free what clusters that take instances can still sell."}
	for _, amount := range []struct{ metric, legend string }{{"allocatable", "allocatable"}, {"reserved", "sold"}, {"free", "free"}} {
		metric := fmt.Sprintf(`sluice_fleet_%s{region=~"$region", resource="%s"}`, amount.metric, resource)
		p.queries = append(p.queries, query{latest("region", metric), "{{region}} " + amount.legend})
	}
	return p
}

var clusters = board{
	name: "clusters", title: "Sluice / Clusters",
	description: "What member clusters have sold and have left, whether they are ready, what is delivered to them, and Sluice itself.",
	choice:      choice{label: "region", metric: "sluice_fleet_allocatable"},
	rows: []row{
		{"Clusters, of all regions", []panel{
			{title: "Ready", description: "Clusters and brokers that take instances.", width: 4, view: number, unit: units.Short,
				queries: []query{{total("", "cluster", "sluice_cluster_ready"), ""}}},
			{title: "Not ready", width: 4, view: number, unit: units.Short, alarm: 1, queries: []query{
				{"count(" + latest("cluster", "sluice_cluster_ready") + ") - " + total("", "cluster", "sluice_cluster_ready"), ""},
			}},
			{title: "Instances on the move", description: "Those that moved, stopped working, or work again, in the time that the board shows.", width: 8, view: number, unit: units.Short, queries: []query{
				{inRange("type", `sluice_events_total{kind="ServiceInstance", type=~"Moved|NotReady|Ready"}`), "{{type}}"},
			}},
			{title: "Remnants", description: "Objects on clusters that no instance or binding owns, as `sluice collect` lists them.", width: 4, view: number, unit: units.Short, alarm: 1,
				queries: []query{{"sum(sluice_remnants)", ""}}},
			{title: "Hub", description: "Share of its database's limit that an embedded hub uses.", width: 2, view: number, unit: units.PercentUnit, alarm: .8, queries: []query{
				{"max(sluice_hub_database_size_bytes / sluice_hub_database_quota_bytes)", ""},
			}},
			{title: "Backup", description: "Age of the newest backup of an embedded hub, with serve --backup-every.", width: 2, view: number, unit: units.Seconds, queries: []query{
				{"time() - max(sluice_hub_backup_timestamp_seconds)", ""},
			}},
			{title: "Clusters that are not ready", width: 8, view: list, unit: units.Short, queries: []query{{latest("cluster", "sluice_cluster_ready") + " == 0", ""}}},
			{title: "Fullest clusters", description: "Sold share of the resource that is scarcest on each cluster.", width: 16, view: bars, unit: units.PercentUnit, queries: []query{
				{"topk(20, " + latest("cluster, resource", "sluice_cluster_reserved_ratio") + ")", "{{cluster}} {{resource}}"},
			}},
		}},
		{"Capacity by region", []panel{
			capacity("CPU", "cpu", "cores"), capacity("Memory", "memory", units.BytesIEC), capacity("Pods", "pods", units.Short),
			{title: "Sold share by resource", width: 24, view: curves, unit: units.PercentUnit, queries: []query{{
				latest("region, resource", `sluice_fleet_reserved{region=~"$region"}`) + " / " + latest("region, resource", `sluice_fleet_allocatable{region=~"$region"}`), "{{region}} {{resource}}",
			}}},
		}},
		{"Delivery", []panel{
			{title: "Calls of drivers", description: "Each is about one instance on one cluster.", width: 12, view: stacked, unit: units.OpsPerMinute, queries: []query{
				{perMinute("driver, result", "sluice_delivery_duration_seconds_count"), "{{driver}} {{result}}"},
			}},
			{title: "Time of a call", width: 12, view: curves, unit: units.Seconds, queries: halfAndMost("driver", "sluice_delivery_duration_seconds", "", "{{driver}}")},
		}},
		{"Sluice itself", []panel{
			{title: "Replicas", description: "By version.", width: 6, view: bars, unit: units.Short, queries: []query{{"sum by (version, goversion) (sluice_build_info)", "{{version}} {{goversion}}"}}},
			{title: "Hub's database", description: "Of an embedded hub; beyond its limit it accepts no more writes.", width: 6, view: curves, unit: units.BytesIEC, queries: []query{
				{"max(sluice_hub_database_size_bytes)", "size"}, {"max(sluice_hub_database_quota_bytes)", "limit"},
			}},
			{title: "Memory", width: 6, view: curves, unit: units.BytesIEC, queries: []query{{"process_resident_memory_bytes and on (job, instance) sluice_build_info", "{{instance}}"}}},
			{title: "Processors", width: 6, view: curves, unit: "cores", queries: []query{{"rate(process_cpu_seconds_total[$__rate_interval]) and on (job, instance) sluice_build_info", "{{instance}}"}}},
		}},
	},
}
