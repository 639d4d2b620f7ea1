package v1alpha1

// WorkloadRules limit the pods of instances on the clusters that a policy concerns, whoever writes them: the plan, the
// consumer in its namespace, or the consumer's cluster over a virtual node. The clusters themselves refuse other pods.
// Absent fields limit nothing.
// +kubebuilder:validation:XValidation:rule="has(self.registries) || has(self.digests) || has(self.runtimeClasses) || has(self.capabilities)",message="workloads needs one of registries, digests, runtimeClasses and capabilities"
type WorkloadRules struct {
	// Registries that images come from: hosts, each with a path or without, for instance registry.example or
	// docker.io/library. A path includes those below it: registry.example/team allows registry.example/team/app, and
	// not registry.example/teams. Names of images without a host are docker.io's, and those without a path there are
	// in docker.io/library, as containerd reads them: nginx is docker.io/library/nginx.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^(localhost|[a-z0-9-]+(\.[a-z0-9-]+)+|[a-z0-9-]+(\.[a-z0-9-]+)*:[0-9]+)(/[a-z0-9._-]+)*$`
	// +listType=set
	Registries []string `json:"registries,omitempty"`
	// Digests requires images to be named by their digest (NAME@sha256:…).
	Digests bool `json:"digests,omitempty"`
	// RuntimeClasses that pods may name. The empty string stands for pods that name none, which run with the
	// default of their node; without it in the list, they are refused.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	// +listType=set
	RuntimeClasses []string `json:"runtimeClasses,omitempty"`
	// Capabilities that containers may add, of those that pods may add at all. NONE stands for none: [NONE] lets
	// containers add no capability.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Enum=NONE;AUDIT_WRITE;CHOWN;DAC_OVERRIDE;FOWNER;FSETID;KILL;MKNOD;NET_BIND_SERVICE;SETFCAP;SETGID;SETPCAP;SETUID;SYS_CHROOT
	// +listType=set
	Capabilities []string `json:"capabilities,omitempty"`
}

// CapabilityNone stands for no capability in WorkloadRules.
const CapabilityNone = "NONE"

// Annotations with the rules for the pods of a namespace on a member cluster: on the namespace of an instance, and on the
// NetworkPolicy of a namespace that Liqo has made. Each has a list, separated by commas; NothingAllowed stands for the
// empty list, and an absent annotation for no rule. AnnotationDigests is "true".
const (
	AnnotationRegistries     = "sluice.dev/registries"
	AnnotationDigests        = "sluice.dev/digests"
	AnnotationRuntimeClasses = "sluice.dev/runtime-classes"
	AnnotationCapabilities   = "sluice.dev/capabilities"
)

// NothingAllowed is the value of such an annotation if rules of several policies have nothing in common.
const NothingAllowed = "-"
