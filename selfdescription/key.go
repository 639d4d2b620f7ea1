package selfdescription

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Algorithms that credentials may be signed with (RFC 7518, RFC 8037). Everything
// else is refused before a key is looked for.
var algorithms = []jose.SignatureAlgorithm{jose.EdDSA, jose.ES256, jose.ES384, jose.PS256, jose.RS256}

// Algorithms lists the algorithms that credentials may be signed with.
func Algorithms() []string {
	var names []string
	for _, a := range algorithms {
		names = append(names, string(a))
	}
	return names
}

// minRSABits is the shortest RSA key (RFC 7518, 3.3).
const minRSABits = 2048

// GenerateKey makes a private key for an algorithm. Its id is a DID URL, for
// instance did:web:broker.example#key-1.
func GenerateKey(algorithm, id string) (jose.JSONWebKey, error) {
	var private crypto.Signer
	var err error
	switch jose.SignatureAlgorithm(algorithm) {
	case jose.EdDSA:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	case jose.ES256:
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.PS256, jose.RS256:
		private, err = rsa.GenerateKey(rand.Reader, 3072)
	default:
		return jose.JSONWebKey{}, fmt.Errorf("generate a key: algorithm %q is none of %s", algorithm, strings.Join(Algorithms(), ", "))
	}
	if err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("generate a key for %s: %w", algorithm, err)
	}
	return jose.JSONWebKey{Key: private, KeyID: id, Algorithm: algorithm, Use: "sig"}, nil
}

// checkKey refuses a public key of another kind than the algorithm's: an RSA key must never be
// used to check an ECDSA signature.
func checkKey(algorithm string, key *jose.JSONWebKey) error {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return fmt.Errorf("the key is for %s, the token says %s", key.Algorithm, algorithm)
	}
	if key.Use != "" && key.Use != "sig" {
		return fmt.Errorf("the key is for use %q, not for signatures", key.Use)
	}
	kind := "a key of another kind"
	switch public := key.Key.(type) {
	case ed25519.PublicKey:
		if algorithm == string(jose.EdDSA) && len(public) == ed25519.PublicKeySize {
			return nil
		}
		kind = "an Ed25519 key"
	case *ecdsa.PublicKey:
		if algorithm == string(jose.ES256) && public.Curve == elliptic.P256() ||
			algorithm == string(jose.ES384) && public.Curve == elliptic.P384() {
			return nil
		}
		kind = "an ECDSA key on " + public.Curve.Params().Name
	case *rsa.PublicKey:
		if bits := public.N.BitLen(); bits < minRSABits {
			return fmt.Errorf("the RSA key has %d bits, want %d at least", bits, minRSABits)
		}
		if algorithm == string(jose.PS256) || algorithm == string(jose.RS256) {
			return nil
		}
		kind = "an RSA key"
	}
	return fmt.Errorf("%s does not fit algorithm %s", kind, algorithm)
}
