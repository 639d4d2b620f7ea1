package did

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Bounds of a certificate chain.
const (
	maxChain        = 64 << 10 // bytes
	maxCertificates = 8
)

// chain is the verified path of a key, and the earliest end of its certificates.
type chain struct {
	path  []*x509.Certificate
	until time.Time
}

// Size implements Sized, in round figures.
func (c chain) Size() int { return (len(c.path) + 1) << 12 }

// fetchChain fetches the chain at the URL in a key's "x5u" (RFC 7517, 4.6) and verifies it.
func (r *Resolver) fetchChain(ctx context.Context, host string, jwk *jose.JSONWebKey, now time.Time) (chain, error) {
	data, err := fetch(ctx, r.client(), r.Hosts, jwk.CertificatesURL, maxChain)
	if err != nil {
		return chain{}, err
	}
	certificates, err := decodeChain(data)
	if err != nil {
		return chain{}, err
	}
	return verifyChain(certificates, host, jwk, r.Roots, now)
}

// decodeChain reads certificates in PEM; anything else between them is refused.
func decodeChain(data []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("the chain at x5u is not certificates in PEM")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate %d of the chain at x5u: %w", len(certificates)+1, err)
		}
		if certificates = append(certificates, certificate); len(certificates) > maxCertificates {
			return nil, fmt.Errorf("the chain at x5u has more than %d certificates", maxCertificates)
		}
	}
	if len(certificates) == 0 {
		return nil, errors.New("the chain at x5u is empty")
	}
	return certificates, nil
}

// verifyChain requires a path to a root from the first certificate, which must contain the key
// and the host's name. Certificates from the key's owner are never roots.
func verifyChain(certificates []*x509.Certificate, host string, jwk *jose.JSONWebKey, roots *x509.CertPool, now time.Time) (chain, error) {
	leaf := certificates[0]
	if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(jwk.Key) {
		return chain{}, errors.New("the certificate at x5u is of another key")
	}
	if leaf.KeyUsage != 0 && leaf.KeyUsage&(x509.KeyUsageDigitalSignature|x509.KeyUsageContentCommitment) == 0 {
		return chain{}, errors.New("the certificate at x5u is not for signatures")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range certificates[1:] {
		intermediates.AddCert(certificate)
	}
	paths, err := leaf.Verify(x509.VerifyOptions{
		DNSName: host, Roots: roots, Intermediates: intermediates, CurrentTime: now,
		// Gaia-X accepts seals as well as server certificates.
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return chain{}, fmt.Errorf("verify the chain at x5u: %w", err)
	}
	path := paths[0]
	verified := chain{path: path, until: leaf.NotAfter}
	for _, certificate := range path {
		if certificate.NotAfter.Before(verified.until) {
			verified.until = certificate.NotAfter
		}
	}
	if len(path) > 1 {
		verified.path = path[:len(path)-1]
	}
	return verified, nil
}
