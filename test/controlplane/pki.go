package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// lifetime of every certificate: longer than any test or benchmark.
const lifetime = 7 * 24 * time.Hour

// pair is a certificate and its private key, both in PEM.
type pair struct{ cert, key []byte }

// authority is the one certificate authority of a control plane. It signs the API server's certificate and the client
// certificates of the admin, the controller manager and the scheduler.
type authority struct {
	pair
	x509 *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate authority %s: %w", name, err)
	}
	pem, err := cert.EncodeCertificates(ca)
	if err != nil {
		return nil, fmt.Errorf("encode certificate authority %s: %w", name, err)
	}
	return &authority{pair: pair{pem, keyPEM}, x509: ca, key: key}, nil
}

// client issues a certificate that authenticates a user: the common name is the user, the organisations its groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues a certificate for the loopback address and the names a pod would use.
func (a *authority) server(user string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
}

// kubeconfig grants a user access to the API server on a port of the loopback address; everything is inline.
func (a *authority) kubeconfig(cluster string, port int, user string, groups ...string) ([]byte, error) {
	credentials, err := a.client(user, groups...)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server:                   "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		CertificateAuthorityData: a.cert,
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: credentials.cert, ClientKeyData: credentials.key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	return data, nil
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	name := template.Subject.CommonName
	key, keyPEM, err := newKey()
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, fmt.Errorf("draw serial number for %s: %w", name, err)
	}
	template.SerialNumber = serial
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore = a.x509.NotBefore
	template.NotAfter = time.Now().Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, a.x509, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("parse certificate of %s: %w", name, err)
	}
	certPEM, err := cert.EncodeCertificates(leaf)
	if err != nil {
		return pair{}, fmt.Errorf("encode certificate of %s: %w", name, err)
	}
	return pair{certPEM, keyPEM}, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, pem, nil
}
