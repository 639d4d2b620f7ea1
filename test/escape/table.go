// Package escape is what consumers try who want more than they bought: one table for the tests of
// every way in, a namespace plan and a virtual node.
package escape

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Year is longer than anybody waits, in seconds.
const Year = 31536000

// Row is one attempt: what makes the plain pod one that must be refused, and what the refusal says.
type Row struct {
	Name string
	Make func(*corev1.Pod)
	By   string
}

// Pod is a plain one, that every way in takes.
func Pod(namespace, name, image string) *corev1.Pod {
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken:  ptr.To(false),
			Containers: []corev1.Container{{
				Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits},
			}},
		},
	}
}

// Pods are the attempts by a pod.
func Pods() []Row {
	context := func(set func(*corev1.SecurityContext)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c := &corev1.SecurityContext{}
			set(c)
			p.Spec.Containers[0].SecurityContext = c
		}
	}
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
		}
	}
	tolerate := func(t corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
	}
	metadata := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)}}
	const volumes, nodes, ends = "volumes are configMap", "only tolerations of", "a pod ends within"
	return []Row{
		{"privileged", context(func(c *corev1.SecurityContext) { c.Privileged = ptr.To(true) }), "privileged containers"},
		{"privileged, to begin with", func(p *corev1.Pod) {
			first := p.Spec.Containers[0]
			first.Name, first.SecurityContext = "first", &corev1.SecurityContext{Privileged: ptr.To(true)}
			p.Spec.InitContainers = []corev1.Container{first}
		}, "privileged containers"},
		{"hostPath", volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), volumes},
		{"hostNetwork", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "namespaces of its node"},
		{"hostPID", func(p *corev1.Pod) { p.Spec.HostPID = true }, "namespaces of its node"},
		{"hostIPC", func(p *corev1.Pod) { p.Spec.HostIPC = true }, "namespaces of its node"},
		{"SYS_ADMIN", context(func(c *corev1.SecurityContext) {
			c.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}
		}), "capabilities"},
		{"every capability", context(func(c *corev1.SecurityContext) {
			c.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"ALL"}}
		}), "capabilities"},
		{"procMount", func(p *corev1.Pod) {
			p.Spec.HostUsers = ptr.To(false)
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ProcMount: ptr.To(corev1.UnmaskedProcMount)}
		}, "procMount"},
		{"a sysctl of the node", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, "sysctls"},
		{"a port of the node", func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
		}, "ports of the node"},
		{"seccomp off", context(func(c *corev1.SecurityContext) {
			c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}), "seccomp"},
		{"AppArmor off", context(func(c *corev1.SecurityContext) {
			c.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}), "AppArmor"},
		{"SELinux of the node", context(func(c *corev1.SecurityContext) { c.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} }), "SELinux"},
		{"nfs", volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "10.0.0.1", Path: "/"}}), volumes},
		{"iscsi", volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2001-04.com.example:storage"}}), volumes},
		{"cephfs", volume(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{Monitors: []string{"10.0.0.1"}}}), volumes},
		{"csi, inline", volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "nfs.csi.example"}}), volumes},
		{"gitRepo", volume(corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{Repository: "https://10.0.0.1/r"}}), volumes},
		{"flexVolume", volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example/flex"}}), volumes},
		{"a node of its choice", func(p *corev1.Pod) { p.Spec.NodeName = "control-plane" }, "the scheduler chooses"},
		{"tolerates everything", tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}), nodes},
		{"tolerates control planes", tolerate(corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}), nodes},
		{"tolerates nodes that are kept", tolerate(corev1.Toleration{Key: "dedicated", Value: "provider", Effect: corev1.TaintEffectNoSchedule}), nodes},
		{"ends in a year", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](Year) }, ends},
		{"ends in a year when its probe fails", func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
				TerminationGracePeriodSeconds: ptr.To[int64](Year), ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}},
			}
		}, ends},
		{"has the node probe the metadata address", func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: metadata}
		}, "probes and hooks"},
		{"has the node call the metadata address", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: metadata.HTTPGet}}
		}, "probes and hooks"},
		{"the priority of the system", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }, "priority of system pods"},
	}
}

// Attempt is one by another object.
type Attempt struct {
	Name                  string
	Group, Resource, Kind string
	Object                client.Object
	By                    string
}

// Objects are the attempts by anything else, in a namespace of the consumer's.
func Objects(namespace string) []Attempt {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "escape"}
	service := func(spec corev1.ServiceSpec) *corev1.Service {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
		return &corev1.Service{ObjectMeta: meta, Spec: spec}
	}
	held := meta
	held.Finalizers = []string{"example.com/hold"}
	return []Attempt{
		{"NodePort", "", "services", "Service", service(corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}), "ports"},
		{"LoadBalancer", "", "services", "Service", service(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}), "balancers"},
		{"external IPs", "", "services", "Service", service(corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}}), "external IPs"},
		{"Ingress", "networking.k8s.io", "ingresses", "Ingress", &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "a", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		}}, "ngress"},
		{"a finalizer of its own", "", "configmaps", "ConfigMap", &corev1.ConfigMap{ObjectMeta: held}, "consumers may not set finalizers"},
		{"a finalizer of Kubernetes' on what Kubernetes does not look at", "", "secrets", "Secret", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "escape", Finalizers: []string{"kubernetes.io/pvc-protection"}}}, "consumers may not set finalizers"},
		{"a large ConfigMap", "", "configmaps", "ConfigMap", &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": strings.Repeat("x", 300<<10)}}, "too large"},
		{"a large Secret, in characters of many bytes", "", "secrets", "Secret", &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"a": []byte(strings.Repeat("€", 100<<10))}}, "too large"},
		{"a large Service", "", "services", "Service", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "escape", Annotations: map[string]string{"a": strings.Repeat("x", 200<<10)}},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, "too large"},
	}
}
