package did

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Key is a public key that the owner of a DID lists for assertions. It is shared; do not change
// it.
type Key struct {
	// ID is the DID URL of the key.
	ID string
	// JWK is the key: Ed25519, ECDSA on P-256 or P-384, or RSA of 2048 to 8192 bits. Its KeyID
	// is ID. Its Algorithm, if set, fits the key.
	JWK jose.JSONWebKey
	// Chain is the verified path from the certificate with the key and the DID's host to a
	// root, without the root; nil if the DID document names none.
	Chain []*x509.Certificate
}

// Size of an RSA key's modulus in bits: smaller keys are weak (RFC 7518, 3.3), larger ones are
// only slow.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// kindOf returns the algorithms that a public key can sign credentials with, and the name of its kind for messages.
func kindOf(jwk *jose.JSONWebKey) (algorithms []jose.SignatureAlgorithm, kind string, err error) {
	switch {
	case !jwk.Valid():
		return nil, "", errors.New("the key is not valid")
	case jwk.Use != "" && jwk.Use != "sig":
		return nil, "", fmt.Errorf("the key is for use %q, not for signatures", clip(jwk.Use))
	}
	switch key := jwk.Key.(type) {
	case ed25519.PublicKey:
		return []jose.SignatureAlgorithm{jose.EdDSA}, "an Ed25519 key", nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			algorithms = []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			algorithms = []jose.SignatureAlgorithm{jose.ES384}
		default:
			return nil, "", fmt.Errorf("the key is on curve %s, want P-256 or P-384", key.Params().Name)
		}
		return algorithms, "an ECDSA key on " + key.Params().Name, nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return nil, "", fmt.Errorf("the RSA key has %d bits, want %d to %d", bits, minRSABits, maxRSABits)
		}
		if key.E < 3 || key.E%2 == 0 {
			return nil, "", errors.New("the RSA key has an even exponent, or one below 3")
		}
		return []jose.SignatureAlgorithm{jose.PS256, jose.RS256}, "an RSA key", nil
	}
	return nil, "", errors.New("the key is not a public key of a known kind")
}

// checkJWK requires a public key of a kind that can sign credentials, whose other members do
// not contradict it.
func checkJWK(jwk *jose.JSONWebKey) error {
	algorithms, _, err := kindOf(jwk)
	if err == nil && jwk.Algorithm != "" && !slices.Contains(algorithms, jose.SignatureAlgorithm(jwk.Algorithm)) {
		err = fmt.Errorf("the key says alg %q, want one of %q", clip(jwk.Algorithm), algorithms)
	}
	return err
}

// Fits refuses a public key that is not for signatures by an algorithm (RFC 7518): one of another kind, or one whose other
// members say otherwise. An RSA key must never be used to check an ECDSA signature.
func Fits(algorithm string, jwk *jose.JSONWebKey) error {
	algorithms, kind, err := kindOf(jwk)
	switch {
	case err != nil:
		return err
	case !slices.Contains(algorithms, jose.SignatureAlgorithm(algorithm)):
		return fmt.Errorf("%s does not fit algorithm %s", kind, algorithm)
	case jwk.Algorithm != "" && jwk.Algorithm != algorithm:
		return fmt.Errorf("the key is for %s, the signature says %s", clip(jwk.Algorithm), algorithm)
	}
	return nil
}
