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
