package v1alpha1

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Contract has the content of a delivered decision: the amounts of a service instance on all its clusters, and the terms
// by which they were decided. It lasts until other terms are delivered or the deletion is asked for. It is written
// together with the change that begins or ends it.
type Contract struct {
	// Number counts the contracts of an instance from 1, without gaps.
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`
	// From is when it began, by the clock of Sluice.
	From metav1.Time `json:"from"`
	// To is when it ended; absent if it is in force. All fields below but Former are then those of the delivered
	// decision, and are absent, too.
	To *metav1.Time `json:"to,omitempty"`
	// Former is the digest of the contract before, "sha256-<base64>"; absent in the first one.
	Former string `json:"former,omitempty"`
	// PlanID of the instance's plan.
	PlanID string `json:"planID,omitempty"`
	// MaintenanceVersion of the instance.
	MaintenanceVersion string `json:"maintenanceVersion,omitempty"`
	// Placements, one for each cluster.
	// +listType=atomic
	Placements []ContractPlacement `json:"placements,omitempty"`
	// Terms of the decision; absent if an earlier version of Sluice made it.
	Terms *Terms `json:"terms,omitempty"`
}

// ContractPlacement has the amounts of an instance on one cluster.
type ContractPlacement struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Replicas on that cluster, if the plan divides replicas.
	Replicas int32 `json:"replicas,omitempty"`
	// Components on that cluster, if the plan has components.
	// +listType=atomic
	Components []string `json:"components,omitempty"`
	// Reserved on that cluster.
	Reserved corev1.ResourceList `json:"reserved,omitempty"`
	// PricePerHour of the reservation when it was decided, if the cluster had a price list.
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`
	// Currency of PricePerHour.
	Currency string `json:"currency,omitempty"`
}

// Terms are the facts by which a decision was made, beside its amounts and prices. They change or are removed afterwards,
// so they are kept with the decision.
type Terms struct {
	// At is the time of the decision, by the clock of Sluice.
	At metav1.Time `json:"at"`
	// By is the end user of the last request that changed the instance, if the platform said who that is.
	By *OriginatingIdentity `json:"by,omitempty"`
	// ConsumerCredentials are the digests of those that proved the claims of the consumer, "sha256-<base64>", sorted.
	// +listType=atomic
	ConsumerCredentials []string `json:"consumerCredentials,omitempty"`
	// Offering is the name of the service offering.
	Offering string `json:"offering,omitempty"`
	// PlanDigest is the digest of the plan in the offering, "sha256-<base64>".
	PlanDigest string `json:"planDigest,omitempty"`
	// Policies that concerned the instance, by name.
	// +listType=atomic
	Policies []PolicyInForce `json:"policies,omitempty"`
	// Clusters that were chosen.
	// +listType=atomic
	Clusters []ClusterEvidence `json:"clusters,omitempty"`
}

// PolicyInForce names a PlacementPolicy as it was.
type PolicyInForce struct {
	// Name of the policy.
	Name string `json:"name"`
	// UID of the policy.
	UID string `json:"uid,omitempty"`
	// Generation of its spec.
	Generation int64 `json:"generation,omitempty"`
	// Digest of its spec, "sha256-<base64>".
	Digest string `json:"digest"`
}

// InForce names the policy as it is.
func (p *PlacementPolicy) InForce() PolicyInForce {
	return PolicyInForce{Name: p.Name, UID: string(UIDOf(p)), Generation: p.Generation + GenerationsBefore(p), Digest: DigestOf(p.Spec)}
}

// ClusterEvidence is the provider of one chosen cluster, and the proofs about it.
type ClusterEvidence struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Provider of the cluster.
	Provider string `json:"provider,omitempty"`
	// Credentials are the digests of those that proved the cluster's claims, "sha256-<base64>", sorted.
	// +listType=atomic
	Credentials []string `json:"credentials,omitempty"`
}

// MostContracts is the number of ended contracts beyond which a status' older ones move to the instance's journal, and
// MostJournalContracts the number beyond which the older half of a journal's moves to one of their own.
const (
	MostContracts        = 2
	MostJournalContracts = 64
)

// JournalContracts is the part of a journal's name that follows the UID, if it keeps nothing but older contracts.
const JournalContracts = ".contracts-"

// IsInForce reports whether the contract has not ended.
func (c *Contract) IsInForce() bool { return c.To == nil }

// LastContract returns the last contract; nil if there is none.
func LastContract(contracts []Contract) *Contract {
	if len(contracts) == 0 {
		return nil
	}
	return &contracts[len(contracts)-1]
}

// MergeContracts returns contracts with later ones added to them, by number: of two with the same number, only the later
// one. The arguments are not changed.
func MergeContracts(contracts, later []Contract) []Contract {
	merged := slices.DeleteFunc(slices.Clone(contracts), func(c Contract) bool {
		return slices.ContainsFunc(later, func(l Contract) bool { return l.Number == c.Number })
	})
	merged = append(merged, later...)
	slices.SortFunc(merged, func(a, b Contract) int { return int(a.Number - b.Number) })
	return merged
}

// Agreed returns the instance's contracts that its journal need not hold.
func (i *ServiceInstance) Agreed() *[]Contract { return &i.Status.Contracts }

// Of returns the evidence about a cluster; nil if there is none, and for nil.
func (t *Terms) Of(cluster string) *ClusterEvidence {
	if t == nil {
		return nil
	}
	for i := range t.Clusters {
		if t.Clusters[i].Cluster == cluster {
			return &t.Clusters[i]
		}
	}
	return nil
}

// DigestOf returns the SHA-256 digest of a value of this package as JSON, see SRI. The
// value is as an API server has accepted it, so it has a form in JSON.
func DigestOf(value any) string {
	document, _ := json.Marshal(value)
	return SRI(document)
}

// SRI returns the SHA-256 digest of bytes in the form of Subresource Integrity, "sha256-<base64>".
func SRI(of []byte) string {
	sum := sha256.Sum256(of)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
