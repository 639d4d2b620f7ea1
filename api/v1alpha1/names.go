package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// InstanceName is the name of the ServiceInstance that holds a platform's
// instance. OSB ids may contain any character and are unique per platform only,
// so the name is a digest of both.
func InstanceName(platform, instanceID string) string { return "si-" + digest(platform, instanceID) }

// BindingName is the name of the ServiceBinding that holds a platform's binding.
func BindingName(platform, instanceID, bindingID string) string {
	return "sb-" + digest(platform, instanceID, bindingID)
}

// MemberNamespace is the namespace that carries an instance on every member
// cluster it is placed on.
func MemberNamespace(instanceName string) string {
	return "sluice-" + strings.TrimPrefix(instanceName, "si-")
}

// MadeClusterName is the name of the Cluster API Cluster that is made for an instance,
// in the instance's namespace. Machines and what providers make of them are named after
// it, so it is unique on its own.
func MadeClusterName(instanceName string) string {
	const unique = 12 // hexadecimal digits
	return "sluice-" + strings.TrimPrefix(instanceName, "si-")[:unique]
}

// PeeringName is the name of the Peering of two member clusters.
func PeeringName(consumer, provider string) string { return "pe-" + digest(consumer, provider) }

// VirtualNodeName is the name of the virtual node, and of the ResourceSlice behind it, that
// stands for an instance's placement on a cluster.
func VirtualNodeName(instanceName, cluster string) string {
	const unique, shown = 10, 40
	return strings.TrimRight(cluster[:min(len(cluster), shown)], "-.") + "-" + digest(instanceName, cluster)[:unique]
}

// BindingsNamespace holds the ServiceAccounts of bindings in clusters that are made.
const BindingsNamespace = "sluice-bindings"

// Labels and annotations of everything that Sluice owns on a member cluster.
const (
	// LabelHub holds the hub's ID, so that two Sluices can share a member cluster.
	LabelHub = "sluice.dev/hub"
	// LabelInstance holds the name of the ServiceInstance.
	LabelInstance = "sluice.dev/instance"
	// LabelBinding holds the name of the ServiceBinding.
	LabelBinding = "sluice.dev/binding"
	// AnnotationOwner holds the UID of that ServiceInstance or ServiceBinding. It
	// changes when another one of the same name takes an object over, so that
	// nobody deletes it on behalf of the former.
	AnnotationOwner = "sluice.dev/owner-uid"
	// LabelElastic holds the name of the PlacementPolicy for which a cluster was made.
	LabelElastic = "sluice.dev/elastic"
	// AnnotationRetired is on an instance of Sluice's own whose cluster is given back.
	AnnotationRetired = "sluice.dev/retired"
	// PlatformSelf is the platform of the instances that Sluice holds itself.
	PlatformSelf = "sluice"
	// FieldManager owns the fields that Sluice applies.
	FieldManager = "sluice"
	// MemberLease is the Lease that Sluice renews on a member cluster, in the namespace of its
	// own account, to see that writes are taken there.
	MemberLease = "sluice"
)

// MemberRole is the name of the Role, in an instance's namespace, that a
// binding with CredentialsPolicy.Role gets: "sluice-edit" or "sluice-view".
func MemberRole(role string) string { return "sluice-" + role }

// digest hashes its parts with a separator that no part can imitate (their
// lengths), 160 bits being ample against collisions and short enough for a label.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}
