// Package did finds the public key that a decentralized identifier (W3C DID Core
// 1.0) names: keys that the operator configured, did:key, and did:web over a
// guarded HTTP client, with the certificate chain (RFC 7517 "x5u") that ties the key
// to its host, if the DID document gives one.
//
// The DID and its document come from untrusted parties. Requests go only to HTTPS hosts that
// the operator allows, which is checked before any lookup. The address is checked when the
// connection is made, after name resolution, so that a name cannot lead into a private network.
// Redirects and proxies are not followed. Size, time and number of requests are bounded.
//
// This package must not know credentials, tokens or Kubernetes. It finds the key of an
// identifier; it does not decide what the key may sign.
package did
