package v1alpha1

// PeeringPlan describes what the consumer's own cluster gets. That is the member cluster
// that the parameter "cluster" names; by default, the only one that the consumer owns.
// +kubebuilder:validation:XValidation:rule="!has(self.offloading) || (self.gives == 'Node' && self.role == 'Transparent')",message="offloading extends a namespace on the consumer's cluster to its nodes, and so needs gives: Node and role: Transparent"
// +kubebuilder:validation:XValidation:rule="!(self.gives == 'Node' && self.role in ['HubAndSpoke', 'Opaque'])",message="a node of the consumer's cluster is peered directly: gives: Node needs role: Transparent"
type PeeringPlan struct {
	// Gives selects the result for the consumer. Node: a virtual node in its own cluster for each
	// chosen cluster. Network: a namespace as without peering, whose pods and Services its own cluster
	// can reach.
	// +kubebuilder:validation:Enum=Node;Network
	Gives PeeringGives `json:"gives"`
	// Role of the broker. Transparent: data flows directly between the consumer's cluster and the
	// chosen ones. HubAndSpoke: both are peered only with a hub (MemberCluster spec.liqo.hub),
	// which holds the namespace, and neither sees the other. Opaque: the instance is ordered from a pool
	// (MemberCluster spec.pool), which delivers it by its hub, on as few of its members as have the room, and the
	// consumer does not learn which these are.
	// +kubebuilder:validation:Enum=Transparent;HubAndSpoke;Opaque
	// +kubebuilder:default=Transparent
	Role BrokerRole `json:"role,omitempty"`
	// Offloading also gives the consumer a namespace on its own cluster, which is extended to the
	// chosen clusters and to no others.
	Offloading *Offloading `json:"offloading,omitempty"`
}

// PeeringGives is the result of a peering for the consumer.
type PeeringGives string

// BrokerRole is the broker's role in the data plane.
type BrokerRole string

// Values of PeeringGives and of BrokerRole.
const (
	GivesNode    PeeringGives = "Node"
	GivesNetwork PeeringGives = "Network"

	RoleTransparent BrokerRole = "Transparent"
	RoleHubAndSpoke BrokerRole = "HubAndSpoke"
	RoleOpaque      BrokerRole = "Opaque"
)

// ByHub reports whether instances are delivered by way of a hub, so that the consumer's pods run on virtual nodes of it.
func (p *PeeringPlan) ByHub() bool {
	return p != nil && (p.Role == RoleHubAndSpoke || p.Role == RoleOpaque)
}

// OnNodes reports whether the consumer's pods run on virtual nodes: of its own cluster, or of a hub.
func (p *PeeringPlan) OnNodes() bool { return p != nil && p.Gives == GivesNode || p.ByHub() }

// IsOpaque reports whether instances are ordered from pools.
func (p *PeeringPlan) IsOpaque() bool { return p != nil && p.Role == RoleOpaque }

// Offloading describes how a namespace is extended to virtual nodes, like Liqo's
// NamespaceOffloading.
// +kubebuilder:validation:XValidation:rule="(has(self.mapping) && self.mapping == 'SelectedName') == has(self.name)",message="name goes with mapping: SelectedName"
type Offloading struct {
	// Mapping of the namespace's name on the chosen clusters.
	// +kubebuilder:validation:Enum=DefaultName;EnforceSameName;SelectedName
	// +kubebuilder:default=DefaultName
	Mapping string `json:"mapping,omitempty"`
	// Name on the chosen clusters, with the mapping SelectedName.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Pods run on the consumer's own nodes (Local), on the virtual ones (Remote), or on both.
	// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
	// +kubebuilder:default=Remote
	Pods string `json:"pods,omitempty"`
}
