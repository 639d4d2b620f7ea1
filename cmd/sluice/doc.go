// Command sluice is the Open Service Broker and the tool of its operators.
//
// This package holds flags, wiring and printing; every decision is made in the
// packages that it wires together.
package main
