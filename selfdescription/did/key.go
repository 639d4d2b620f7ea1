// Package did finds the keys of decentralised identifiers (W3C DID Core).
package did

import (
	"crypto/x509"

	"github.com/go-jose/go-jose/v4"
)

// Key is a public key that an issuer signs with.
type Key struct {
	// ID is its DID URL.
	ID  string
	JWK jose.JSONWebKey
	// Chain is the certificate chain that was found and verified for it; nil where there is none.
	Chain []*x509.Certificate
}
