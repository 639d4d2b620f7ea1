// Package trust is whom the operator of a hub trusts with what: a picture of the
// Provider, TrustedIssuer and Identity resources that verification asks.
//
// It reads the manager's cache and writes nothing. It must not know HTTP.
package trust
