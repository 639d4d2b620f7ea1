package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// InstanceName returns the name of the ServiceInstance for a platform's instance. OSB ids
// may contain any character and are unique only within a platform, so the name is a digest
// of both.
func InstanceName(platform, instanceID string) string { return "si-" + digest(platform, instanceID) }

// ProbeID returns the id, on PlatformSelf, of the instance that measures a member cluster. With its spaces it is no id of
// a cluster that a policy has made.
func ProbeID(cluster string) string { return "probe of " + cluster }

// BindingName returns the name of the ServiceBinding for a platform's binding.
func BindingName(platform, instanceID, bindingID string) string {
	return "sb-" + digest(platform, instanceID, bindingID)
}

// HolderName returns the name of a platform, organization, space or application as the holder of something, for instance
// "space cf/b7c1…"; empty if it has no name. Organizations and spaces belong to their platform, applications to their
// space.
func HolderName(scope Scope, platform, organization, space, application string) string {
	parts := []string{platform}
	switch scope {
	case ScopeOrganization:
		parts = append(parts, organization)
	case ScopeSpace:
		parts = append(parts, space)
	case ScopeApplication:
		parts = append(parts, space, application)
	}
	if parts[len(parts)-1] == "" {
		return ""
	}
	return string(scope) + " " + strings.Join(parts, "/")
}

// MemberNamespace returns the name of the instance's namespace on every member cluster that
// it is placed on.
func MemberNamespace(instanceName string) string {
	return "sluice-" + strings.TrimPrefix(instanceName, "si-")
}

// InstanceClusterName returns the name of the Cluster API Cluster of an instance, in the
// instance's namespace. The name is unique by itself, because machines and the objects of
// infrastructure providers are named after it.
func InstanceClusterName(instanceName string) string {
	const unique = 12 // hexadecimal digits
	return "sluice-" + strings.TrimPrefix(instanceName, "si-")[:unique]
}

// PeeringName returns the name of the Peering of two member clusters.
func PeeringName(consumer, provider string) string { return "pe-" + digest(consumer, provider) }

// VirtualNodeName returns the name of the virtual node that stands for an instance's
// placement on a cluster. The ResourceSlice behind the node has the same name.
func VirtualNodeName(instanceName, cluster string) string {
	return nodeName(cluster, digest(instanceName, cluster)[:10])
}

// PoolNodeName returns the name of the virtual node that stands for a placement of an instance that a pool has ordered. It
// does not show the cluster, not even to somebody who guesses it, because nobody sees the UID of the consumer's instance.
func PoolNodeName(order *PoolOrder, cluster string) string {
	return nodeName(order.Pool, digest(string(order.InstanceUID), cluster)[:20])
}

// nodeName returns the start of a cluster's name, and what makes the name of the node unique.
func nodeName(cluster, unique string) string {
	const shown = 40
	return strings.TrimRight(cluster[:min(len(cluster), shown)], "-.") + "-" + unique
}

// PeerMark returns the value of LabelPeer for a member cluster. It is the same for all virtual nodes that stand for the
// cluster, and does not show which one that is, because nobody outside of the hub sees the UID of its MemberCluster.
func PeerMark(cluster *MemberCluster) string { return digest("peer", string(UIDOf(cluster))) }

// OfferingName returns the name of the ServiceOffering that a provider has put under an id.
func OfferingName(id string) string { return "so-" + digest("offering", id) }

// PublicLabel returns the first label of the host at which everyone reaches a component of an
// instance, if nobody asks for another: at most 57 characters. No other component of any instance has
// it, on any cluster.
func PublicLabel(component, instanceName string) string {
	const unique = 16 // hexadecimal digits
	return component + "-" + digest("host", instanceName)[:unique]
}

// BindingsNamespace holds the ServiceAccounts of bindings in clusters that Sluice created.
const BindingsNamespace = "sluice-bindings"

// Labels and annotations of everything that Sluice owns on a member cluster.
const (
	// LabelHub holds the hub's ID, so that two installations of Sluice can share a member cluster.
	LabelHub = "sluice.dev/hub"
	// LabelInstance holds the name of the ServiceInstance; on a MemberCluster, of the one that it was
	// created for.
	LabelInstance = "sluice.dev/instance"
	// LabelBinding holds the name of the ServiceBinding.
	LabelBinding = "sluice.dev/binding"
	// AnnotationOwner holds the UID of the ServiceInstance or ServiceBinding that owns an object. A
	// later resource of the same name overwrites it. A deletion on behalf of the former owner then
	// skips the object.
	AnnotationOwner = "sluice.dev/owner-uid"
	// AnnotationOrder on an instance's namespace holds the order that is delivered there, sealed with the hub's keyset, so
	// that a hub which was restored from an older backup can adopt the instance. It is empty if the order is too large.
	AnnotationOrder = "sluice.dev/order"
	// AnnotationAdopt on a ServiceInstance holds the AnnotationOrder of its namespaces: the instance is delivered already,
	// and is to be taken over as it is. `sluice remnant adopt` writes it.
	AnnotationAdopt = "sluice.dev/adopt"
	// AnnotationInvitation on a MemberCluster holds the id of the invitation by which it has joined.
	AnnotationInvitation = "sluice.dev/invitation"
	// LabelElastic holds the name of the PlacementPolicy for which a cluster was created.
	LabelElastic = "sluice.dev/elastic"
	// LabelMeasure on a ServiceInstance of Sluice's own holds the name of the MemberCluster that its probe measures.
	LabelMeasure = "sluice.dev/measure"
	// ProbeSecret is the name of the workload's secret by which a probe authenticates.
	ProbeSecret = "token"
	// ProbeStart is the name of the parameter of a probe's workload that Sluice changes for each new pod of it.
	ProbeStart = "start"
	// PlatformSelf is the platform of the instances that Sluice itself owns.
	PlatformSelf = "sluice"
	// FieldManager owns the fields that Sluice applies.
	FieldManager = "sluice"
	// ManagedBy is the value of a label of EndpointSlices that Sluice writes instead of Kubernetes.
	ManagedBy = "sluice.dev"
	// MemberLease is the name of a Lease that Sluice renews on each member cluster, in the
	// namespace of its own account, to check that the API server accepts writes.
	MemberLease = "sluice"
)

// MemberRole returns the name of the ClusterRole on a member cluster that a binding with
// CredentialsPolicy.Role gets in its instance's namespace: "sluice-edit" or "sluice-view".
func MemberRole(role string) string { return "sluice-" + role }

// OpaqueRole is MemberRole for instances that pools have ordered: it reads no events, in which Liqo and the members' kubelets
// name clusters and machines.
func OpaqueRole(role string) string { return MemberRole(role) + "-opaque" }

// digest hashes its parts, each after its length, so that different lists of parts never
// give the same input. 160 bits are ample against collisions and fit a label.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}
