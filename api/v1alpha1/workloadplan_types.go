package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// WorkloadPlan is software that runs in a namespace of its own. Strings in components and
// credentials may contain CEL expressions, as in "postgres://${secrets.password}@${components.db.host}".
// They are written over these variables; $${ stands for a literal ${:
//
//	parameters  what the consumer chose, with the defaults of the schema
//	secrets     the instance's secrets, by name
//	components  by name, each with host, and ports by name; those with a public port also with public.host,
//	            public.port and, for HTTP, public.url (not in bindings)
//	instance    id, name, namespace, platform, organization, space, plan, version
//	cluster     name, provider, region, zone, tier, labels of the chosen cluster, and replicas: its share of
//	            those that the plan divides, otherwise 1 (not in credentials)
//	binding     id, name, application, parameters, secrets, results (only in bindings and credentials)
//	kubernetes  the credentials of the binding's account (only in credentials, if the plan has a role)
//	backup      id of a backup: letters and digits; expired: the ids that are no longer kept, a list (only in backup and
//	            restore)
//	target      url, username, password, ca of the place for backups, which the operator gives (only in backup and restore)
type WorkloadPlan struct {
	// Components run together on each chosen cluster.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	Components []WorkloadComponent `json:"components"`
	// Parameters that the consumer may set: a JSON Schema for each, by name. A default in it fills in
	// for a consumer that sets none. One that is writeOnly is sealed before it is stored, and never
	// shown again.
	// +kubebuilder:validation:MaxProperties=64
	Parameters map[string]ParameterSchema `json:"parameters,omitempty"`
	// Required lists the parameters that the consumer must set.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	Required []string `json:"required,omitempty"`
	// Secrets are generated once for each instance. They stay the same for its life, on any
	// cluster.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Secrets []WorkloadSecret `json:"secrets,omitempty"`
	// PullSecrets are users of registries, as which the images of all components and hooks are pulled.
	// +kubebuilder:validation:MaxItems=8
	PullSecrets []WorkloadPullSecret `json:"pullSecrets,omitempty"`
	// Backups says when the volumes are backed up apart from moves, and how many backups are kept. All
	// containers that have volumes need a backup and a restore.
	Backups *WorkloadBackups `json:"backups,omitempty"`
	// Bindings describes what is done for each binding.
	Bindings *WorkloadBindings `json:"bindings,omitempty"`
	// Credentials is the object that bindings return.
	// +kubebuilder:pruning:PreserveUnknownFields
	Credentials *runtime.RawExtension `json:"credentials,omitempty"`
}

// ParameterSchema is the JSON Schema of one parameter.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:Type=object
type ParameterSchema struct {
	runtime.RawExtension `json:",inline"`
}

// WorkloadSecret is a generated secret: letters and digits, from a cryptographic source.
type WorkloadSecret struct {
	// Name of the secret in expressions.
	// +kubebuilder:validation:Pattern=`^[a-z][a-zA-Z0-9]*$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Length in characters; each adds almost 6 bits.
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=1024
	// +kubebuilder:default=32
	Length int32 `json:"length,omitempty"`
}

// WorkloadPullSecret is a user of a registry. All fields may contain expressions; without a registry
// there is none.
type WorkloadPullSecret struct {
	// Registry that the user belongs to: HOST or HOST:PORT.
	// +kubebuilder:validation:MaxLength=512
	Registry string `json:"registry"`
	// Username of the user.
	// +kubebuilder:validation:MaxLength=512
	Username string `json:"username"`
	// Password of the user, usually a parameter that is writeOnly.
	// +kubebuilder:validation:MaxLength=512
	Password string `json:"password"`
}

// WorkloadBackups are the backups of a workload's volumes.
type WorkloadBackups struct {
	// Schedule of backups, as a cron expression in UTC, for instance "0 3 * * *". The workload is stopped
	// while one is made. Without a schedule, backups are made for moves only.
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule,omitempty"`
	// Keep is the number of complete backups that can be restored, at least one. The hook of the next backup
	// gets the IDs of older ones in backup.expired, and may delete them at the target.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=7
	Keep int32 `json:"keep,omitempty"`
}

// WorkloadBindings describes what is done in the instance for each binding, for instance that it gets
// a user of its own. binding.name in expressions is a word of letters and digits that no other
// binding has.
// +kubebuilder:validation:XValidation:rule="!has(self.results) || has(self.bind)",message="results are what a bind hook returns"
type WorkloadBindings struct {
	// Secrets are generated once for each binding.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	Secrets []WorkloadSecret `json:"secrets,omitempty"`
	// Bind runs before the binding returns its credentials. It may run more than once.
	Bind *WorkloadHook `json:"bind,omitempty"`
	// Unbind runs before the binding is gone; also if Bind has failed, or has never run. It may run
	// more than once. It does not run if the instance goes as a whole.
	Unbind *WorkloadHook `json:"unbind,omitempty"`
	// Results are the names of the values that Bind returns: it writes them into a Secret, which exists
	// at the URL in the environment variable SLUICE_RESULTS, as the
	// account of its pod. All together have at most 16 KiB. They are binding.results in credentials and
	// in Unbind, where those that were never returned are empty.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[a-z][a-zA-Z0-9]*$`
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Results []string `json:"results,omitempty"`
}

// WorkloadHook is a command that runs to its end, in a pod of the instance. An exit code other than 0
// is a failure: a bind then fails, an unbind is tried again.
type WorkloadHook struct {
	WorkloadProcess `json:",inline"`

	// TimeoutSeconds is how long it may run.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +kubebuilder:default=60
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
}

// WorkloadComponent is one part of a workload.
// +kubebuilder:validation:XValidation:rule="[has(self.container), has(self.manifests), has(self.chart)].exists_one(source, source)",message="a component has a container, manifests or a chart, one of the three"
// +kubebuilder:validation:XValidation:rule="!has(self.container) || !has(self.service)",message="the Service of a container has the component's name"
type WorkloadComponent struct {
	// Name of the component and of its Service: other components reach it by this name.
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
	// Ports that the component serves. A component without any is open to the whole instance, unless it
	// is a container.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.filter(p, has(p.reach) && p.reach == 'public').size() <= 1",message="a component has at most one public port"
	// +listType=map
	// +listMapKey=name
	Ports []WorkloadPort `json:"ports,omitempty"`
	// Service that serves the ports, if manifests or a chart call it otherwise than the component.
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Service string `json:"service,omitempty"`
	// Container runs one image. With ports, it has a Service.
	Container *WorkloadContainer `json:"container,omitempty"`
	// Manifests are objects of Kubernetes. Their strings may contain expressions; a string that is
	// one expression takes the type of its value.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:MinItems=1
	Manifests []Manifest `json:"manifests,omitempty"`
	// Chart of Helm, of which the component is a release; only in offerings of the operator.
	Chart *WorkloadChart `json:"chart,omitempty"`
}

// WorkloadChart is a Helm chart. Its release has the component's name.
type WorkloadChart struct {
	// From is the source from which the catalog reads the archive of the chart once: a file in the
	// folder that --charts names, for instance web-1.2.3.tgz, or oci://HOST/PATH:VERSION of a registry
	// that --chart-registry allows. After that the hub keeps the archive.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	From string `json:"from"`
	// Digest of the archive: sha256sum prints it, and helm push.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest"`
	// Values for the chart, over its own. Strings may contain expressions; a string that is one
	// expression takes the type of its value.
	// +kubebuilder:pruning:PreserveUnknownFields
	Values *runtime.RawExtension `json:"values,omitempty"`
	// Parameters are the values that the consumer may set, at the top level of the chart's values. They
	// are offered as the chart's values.schema.json describes them.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	Parameters []string `json:"parameters,omitempty"`
}

// Manifest is an object of Kubernetes, without a namespace.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:Type=object
type Manifest struct {
	runtime.RawExtension `json:",inline"`
}

// WorkloadContainer describes pods of one container. They run without privileges, as a user that is
// not root. With volumes they are one pod, which keeps its volumes.
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !has(self.replicas) || self.replicas == 1",message="a container with volumes has one replica"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || !has(self.volumes)",message="a container with volumes has one replica"
// +kubebuilder:validation:XValidation:rule="has(self.backup) == has(self.restore)",message="a backup needs a restore, and the other way round"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || has(self.volumes)",message="a backup is that of volumes"
type WorkloadContainer struct {
	WorkloadProcess `json:",inline"`

	// ReadinessProbe reports whether a pod takes traffic; StartupProbe, whether it has started;
	// LivenessProbe, whether it need not be restarted. Without a readiness probe, a TCP connection to
	// the first TCP port is one, which has to succeed twice, a second apart: so a network has the time
	// to apply NetworkPolicies to a new pod before it takes traffic.
	ReadinessProbe *corev1.Probe `json:"readinessProbe,omitempty"`
	StartupProbe   *corev1.Probe `json:"startupProbe,omitempty"`
	LivenessProbe  *corev1.Probe `json:"livenessProbe,omitempty"`
	// Volumes are persistent. The instance stays on the cluster that has them, unless they can be backed
	// up.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	Volumes []WorkloadVolume `json:"volumes,omitempty"`
	// Backup writes what the volumes contain to the target. Restore replaces what they contain, if anything,
	// by that. They run while no pod of the workload does, with the volumes at the same paths. With both for
	// each container that has volumes, the instance moves with its data, and operators can restore it. Both
	// may run more than once.
	Backup  *WorkloadHook `json:"backup,omitempty"`
	Restore *WorkloadHook `json:"restore,omitempty"`
	// Replicas is the number of pods: an integer, or a string with an expression.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:default=1
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`
	// Autoscaling changes the number of pods with their use of CPU, from Replicas up.
	Autoscaling *WorkloadAutoscaling `json:"autoscaling,omitempty"`
	// DeadlineSeconds is how long a change may make no progress before it fails. With volumes, each pod has this long to
	// become ready, and before that the grace period of the pod that it replaces.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	// +kubebuilder:default=300
	DeadlineSeconds int32 `json:"deadlineSeconds,omitempty"`
	// GracePeriodSeconds is how long a pod has to end once it was told to. One with ports and without volumes goes
	// on serving for three seconds before that, on Kubernetes 1.30 or later.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// WorkloadProcess is a container that runs alone in a pod.
type WorkloadProcess struct {
	// Image to run.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image"`
	// Command replaces the image's entrypoint.
	// +kubebuilder:validation:MaxItems=64
	Command []string `json:"command,omitempty"`
	// Args replace the image's arguments.
	// +kubebuilder:validation:MaxItems=64
	Args []string `json:"args,omitempty"`
	// Env are environment variables, by name. They are kept in a Secret.
	// +kubebuilder:validation:MaxProperties=128
	Env map[string]string `json:"env,omitempty"`
	// Files in the container's file system. They are kept in a Secret.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=path
	Files []WorkloadFile `json:"files,omitempty"`
	// Scratch are empty folders that a pod may write to. They count as ephemeral-storage of the pod.
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	Scratch []string `json:"scratch,omitempty"`
	// Resources of each pod, both requested and the limit: cpu, memory, ephemeral-storage and extended
	// resources; each a quantity, or a string with an expression.
	// +kubebuilder:validation:XValidation:rule="'cpu' in self && 'memory' in self",message="cpu and memory are needed"
	// +kubebuilder:validation:MaxProperties=16
	Resources map[string]intstr.IntOrString `json:"resources"`
	// RunAsUser is the user and the group of the processes, and the group of the volumes. Absent means
	// the image's user, which must not be root.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`
}

// WorkloadFile is a file in a container.
type WorkloadFile struct {
	// Path of the file, absolute.
	// +kubebuilder:validation:Pattern=`^/[^:]*[^/:]$`
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path"`
	// Content of the file.
	// +kubebuilder:validation:MaxLength=65536
	Content string `json:"content"`
	// Mode of the file, for instance 0555 (365 in JSON). Absent means 0444.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=511
	Mode *int32 `json:"mode,omitempty"`
}

// WorkloadPort is a port of a component.
// +kubebuilder:validation:XValidation:rule="!has(self.reach) || self.reach != 'public' || !has(self.protocol) || self.protocol == 'TCP'",message="a public port is TCP"
// +kubebuilder:validation:XValidation:rule="!has(self.appProtocol) || has(self.reach) && self.reach == 'public'",message="only a port with reach public has an appProtocol"
// +kubebuilder:validation:XValidation:rule="!has(self.host) || has(self.reach) && self.reach == 'public'",message="only a port with reach public has a host"
type WorkloadPort struct {
	// Name of the port, an IANA service name.
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name"`
	// Port of the Service.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// ContainerPort is the port in the pods; absent means Port.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ContainerPort int32 `json:"containerPort,omitempty"`
	// Protocol of the port.
	// +kubebuilder:validation:Enum=TCP;UDP
	// +kubebuilder:default=TCP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	// Reach selects the clients that may connect. component: the pods of the component. application:
	// all pods of the instance. consumer: also the consumer's own cluster, if the plan peers it.
	// public: also everyone else, through the Gateway of the cluster. A component has at
	// most one public port.
	// +kubebuilder:default=application
	Reach Reach `json:"reach,omitempty"`
	// Host is the first label of the host of a public port, for instance shop for
	// shop.apps.example.org, or a whole host in a domain of the consumer's own (MemberCluster
	// spec.exposure.domains). No two instances have the same. It may contain expressions over parameters.
	// Absent, or expanded to nothing, means one that is generated: the component's name and a digest of
	// the instance.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`
	// AppProtocol of a public port. http, the default: the Gateway has the certificate, and the pods get
	// plain HTTP. tls: the pods have the certificate; the Gateway passes TLS through to them, by
	// the host that clients name in it (SNI), whatever they speak inside. tcp: the Gateway passes everything
	// through to the pods, at a port that no other instance has on the cluster.
	AppProtocol AppProtocol `json:"appProtocol,omitempty"`
}

// AppProtocol is the protocol of a public port.
// +kubebuilder:validation:Enum=http;tls;tcp
type AppProtocol string

// Values of AppProtocol.
const (
	AppProtocolHTTP AppProtocol = "http"
	AppProtocolTLS  AppProtocol = "tls"
	AppProtocolTCP  AppProtocol = "tcp"
)

// Reach selects the clients that may connect to a port.
// +kubebuilder:validation:Enum=component;application;consumer;public
type Reach string

// Values of Reach.
const (
	ReachComponent   Reach = "component"
	ReachApplication Reach = "application"
	ReachConsumer    Reach = "consumer"
	ReachPublic      Reach = "public"
)

// WorkloadVolume is persistent storage of a component.
type WorkloadVolume struct {
	// Name of the volume.
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=20
	Name string `json:"name"`
	// MountPath in the container.
	// +kubebuilder:validation:Pattern=`^/[^:]*$`
	// +kubebuilder:validation:MaxLength=512
	MountPath string `json:"mountPath"`
	// StorageClass of the volume. Clusters without it are refused.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass"`
	// Size is a quantity, or a string with an expression. It may grow where the storage class allows
	// it, and never shrinks.
	// +kubebuilder:validation:XIntOrString
	Size intstr.IntOrString `json:"size"`
}

// WorkloadAutoscaling changes a number of pods.
type WorkloadAutoscaling struct {
	// Max is the greatest number of pods, for which room is reserved: an integer, or a string with an
	// expression.
	// +kubebuilder:validation:XIntOrString
	Max intstr.IntOrString `json:"max"`
	// CPUPercent of the request that the pods use on average.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=80
	CPUPercent int32 `json:"cpuPercent,omitempty"`
}
