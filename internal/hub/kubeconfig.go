package hub

import (
	"fmt"
	"path/filepath"

	"github.com/google/renameio/v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeconfigPath returns the path at which the embedded hub with the given data directory
// writes its kubeconfig, for kubectl and for Sluice's own commands. The certificate and the
// token are new at each start. [Hub.Stop] removes the file; a hub that is killed leaves a
// file that is no longer valid.
func KubeconfigPath(dataDir string) string { return filepath.Join(dataDir, "hub.kubeconfig") }

// writeKubeconfig writes the file with mode 0600 and in one step, so that a
// reader sees all of it or the one before.
func writeKubeconfig(path string, config *rest.Config, namespace string) error {
	const name = "sluice"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: namespace}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := renameio.WriteFile(path, content, 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
