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

// Kubeconfig has the parts of a kubeconfig that Sluice uses: one API server, and credentials for it. A kubeconfig that comes
// from others is only ever passed on in this form: with exec plugins, auth providers and file references, a program that
// loads it could be made to run commands and to send its own files.
type Kubeconfig struct {
	// Server is the URL of the API server.
	Server string
	// CA is the PEM bundle that verifies its certificate; none means the system's roots.
	CA []byte
	// TLSServerName is the name in its certificate, if it is not the one in Server.
	TLSServerName string
	// ProxyURL is the URL of a proxy; empty means the environment's.
	ProxyURL string
	// DisableCompression asks the server for answers that are not compressed.
	DisableCompression bool
	// Namespace of the context.
	Namespace string
	// Token, Username and Password, and ClientCertificate and ClientKey (PEM) are credentials; at least one is set.
	Token, Username, Password    string
	ClientCertificate, ClientKey []byte
}

// ParseKubeconfig reads a kubeconfig's current context. It refuses a kubeconfig that is not self-contained, or by which the
// API server's certificate is not verified. The error shows no credentials.
func ParseKubeconfig(text []byte) (*Kubeconfig, error) {
	parsed, err := clientcmd.Load(text)
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
	if err := checkCluster(cluster); err != nil {
		return nil, err
	}
	if err := checkUser(user); err != nil {
		return nil, err
	}
	return &Kubeconfig{
		Server: cluster.Server, CA: cluster.CertificateAuthorityData, TLSServerName: cluster.TLSServerName,
		ProxyURL: cluster.ProxyURL, DisableCompression: cluster.DisableCompression, Namespace: entry.Namespace,
		Token: user.Token, Username: user.Username, Password: user.Password,
		ClientCertificate: user.ClientCertificateData, ClientKey: user.ClientKeyData,
	}, nil
}

// ParseForeign is ParseKubeconfig for one that the owner of a cluster has given. It refuses proxies too: they would hide
// where connections lead.
func ParseForeign(text []byte) (*Kubeconfig, error) {
	k, err := ParseKubeconfig(text)
	if err == nil && k.ProxyURL != "" {
		return nil, errors.New("proxy-url is not allowed")
	}
	return k, err
}

// Marshal returns the kubeconfig as YAML. It has the fields of k and no others.
func (k Kubeconfig) Marshal() ([]byte, error) {
	const name = "sluice"
	out, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: k.Namespace}},
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: k.Server, CertificateAuthorityData: k.CA, TLSServerName: k.TLSServerName,
			ProxyURL: k.ProxyURL, DisableCompression: k.DisableCompression,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			Token: k.Token, Username: k.Username, Password: k.Password,
			ClientCertificateData: k.ClientCertificate, ClientKeyData: k.ClientKey,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return out, nil
}

// Config is ParseKubeconfig for clients. The result has no Timeout, so that watches can be built on it, and accepts only
// answers of an API server, of a bounded length (package answers).
func Config(kubeconfig []byte) (*rest.Config, error) {
	k, err := ParseKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config := k.config(false)
	answers.Check(config, nil)
	return config, nil
}

// config is Config without the check of answers. stranger means that the address is not the operator's.
func (k Kubeconfig) config(stranger bool) *rest.Config {
	config := &rest.Config{
		Host: k.Server, TLSClientConfig: rest.TLSClientConfig{CAData: k.CA, ServerName: k.TLSServerName, CertData: k.ClientCertificate, KeyData: k.ClientKey},
		BearerToken: k.Token, Username: k.Username, Password: k.Password, DisableCompression: k.DisableCompression,
		QPS: requestsPerSecond, Burst: requestsBurst, UserAgent: "sluice",
	}
	if k.ProxyURL != "" {
		config.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(k.ProxyURL) }
	}
	answers.Bound(config, stranger)
	return config
}

func checkCluster(cluster *clientcmdapi.Cluster) error {
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
	if _, err := url.Parse(cluster.ProxyURL); err != nil {
		return errors.New("its proxy-url is not a URL")
	}
	return nil
}

func checkUser(user *clientcmdapi.AuthInfo) error {
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
	return nil
}
