package member

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// config is an acceptable kubeconfig, changed by change.
func kubeconfig(t *testing.T, change func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	cluster := &clientcmdapi.Cluster{Server: "https://cluster-a.example:6443"}
	user := &clientcmdapi.AuthInfo{Token: "secret-token"}
	config := &clientcmdapi.Config{
		CurrentContext: "one",
		Contexts:       map[string]*clientcmdapi.Context{"one": {Cluster: "one", AuthInfo: "one"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"one": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"one": user},
	}
	change(config, cluster, user)
	out, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfigRefuses(t *testing.T) {
	type (
		config  = clientcmdapi.Config
		cluster = clientcmdapi.Cluster
		user    = clientcmdapi.AuthInfo
	)
	for _, test := range []struct {
		name   string
		change func(*config, *cluster, *user)
		want   string
	}{
		{"exec plugins", func(_ *config, _ *cluster, u *user) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		}, "exec plugins"},
		{"auth providers", func(_ *config, _ *cluster, u *user) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}, "auth providers"},
		{"token files", func(_ *config, _ *cluster, u *user) { u.TokenFile = "/etc/passwd" }, "tokenFile"},
		{"certificate files", func(_ *config, _ *cluster, u *user) { u.ClientCertificate = "/etc/passwd" }, "client-certificate"},
		{"key files", func(_ *config, _ *cluster, u *user) { u.ClientKey = "/etc/passwd" }, "client-key"},
		{"authority files", func(_ *config, c *cluster, _ *user) { c.CertificateAuthority = "/etc/passwd" }, "certificate-authority is a file"},
		{"impersonation", func(_ *config, _ *cluster, u *user) { u.Impersonate = "system:admin" }, "impersonation"},
		{"plain http", func(_ *config, c *cluster, _ *user) { c.Server = "http://cluster-a.example" }, "only https"},
		{"a server that is no URL", func(_ *config, c *cluster, _ *user) { c.Server = "cluster-a" }, "not a URL"},
		{"credentials in the URL", func(_ *config, c *cluster, _ *user) { c.Server = "https://me:secret-token@cluster-a.example" }, "credentials in the URL"},
		{"servers that are not verified", func(_ *config, c *cluster, _ *user) { c.InsecureSkipTLSVerify = true }, "insecure-skip-tls-verify"},
		{"an authority without a certificate", func(_ *config, c *cluster, _ *user) { c.CertificateAuthorityData = []byte("secret-token") }, "holds no certificate"},
		{"a certificate without its key", func(_ *config, _ *cluster, u *user) { u.ClientCertificateData = []byte("secret-token") }, "not a certificate and its key"},
		{"nobody", func(_ *config, _ *cluster, u *user) { u.Token = "" }, "no token, password or client certificate"},
		{"no context", func(c *config, _ *cluster, _ *user) { c.CurrentContext = "other" }, "current-context"},
		{"no cluster", func(c *config, _ *cluster, _ *user) { delete(c.Clusters, "one") }, "cluster"},
		{"no user", func(c *config, _ *cluster, _ *user) { delete(c.AuthInfos, "one") }, "user"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Config(kubeconfig(t, test.change))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want an error with %q", err, test.want)
			}
			if strings.Contains(err.Error(), "secret-token") {
				t.Errorf("the error %q shows a credential", err)
			}
		})
	}
	for _, content := range []string{"", "secret-token: [", "kind: [secret-token"} {
		if _, err := Config([]byte(content)); err == nil || strings.Contains(err.Error(), "secret-token") {
			t.Errorf("%q: got %v, want an error that does not show it", content, err)
		}
	}
}

func TestConfigReadsWhatIsSelfContained(t *testing.T) {
	config, err := Config(kubeconfig(t, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.TLSServerName, c.ProxyURL = "kubernetes", "http://proxy.example:3128"
	}))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://cluster-a.example:6443" || config.BearerToken != "secret-token" || config.ServerName != "kubernetes" || config.Proxy == nil {
		t.Errorf("got server %s, name %s, proxy set %v", config.Host, config.ServerName, config.Proxy != nil)
	}
	if config.Timeout != 0 {
		t.Errorf("timeout is %s, want none, as it would end watches", config.Timeout)
	}
}

// TestAForeignKubeconfigIsWrittenAnew: nothing but the server and inline credentials is passed on.
func TestAForeignKubeconfigIsWrittenAnew(t *testing.T) {
	foreign := kubeconfig(t, func(config *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.TLSServerName = "kubernetes"
		config.Contexts["one"].Namespace = "tenant"
		config.AuthInfos["two"] = &clientcmdapi.AuthInfo{TokenFile: "/etc/passwd", Exec: &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1"}}
		config.Clusters["two"] = &clientcmdapi.Cluster{Server: "http://169.254.169.254", ProxyURL: "http://10.0.0.1"}
		config.Contexts["two"] = &clientcmdapi.Context{Cluster: "two", AuthInfo: "two"}
	})
	k, err := ParseForeign(foreign)
	if err != nil {
		t.Fatal(err)
	}
	anew, err := k.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: v1
clusters:
- cluster:
    server: https://cluster-a.example:6443
    tls-server-name: kubernetes
  name: sluice
contexts:
- context:
    cluster: sluice
    namespace: tenant
    user: sluice
  name: sluice
current-context: sluice
kind: Config
users:
- name: sluice
  user:
    token: secret-token
`
	if string(anew) != want {
		t.Errorf("written as\n%s\nwant\n%s", anew, want)
	}
	_, err = ParseForeign(kubeconfig(t, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.ProxyURL = "http://10.0.0.1"
	}))
	if err == nil || !strings.Contains(err.Error(), "proxy-url") {
		t.Errorf("with a proxy: %v", err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n" +
		"clusters: [{name: a, cluster: {server: https://a}}]\nusers: [{name: a, user: {token: b}}]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		config, err := Config(content)
		if err != nil {
			return
		}
		if config.ExecProvider != nil || config.AuthProvider != nil || config.BearerTokenFile != "" || config.CAFile != "" ||
			config.CertFile != "" || config.KeyFile != "" || config.Insecure || config.Impersonate.UserName != "" ||
			!strings.HasPrefix(strings.ToLower(config.Host), "https:") {
			t.Errorf("accepted %q", content)
		}
	})
}
