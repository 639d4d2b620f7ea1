// Package selfdescription reads, verifies and issues signed self-descriptions:
// verifiable credentials (W3C VCDM 2.0) as JSON Web Tokens (VC-JOSE-COSE), with
// the vocabulary of Gaia-X and a small one of Sluice's own.
//
// Three things happen to a credential. A [Verifier] says whether it is what its
// issuer signed, still holds, and has the shape of its type; its [Report] has a
// step for everything that was looked at. [Admit] looks at all credentials of a
// member cluster together (offering, provider, data centre, the binding to the
// very cluster) and turns them into [Claim]s, each with its [Assurance]. Everybody
// downstream reads claims, never credentials.
//
// A [Signer] issues credentials and presentations.
//
// JSON-LD is never expanded. What the terms of a token mean is known because its
// @context lists nothing but documents of [Contexts], whose content is pinned by
// digest; a token that brings a context of its own is refused.
//
// The package knows nothing of Kubernetes, of HTTP or of files. It finds keys and
// status lists through the interfaces [KeySource] and [StatusSource], and time
// through Verifier.Now. Nothing in it starts a goroutine.
package selfdescription
