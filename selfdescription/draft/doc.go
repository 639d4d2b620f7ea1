// Package draft makes the documents for a provider's credentials from what the provider writes
// about itself, its data centres and its clusters. It also makes the documents for attestations
// of notaries, compliance services and certification bodies.
//
// A [Draft] is a YAML file that people fill in; [Write] makes one with comments.
// The documents follow the vocabulary of Gaia-X release 25.11 and Sluice's own.
//
// The package signs nothing and knows nothing of keys, files, networks or Kubernetes.
package draft
