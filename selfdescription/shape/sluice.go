package shape

import (
	"maps"
	"slices"
)

// The vocabulary of Sluice, https://sluice.dev/ns/v1.
var ownClasses = map[string]class{
	// ClusterBinding binds an offering to the one cluster that delivers it.
	"ClusterBinding": own(
		node("offering", 1, 1, "ServiceOffering"),
		text("clusterUID", 1, 1).fitting("pattern", notEmpty),
		literal(sriString, "apiServerKeyHash", 1, 1),
	),
	// Certification states that its subject meets a standard.
	"Certification": own(
		text("standard", 1, 1).fitting("pattern", notEmpty),
		part("certifiedCredentials", 0, many, "CertifiedCredential"),
	),
	"CertifiedCredential": partOf(literal(sriString, "digestSRI", 1, 1)),
	// ClusterMeasurement is the broker's measurement of an offering in one window: of its API server and, in dataPlane, of a
	// probe on it.
	"ClusterMeasurement": own(
		part("window", 1, 1, "Window"),
		part("uptime", 1, 1, "Uptime"),
		part("latency", 1, many, "Latency"),
		part("dataPlane", 0, 1, "DataPlane"),
		literal(sriString, "evidenceDigest", 1, 1),
	),
	"DataPlane": partOf(
		part("uptime", 1, 1, "Uptime"),
		part("latency", 1, many, "Latency"),
		part("throughput", 0, 1, "Throughput"),
		part("podStart", 0, 1, "PodStart"),
	),
	"PodStart": partOf(
		milliseconds("p50Ms"), milliseconds("p95Ms"),
		literal(xsdCount, "starts", 1, 1),
	),
	"Throughput": partOf(
		literal(xsdDecimal, "mbitPerSecond", 1, 1).fitting("range", between(0, 1e9)),
		literal(xsdCount, "transfers", 1, 1),
	),
	"Window": partOf(
		literal(xsdTime, "start", 1, 1),
		literal(xsdTime, "end", 1, 1),
	),
	"Uptime": partOf(
		literal(xsdDecimal, "ratio", 1, 1).fitting("range", between(0, 1)),
		literal(xsdCount, "probes", 1, 1),
	),
	"Latency": partOf(
		milliseconds("p50Ms"), milliseconds("p95Ms"), milliseconds("p99Ms"),
		text("vantage", 1, 1).fitting("pattern", notEmpty),
	),
}

// part returns an attribute whose values are nodes without a type of their own.
func part(term string, minCount, maxCount int, class string) attribute {
	return node(term, minCount, maxCount, class).coerced(none)
}

// partOf returns a class of Sluice whose nodes occur only in others, without a type.
func partOf(attributes ...attribute) class {
	c := own(attributes...)
	c.part = true
	return c
}

func milliseconds(term string) attribute {
	return literal(xsdDecimal, term, 1, 1).fitting("range", between(0, 24*60*60*1000))
}

func notEmpty(text string) bool { return text != "" }

// classes has every class by its name without prefix.
var classes = func() map[string]class {
	all := maps.Clone(gaiaXClasses)
	maps.Copy(all, ownClasses)
	return all
}()

// Types lists the types of subjects that Check knows, without prefix, in order.
func Types() []string {
	var types []string
	for name, c := range classes {
		if !c.part {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	return types
}
