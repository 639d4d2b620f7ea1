// Package rdfc brings RDF datasets into the canonical form of RDFC-1.0 (W3C Recommendation "RDF
// Dataset Canonicalization", 21 May 2024), with SHA-256. Two datasets that differ only in the
// names of their blank nodes and the order of their quads become the same text.
//
// The algorithm takes exponential time on datasets that are made for it. Work is therefore
// counted, and exceeding a budget is an error (section 7.1 of the Recommendation asks
// implementations to defend themselves).
//
// The Recommendation has a gap, which is kept here. Its hash of a quad between three blank
// nodes (subject, object and the name of the graph) does not show which of them belong
// together. So some datasets with such quads have two canonical forms. Signers and verifiers
// should refuse graphs named by blank nodes.
//
// The package must not know JSON-LD, credentials or signatures.
package rdfc
