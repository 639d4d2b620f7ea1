package member

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// KeyHash returns "sha256-<base64>": the digest of the public key (SubjectPublicKeyInfo, as RFC
// 7469, section 2.4 pins it) in the certificate that an API server presents. The certificate is
// verified.
func KeyHash(ctx context.Context, config *rest.Config) (string, error) {
	server, err := url.Parse(config.Host)
	if err != nil || server.Scheme != "https" {
		return "", fmt.Errorf("server %q: want an https URL", config.Host)
	}
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return "", err
	}
	if settings == nil { // neither a CA nor credentials of its own
		settings = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	address := server.Host
	if server.Port() == "" {
		address = net.JoinHostPort(server.Hostname(), "443")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	dial := config.Dial // that of a guarded cluster
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	plain, err := dial(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer plain.Close()
	if settings = settings.Clone(); settings.ServerName == "" {
		settings.ServerName = server.Hostname()
	}
	connection := tls.Client(plain, settings)
	if err := connection.HandshakeContext(ctx); err != nil {
		return "", err
	}
	certificates := connection.ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		return "", errors.New("it shows none")
	}
	return v1alpha1.SRI(certificates[0].RawSubjectPublicKeyInfo), nil
}
