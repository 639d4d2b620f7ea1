// Command sluice is the Open Service Broker and the tool of its operators.
//
// This package holds flags, wiring and output. All decisions are made in the packages that
// it connects.
package main
