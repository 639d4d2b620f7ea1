package v1alpha1

import (
	"slices"
	"time"
)

// ModulesFor returns the Liqo modules that a peering needs, with virtual nodes or without.
func ModulesFor(nodes bool) []LiqoModule {
	if nodes {
		return []LiqoModule{ModuleNetworking, ModuleAuthentication, ModuleOffloading}
	}
	return []LiqoModule{ModuleNetworking}
}

// HasModule reports whether a module is in the list. An empty list means all modules.
func HasModule(modules []LiqoModule, module LiqoModule) bool {
	return len(modules) == 0 || slices.Contains(modules, module)
}

// ObservedLatencyTTL is the age at which a latency expires that Liqo has measured.
const ObservedLatencyTTL = time.Hour
