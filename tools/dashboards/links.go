package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

const (
	latency = `sluice_peering_latency_seconds{consumer=~"$consumer"}`
	peered  = `sluice_peering_ready{consumer=~"$consumer"}`
	pair    = "consumer, provider"
	ofPair  = "{{consumer}} → {{provider}}"
)

var links = board{
	name: "links", title: "Sluice / Links",
	description: "Peerings between clusters, and Liqo's measured round trip between them.",
	choice:      choice{label: "consumer", metric: "sluice_peering_ready"},
	rows: []row{{"Peerings", []panel{
		{title: "Ready", width: 4, view: number, unit: units.Short, queries: []query{{total("", pair, peered), ""}}},
		{title: "Not ready", width: 4, view: number, unit: units.Short, alarm: 1, queries: []query{{"count(" + latest(pair, peered) + ") - " + total("", pair, peered), ""}}},
		{title: "Median round trip", description: "Half of the peerings are faster.", width: 8, view: number, unit: units.Seconds, queries: []query{{"quantile(0.5, " + latest(pair, latency) + ")", ""}}},
		{title: "Longest round trip", width: 8, view: number, unit: units.Seconds, queries: []query{{"max(" + latency + ")", ""}}},
		{title: "Peerings that are not ready", description: "`sluice peering list` says what they wait for.", width: 8, view: list, unit: units.Short, queries: []query{{latest(pair, peered) + " == 0", ""}}},
		{title: "Slowest links", description: "Present round trip.", width: 16, view: bars, unit: units.Seconds, queries: []query{{"topk(20, " + latest(pair, latency) + ")", ofPair}}},
		{title: "Round trip", description: "As Liqo measures it between the gateways of the two clusters. Sluice does not measure throughput.", width: 24, view: curves, unit: units.Seconds,
			queries: []query{{latest(pair, latency), ofPair}}},
	}}},
}
