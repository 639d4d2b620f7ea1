// Package draft turns what a provider writes down about itself, its data centres
// and its clusters into the documents of the credentials that prove it, and what a
// notary, a compliance service or a certification body says of them into theirs.
//
// A [Draft] is a YAML file that people fill in; [Write] makes one with comments.
// The documents follow the vocabulary of Gaia-X release 25.11 and Sluice's own.
//
// The package signs nothing and knows nothing of keys, files, networks or Kubernetes.
package draft
