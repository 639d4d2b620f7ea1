// Package registration makes Kubernetes clusters member clusters: it applies what Sluice needs
// there with an administrator's rights, and keeps Sluice's own access in the hub.
//
// It serves the commands, which register clusters for an operator, elastic clusters, which
// join as soon as they are made, and the market, where owners add clusters. Every step can be
// repeated. The package asks the user nothing, and waits for no controller.
package registration
