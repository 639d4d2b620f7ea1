package bindings

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Credentials are the credentials for a consumer, with one entry for each cluster in the
// decision's order. They print, log and marshal without their tokens; only Reveal shows the
// tokens.
type Credentials []ClusterCredentials

// ClusterCredentials are the credentials for one cluster.
type ClusterCredentials struct {
	// Cluster is the name of the member cluster.
	Cluster string
	// Name of the cluster that the credentials open: Cluster itself or, if the instance is a
	// cluster, the one that was created there.
	Name string
	// Server is the URL of the API server as consumers reach it.
	Server string
	// CertificateAuthority is a PEM bundle; empty means the system's roots.
	CertificateAuthority string
	// Namespace of the instance.
	Namespace string
	// Token of the binding's ServiceAccount.
	Token seal.Redacted
}

// revealed is the OSB credentials object. It has a kubeconfig with one context for each
// cluster, named like the cluster, the first one being current; the same data as plain
// values; and at the top level the values of the first cluster, for consumers of instances
// on one cluster.
type revealed struct {
	Kubeconfig string `json:"kubeconfig"`
	revealedCluster
	Clusters []revealedCluster `json:"clusters"`
}

type revealedCluster struct {
	Name                 string `json:"name,omitempty"`
	Server               string `json:"server"`
	Namespace            string `json:"namespace"`
	Token                string `json:"token"`
	CertificateAuthority string `json:"certificate_authority"`
}

// sealedFor returns the context to which the credentials of a binding are sealed.
func sealedFor(b *v1alpha1.ServiceBinding) []byte {
	return seal.Owner("ServiceBinding", b.Namespace, b.Name, string(v1alpha1.UIDOf(b)))
}

// Reveal returns the OSB credentials object with its tokens. The caller must seal it at
// once.
func (c Credentials) Reveal() (json.RawMessage, error) {
	if len(c) == 0 {
		return nil, errors.New("reveal credentials: there are none")
	}
	config := clientcmdapi.Config{
		CurrentContext: c[0].Name,
		Clusters:       map[string]*clientcmdapi.Cluster{},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{},
		Contexts:       map[string]*clientcmdapi.Context{},
	}
	var out revealed
	for _, one := range c {
		name, token := one.Name, string(one.Token.Reveal())
		config.Clusters[name] = &clientcmdapi.Cluster{Server: one.Server, CertificateAuthorityData: []byte(one.CertificateAuthority)}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: one.Namespace}
		out.Clusters = append(out.Clusters, revealedCluster{
			Name: name, Server: one.Server, Namespace: one.Namespace, Token: token, CertificateAuthority: one.CertificateAuthority,
		})
	}
	kubeconfig, err := clientcmd.Write(config)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	out.Kubeconfig = string(kubeconfig)
	out.revealedCluster = out.Clusters[0]
	out.Name = "" // only the entries of clusters need it, to be distinct
	object, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("marshal credentials: %w", err)
	}
	return object, nil
}

// nodes is the OSB credentials object of an instance that is virtual nodes of the
// consumer's own cluster. It has only names, because the consumer has rights there already.
// Its list of clusters is empty, for readers that expect the other form.
type nodes struct {
	// Cluster is the name of the consumer's own member cluster.
	Cluster string `json:"cluster"`
	// Namespace on that cluster that is extended to the nodes, if the plan has one.
	Namespace string `json:"namespace,omitempty"`
	Nodes     []node `json:"nodes"`
	Clusters  []node `json:"clusters"`
}

type node struct {
	// Name of the node.
	Name string `json:"name"`
	// Cluster is the name of the member cluster that the node stands for.
	Cluster string `json:"cluster"`
}

// nodesFor returns the nodes of placements, which must not be empty.
func nodesFor(instanceName string, placements []v1alpha1.Placement) nodes {
	out := nodes{Cluster: placements[0].Peering.Consumer, Clusters: []node{}}
	for _, p := range placements {
		out.Nodes = append(out.Nodes, node{Name: p.Peering.Node, Cluster: p.Cluster})
		if p.Peering.Offloading != nil {
			out.Namespace = v1alpha1.MemberNamespace(instanceName)
		}
	}
	return out
}

func (n nodes) reveal() (json.RawMessage, error) {
	object, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("marshal credentials: %w", err)
	}
	return object, nil
}
