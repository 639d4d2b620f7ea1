// Package measure orders the probes by which the broker measures member clusters, as placement policies say, and removes
// those that no policy asks for any more (v1alpha1.Measure).
//
// This package must not know what probes do.
package measure
