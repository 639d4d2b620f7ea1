// Package openid verifies tokens of OpenID Connect issuers that the operator has named, and says which callers they
// identify.
//
// A token chooses among the issuers by its claim iss, and has no other influence on what is fetched: an issuer's
// discovery document and keys, from hosts at public addresses or in ranges that the operator has listed, bounded in
// time and size, without redirects, and at most once in ten seconds. Keys that were fetched serve for a day while their
// issuer does not answer.
//
// This package must not know what callers may do, or how a token reaches it.
package openid
