// Package did finds the public key that a decentralized identifier (W3C DID Core
// 1.0) names: keys that the operator configured, did:key, and did:web over a
// guarded HTTP client, with the certificate chain (RFC 7517 "x5u") that ties the key
// to its host where the DID document gives one.
//
// The DID and the document behind it come from a stranger. Only HTTPS hosts that the
// operator allows are asked, before anything is looked up; the address is checked
// when the connection is made, after name resolution, so that a name cannot lead
// into a private network; redirects and proxies are not followed; size, time and
// number of requests are bounded.
//
// This package must not know credentials, tokens or Kubernetes. It says which key an
// identifier names and nothing about what the key may sign.
package did
