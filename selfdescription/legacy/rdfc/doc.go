// Package rdfc brings RDF datasets into the canonical form of RDFC-1.0 (W3C
// Recommendation "RDF Dataset Canonicalization", 21 May 2024), with SHA-256: two
// datasets that differ in nothing but the names of their blank nodes, and the order
// of their quads, become the same text.
//
// The algorithm takes exponential time on datasets that are made for it. Work is
// therefore counted, and more than a budget of it is an error (section 7.1 of the
// Recommendation asks implementations to defend themselves).
//
// The Recommendation has a gap, which is kept here: what it hashes of a quad between
// three blank nodes (subject, object and the name of the graph) does not say which of
// them go together, so that some datasets with such quads have two canonical forms.
// Who signs or verifies should refuse graphs named by blank nodes.
//
// The package must not know JSON-LD, credentials or signatures.
package rdfc
