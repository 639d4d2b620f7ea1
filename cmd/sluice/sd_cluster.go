package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterFacts are what ties a ClusterBinding to a cluster: the uid of its namespace
// kube-system, and the digest of its API server's public key.
func clusterFacts(ctx context.Context, kubeconfig string) (uid, keyHash string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return "", "", err
	}
	config.Timeout = clusterTimeout
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", "", err
	}
	namespace, err := clients.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("read its namespace %s: %w", metav1.NamespaceSystem, err)
	}
	keyHash, err = serverKeyHash(ctx, config)
	if err != nil {
		return "", "", fmt.Errorf("read its API server's certificate: %w", err)
	}
	return string(namespace.UID), keyHash, nil
}

// serverKeyHash is the digest of the public key (SubjectPublicKeyInfo, as RFC 7469,
// 2.4 pins it) in the certificate that the API server shows, which is verified.
func serverKeyHash(ctx context.Context, config *rest.Config) (string, error) {
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
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	connection, err := (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	certificates := connection.(*tls.Conn).ConnectionState().PeerCertificates
	if len(certificates) == 0 {
		return "", errors.New("it shows none")
	}
	digest := sha256.Sum256(certificates[0].RawSubjectPublicKeyInfo)
	return "sha256-" + base64.StdEncoding.EncodeToString(digest[:]), nil
}
