// Package legacy imports credentials with a JSON-LD proof of type JsonWebSignature2020, the
// form of self-descriptions before JSON Web Tokens. It is only for documents that an operator
// imports deliberately; nothing that arrives over HTTP goes through it.
//
// The content of a document is its signed RDF, not its JSON:
//
//   - Contexts must be on an exact list, embedded here, and stand only at the top of the
//     document.
//   - Expansion drops nothing: an undefined term, a relative IRI, a null or a keyword
//     that is not needed refuses the document. Its holder could have added it, or have
//     changed its meaning, without touching the signature.
//   - A node is described in one place, so that the JSON below the subject is all that
//     is signed about it.
//   - Claims are the signed subject, written in the terms of the current Gaia-X
//     context, whatever names the document used.
//
// There are two forms of signature, see [Form]. The Report lists the parts that a document's
// form leaves unsigned. None of them is in the claims.
//
// json-gold is used for expansion and compaction only. Conversion to RDF is in this package,
// because json-gold's omits what it regards as malformed. Canonicalization is in package rdfc,
// because json-gold's has no limit on work.
//
// It must not know Kubernetes, HTTP or files.
package legacy
