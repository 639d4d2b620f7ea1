package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

const (
	ofService = `{service=~"$service"}`
	instances = "sluice_instances" + ofService
	bindings  = "sluice_bindings" + ofService
	ofPlan    = "service, plan, state"
)

// inState are the instances in a state.
func inState(state string) []query {
	return []query{{total("", ofPlan, `sluice_instances{service=~"$service", state="`+state+`"}`), ""}}
}

var marketplace = board{
	name: "marketplace", title: "Sluice / Marketplace",
	description: "What platforms order, how it ends and how long it takes, and what there is.",
	choice:      choice{label: "service", metric: "sluice_broker_operations_total"},
	rows: []row{
		{"What there is", []panel{
			{title: "Ready", description: "Instances that work.", width: 4, view: number, unit: units.Short, queries: inState("ready")},
			{title: "Waiting", description: "Instances that no cluster takes yet.", width: 4, view: number, unit: units.Short, queries: inState("waiting")},
			{title: "Longest wait", description: "Time since which the oldest of them waits.", width: 4, view: number, unit: units.Seconds, alarm: 900, queries: []query{
				{"time() - min(sluice_instances_waiting_since_timestamp_seconds" + ofService + ")", ""},
			}},
			{title: "Not ready", description: "Instances that worked once.", width: 4, view: number, unit: units.Short, alarm: 1, queries: inState("not ready")},
			{title: "Failed operations", description: "In the time that the board shows.", width: 4, view: number, unit: units.Short, alarm: 1, queries: []query{
				{inRange("", `sluice_operation_duration_seconds_count{service=~"$service", result="failed"}`), ""},
			}},
			{title: "Expired bindings", description: "Bindings whose credentials have ended.", width: 4, view: number, unit: units.Short, alarm: 1, queries: []query{
				{total("", ofPlan, `sluice_bindings{service=~"$service", state="expired"}`), ""},
			}},
			{title: "Instances by state", width: 6, view: stacked, unit: units.Short, queries: []query{{total("state", ofPlan, instances), "{{state}}"}}},
			{title: "Instances by plan", width: 6, view: stacked, unit: units.Short, queries: []query{{total("service, plan", ofPlan, instances), "{{service}}/{{plan}}"}}},
			{title: "Bindings by state", width: 6, view: stacked, unit: units.Short, queries: []query{{total("state", ofPlan, bindings), "{{state}}"}}},
			{title: "Bindings by plan", width: 6, view: stacked, unit: units.Short, queries: []query{{total("service, plan", ofPlan, bindings), "{{service}}/{{plan}}"}}},
		}},
		{"Orders", []panel{
			{title: "Accepted", description: "Operations that platforms asked for, by minute.", width: 8, view: stacked, unit: units.OpsPerMinute, queries: []query{
				{perMinute("operation", "sluice_broker_operations_total"+ofService), "{{operation}}"},
			}},
			{title: "Ended", description: "Operations that ended, and how, by minute.", width: 8, view: stacked, unit: units.OpsPerMinute, queries: []query{
				{perMinute("operation, result", "sluice_operation_duration_seconds_count"+ofService), "{{operation}} {{result}}"},
			}},
			{title: "Time to end", description: "Time from the begin of an operation to its end.", width: 8, view: curves, unit: units.Seconds,
				queries: halfAndMost("operation", "sluice_operation_duration_seconds", ofService, "{{operation}}")},
			{title: "Accepted by plan", width: 8, view: stacked, unit: units.OpsPerMinute, queries: []query{
				{perMinute("service, plan", "sluice_broker_operations_total"+ofService), "{{service}}/{{plan}}"},
			}},
			{title: "Events", description: "What happened to instances and bindings, by minute.", width: 16, view: stacked, unit: units.EventsPerMinute, queries: []query{
				{perMinute("kind, type", "sluice_events_total"+ofService), "{{kind}} {{type}}"},
			}},
		}},
		{"Placement, of all services", []panel{
			{title: "Decisions", width: 8, view: stacked, unit: units.OpsPerMinute, queries: []query{{perMinute("result", "sluice_placement_decisions_total"), "{{result}}"}}},
			{title: "Rejected clusters", description: "Clusters that were not chosen in decisions, by reason, in the time that the board shows.", width: 8, view: bars, unit: units.Short,
				queries: []query{{inRange("reason", "sluice_placement_rejections_total"), "{{reason}}"}}},
			{title: "Time to decide", width: 8, view: curves, unit: units.Seconds, queries: halfAndMost("", "sluice_placement_decision_duration_seconds", "", "")},
		}},
		{"Requests of platforms, for all services", []panel{
			{title: "Requests", width: 8, view: stacked, unit: units.RequestsPerMinute, queries: []query{{perMinute("code", "sluice_broker_request_duration_seconds_count"), "{{code}}"}}},
			{title: "Requests by platform", width: 8, view: stacked, unit: units.RequestsPerMinute, queries: []query{{perMinute("platform", "sluice_broker_request_duration_seconds_count"), "{{platform}}"}}},
			{title: "Time to answer", description: "95 % of requests are answered faster.", width: 8, view: curves, unit: units.Seconds, queries: []query{
				{quantile(.95, "route", "sluice_broker_request_duration_seconds", ""), "{{route}}"},
			}},
		}},
	},
}
