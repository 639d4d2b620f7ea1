package member

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-dev/sluice/internal/answers"
)

// Client-side limits per member cluster, in requests a second. They only stop a runaway loop;
// fairness among clients is left to the API server.
const (
	requestsPerSecond = 500
	requestsBurst     = 1000
)

// Config reads a kubeconfig's current context. It refuses a kubeconfig that is not
// self-contained. A kubeconfig comes from others: with exec plugins, auth providers and file
// references it could make Sluice run their programs and read its own files. The API server's
// certificate is always verified.
//
// The result has no Timeout, so that watches can be built on it, and accepts only answers of an
// API server (package answers).
func Config(kubeconfig []byte) (*rest.Config, error) {
	config, err := read(kubeconfig)
	if err == nil {
		answers.Check(config, nil)
	}
	return config, err
}

// read is Config without the check of answers.
func read(kubeconfig []byte) (*rest.Config, error) {
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The parser's error may quote the content.
		return nil, errors.New("it is not a kubeconfig")
	}
	entry, ok := parsed.Contexts[parsed.CurrentContext]
	if !ok {
		return nil, fmt.Errorf("its current-context %q is not among its contexts", parsed.CurrentContext)
	}
	cluster, ok := parsed.Clusters[entry.Cluster]
	if !ok {
		return nil, fmt.Errorf("its cluster %q is missing", entry.Cluster)
	}
	user, ok := parsed.AuthInfos[entry.AuthInfo]
	if !ok {
		return nil, fmt.Errorf("its user %q is missing", entry.AuthInfo)
	}
	config := &rest.Config{QPS: requestsPerSecond, Burst: requestsBurst, UserAgent: "sluice"}
	if err := useCluster(config, cluster); err != nil {
		return nil, err
	}
	if err := useUser(config, user); err != nil {
		return nil, err
	}
	return config, nil
}

func useCluster(config *rest.Config, cluster *clientcmdapi.Cluster) error {
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil || server.Host == "":
		return errors.New("its server is not a URL")
	case server.Scheme != "https":
		return fmt.Errorf("its server uses %q, only https is allowed", server.Scheme)
	case server.User != nil:
		return errors.New("its server has credentials in the URL")
	case cluster.InsecureSkipTLSVerify:
		return errors.New("insecure-skip-tls-verify is not allowed")
	case cluster.CertificateAuthority != "":
		return errors.New("certificate-authority is a file, only certificate-authority-data is allowed")
	}
	if len(cluster.CertificateAuthorityData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return errors.New("certificate-authority-data holds no certificate")
	}
	config.Host = cluster.Server
	config.TLSClientConfig = rest.TLSClientConfig{CAData: cluster.CertificateAuthorityData, ServerName: cluster.TLSServerName}
	config.DisableCompression = cluster.DisableCompression
	if cluster.ProxyURL != "" {
		proxy, err := url.Parse(cluster.ProxyURL)
		if err != nil {
			return errors.New("its proxy-url is not a URL")
		}
		config.Proxy = http.ProxyURL(proxy)
	}
	return nil
}

func useUser(config *rest.Config, user *clientcmdapi.AuthInfo) error {
	switch {
	case user.Exec != nil:
		return errors.New("exec plugins are not allowed")
	case user.AuthProvider != nil:
		return errors.New("auth providers are not allowed")
	case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
		return errors.New("tokenFile, client-certificate and client-key are files, only token, client-certificate-data and client-key-data are allowed")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups)+len(user.ImpersonateUserExtra) > 0:
		return errors.New("impersonation is not allowed")
	case user.Token == "" && user.Username == "" && len(user.ClientCertificateData) == 0:
		return errors.New("its user has no token, password or client certificate")
	}
	if len(user.ClientCertificateData) > 0 {
		if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
			return errors.New("client-certificate-data and client-key-data are not a certificate and its key")
		}
	}
	config.BearerToken = user.Token
	config.Username, config.Password = user.Username, user.Password
	config.CertData, config.KeyData = user.ClientCertificateData, user.ClientKeyData
	return nil
}
