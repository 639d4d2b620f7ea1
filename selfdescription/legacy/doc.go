// Package legacy imports credentials that carry a JSON-LD proof of type
// JsonWebSignature2020, as self-descriptions had before they were JSON Web Tokens. It
// is for what an operator hands over deliberately; nothing that arrives over HTTP
// goes through it.
//
// What a document says is decided by what was signed, its RDF, and not by its JSON:
//
//   - Contexts are those of an exact list, embedded here or given by the operator, and
//     stand at the top of the document only.
//   - Expansion drops nothing: an undefined term, a relative IRI, a null or a keyword
//     that is not needed refuses the document, because whoever holds it could have
//     added it, or have changed its meaning, without touching the signature.
//   - A node is described in one place, so that what is below the subject is all that
//     is signed of it.
//   - Claims are the signed subject, written in the terms of the current Gaia-X
//     context, whatever the document called them.
//
// Three forms of signature exist, see [Form]. The Report names what the form of a
// document leaves unsigned; none of that is in the credential that comes out, but for
// the dates of a compliance credential.
//
// The package uses json-gold for expansion and compaction only: conversion to RDF is
// in this package, because json-gold's leaves out what it takes for malformed, and
// canonicalization, because json-gold's has no bound, in package rdfc.
//
// It must not know Kubernetes, HTTP or files.
package legacy
