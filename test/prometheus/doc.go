// Package prometheus has a real Prometheus for tests: Debian's server, which scrapes a program under test, and promtool.
//
// The package knows nothing of Sluice.
package prometheus
