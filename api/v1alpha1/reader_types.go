package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Readers of a cluster's capacity.
const (
	// ReaderNodes reads nodes, and the pods on them.
	ReaderNodes = "nodes"
	// ReaderDeclared takes what the operator has declared.
	ReaderDeclared = "declared"
	// ReaderExternal asks a server outside Sluice.
	ReaderExternal = "external"
	// ReaderPool adds up what the members of a pool have.
	ReaderPool = "pool"
)

// ReaderName returns the name of the reader of the cluster's capacity.
func (c *MemberCluster) ReaderName() string {
	switch {
	case c.Spec.Pool != nil:
		return ReaderPool
	case len(c.Spec.Capacity) > 0 || c.DriverName() == DriverOSB:
		return ReaderDeclared
	case c.Spec.Reader != nil:
		return ReaderExternal
	}
	return ReaderNodes
}

// ReaderProtocol is a protocol between Sluice and a reader, over gRPC.
// +kubebuilder:validation:Enum=sluice.resources.v1;resource_reader
type ReaderProtocol string

// Values of ReaderProtocol.
const (
	// ReaderProtocolV1 is the protocol of api/resources/v1/resources.proto.
	ReaderProtocolV1 ReaderProtocol = "sluice.resources.v1"
	// ReaderProtocolPaper has the same methods by the names of the paper (Muscarello, section 4.4.1).
	ReaderProtocolPaper ReaderProtocol = "resource_reader"
)

// ExternalReader is a server that reports the capacity of a cluster over gRPC. Its certificate is verified.
type ExternalReader struct {
	// Address of the server, HOST:PORT.
	// +kubebuilder:validation:Pattern=`^(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+):[0-9]{1,5}$`
	// +kubebuilder:validation:MaxLength=261
	Address string `json:"address"`
	// Protocol that the server speaks.
	// +kubebuilder:default=sluice.resources.v1
	Protocol ReaderProtocol `json:"protocol,omitempty"`
	// PeriodSeconds between two reads if the server notifies Sluice of no change. After three without a valid
	// answer nothing new is placed on the cluster.
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// ServerName in the server's certificate; absent means the host of the address.
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`
	// CABundle holds the authorities of the server's certificate, in PEM; absent means those of Sluice's system.
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`
	// Token is a bearer token for the server, sealed or in a Secret.
	Token *ClusterAccess `json:"token,omitempty"`
}

// ProtocolName returns the protocol that the server speaks.
func (r *ExternalReader) ProtocolName() ReaderProtocol { return cmp.Or(r.Protocol, ReaderProtocolV1) }

// Period returns the time between two reads without a notification.
func (r *ExternalReader) Period() time.Duration {
	return time.Duration(cmp.Or(r.PeriodSeconds, 30)) * time.Second
}

// ReaderIdentity returns a MemberCluster whose access is the token for the cluster's reader. The token is
// sealed, or kept in a Secret, under the returned name. Its owner reference names the cluster.
func ReaderIdentity(cluster *MemberCluster) *MemberCluster {
	identity := identityOf(cluster, "-reader")
	if r := cluster.Spec.Reader; r != nil && r.Token != nil {
		identity.Spec.Access = *r.Token
	}
	return identity
}

func identityOf(cluster *MemberCluster, suffix string) *MemberCluster {
	identity := &MemberCluster{}
	identity.Namespace, identity.Name = cluster.Namespace, cluster.Name+suffix
	identity.OwnerReferences = []metav1.OwnerReference{{Kind: KindMemberCluster, Name: cluster.Name}}
	return identity
}
