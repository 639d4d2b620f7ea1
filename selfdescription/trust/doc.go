// Package trust holds which issuers the operator of a hub trusts for what: a picture of the
// Provider, TrustedIssuer and Identity resources, for verification. It also finds the credentials that were withdrawn.
//
// It reads the manager's cache and writes nothing. It must not know HTTP.
package trust
