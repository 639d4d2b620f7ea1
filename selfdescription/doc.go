// Package selfdescription reads, verifies and issues signed self-descriptions:
// verifiable credentials (W3C VCDM 2.0) as JSON Web Tokens (VC-JOSE-COSE), with
// the vocabulary of Gaia-X and a small one of Sluice's own.
//
// A credential is used in two steps. A [Verifier] checks that its issuer signed it, that it is
// valid now, and that it has the shape of its type; its [Report] has a step for each check.
// [Admit] checks all credentials of a member cluster together (offering, provider, data centre,
// the binding to this very cluster) and turns them into [Claim]s, each with its [Assurance].
// All other packages read claims, never credentials.
//
// A [Signer] issues credentials and presentations.
//
// JSON-LD is never expanded. The meaning of a token's terms is known because its @context may
// list only documents of [Contexts], whose content is pinned by digest; a token with a context
// of its own is refused.
//
// The package knows nothing of Kubernetes, of HTTP or of files. It finds keys and
// status lists through the interfaces [KeySource] and [StatusSource], and time
// through Verifier.Now. Nothing in it starts a goroutine.
package selfdescription
