// Package probe measures what workloads on member clusters get. A probe on the cluster opens a connection to the broker
// (Client, which sluice probe runs); the leader times what it answers (Server), by its own clock alone: nothing that a
// probe says is believed.
//
// A probe answers each message with its SHA-256. Messages are random, so that no answer can be given before its question
// was received: a few bytes show the latency, many the throughput. A new pod of a probe has a random text that is in the
// instance from the moment on at which the pod is asked for: the first answer over a connection with this text shows how
// long the pod took to start.
//
// This package must not know what becomes of the results.
package probe
