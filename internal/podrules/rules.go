package podrules

import (
	"fmt"
	"strings"
	"time"
)

// MaxGrace is the longest grace period of a consumer's pod.
const MaxGrace = 10 * time.Minute

// maxGrace is MaxGrace in seconds.
const maxGrace = int64(MaxGrace / time.Second)

// Variable is a named CEL expression that rules and later variables refer to as variables.NAME. They
// are over object, the pod or what makes it, over request, as in Kubernetes' admission policies, and
// over variables.spec, the pod spec in object.
type Variable struct{ Name, Expression string }

// Variables of the rules, beside spec.
var Variables = []Variable{
	{"containers", "variables.spec.?containers.orValue([]) + variables.spec.?initContainers.orValue([]) + variables.spec.?ephemeralContainers.orValue([])"},
	{"contexts", "[variables.spec.?securityContext.orValue({})] + variables.containers.map(c, c.?securityContext.orValue({}))"},
	{"probes", "variables.containers.map(c, c.?livenessProbe.orValue({})) + variables.containers.map(c, c.?readinessProbe.orValue({})) + variables.containers.map(c, c.?startupProbe.orValue({}))"},
	{"hooks", "variables.containers.map(c, c.?lifecycle.?postStart.orValue({})) + variables.containers.map(c, c.?lifecycle.?preStop.orValue({}))"},
}

// Rule is a condition for a pod, and the error message for pods that do not meet it.
type Rule struct{ Holds, Otherwise string }

// Rules are the conditions for consumers' pods. They are the level baseline of the Pod Security
// Standards (Kubernetes 1.34), and deny what that level allows but is unsafe on shared machines.
var Rules = []Rule{
	// The level baseline:
	{"!variables.spec.?hostNetwork.orValue(false) && !variables.spec.?hostPID.orValue(false) && !variables.spec.?hostIPC.orValue(false)",
		"a pod has no namespaces of its node: hostNetwork, hostPID and hostIPC are refused"},
	{"variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))",
		"ports of the node are not for sale: hostPort is refused"},
	{"variables.contexts.all(s, !s.?privileged.orValue(false))",
		"privileged containers are refused"},
	{"variables.contexts.all(s, s.?capabilities.?add.orValue([]).all(c, c in " + Among("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID",
		"KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT") + "))",
		"capabilities beyond the default ones are refused"},
	{"variables.contexts.all(s, s.?procMount.orValue('Default') == 'Default')",
		"procMount other than Default is refused"},
	{"variables.contexts.all(s, s.?seccompProfile.?type.orValue('RuntimeDefault') != 'Unconfined')",
		"seccomp profile Unconfined is refused"},
	{"variables.contexts.all(s, s.?appArmorProfile.?type.orValue('RuntimeDefault') != 'Unconfined') && " +
		"object.metadata.?annotations.orValue({}).all(k, !k.startsWith('container.apparmor.security.beta.kubernetes.io/') || object.metadata.annotations[k] != 'unconfined')",
		"AppArmor profile Unconfined is refused"},
	{"variables.contexts.all(s, s.?seLinuxOptions.?type.orValue('') in " + Among("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t") +
		" && s.?seLinuxOptions.?user.orValue('') == '' && s.?seLinuxOptions.?role.orValue('') == '')",
		"SELinux users, roles and types other than those of containers are refused"},
	{"variables.contexts.all(s, s.?sysctls.orValue([]).all(c, c.name in " + Among("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range",
		"net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_syncookies") + "))",
		"sysctls that are not a pod's own are refused"},
	{"variables.contexts.all(s, !s.?windowsOptions.?hostProcess.orValue(false))",
		"host processes of Windows are refused"},
	{"(variables.probes + variables.hooks).all(h, h.?httpGet.?host.orValue('') == '' && h.?tcpSocket.?host.orValue('') == '')",
		"probes and hooks ask the pod itself: host is refused, as the node would ask it past every NetworkPolicy"},
	// Further rules:
	{"variables.spec.?volumes.orValue([]).all(v, v.all(k, k in " + Among("name", "configMap", "secret", "emptyDir", "projected", "downwardAPI",
		"persistentVolumeClaim", "ephemeral") + "))",
		"volumes are configMap, secret, emptyDir, projected, downwardAPI, persistentVolumeClaim or ephemeral: others the node mounts from its own disks, or over the network past every NetworkPolicy"},
	{"variables.spec.?nodeName.orValue('') == '' || (request.operation == 'UPDATE' && request.resource.resource == 'pods' && object.spec.?nodeName == oldObject.spec.?nodeName)",
		"the scheduler chooses nodes: nodeName is refused"},
	// A node's taints protect it from the workloads of consumers. Tolerations of the taints that
	// name what was bought are allowed.
	{"variables.spec.?tolerations.orValue([]).all(t, t.?key.orValue('').startsWith('node.kubernetes.io/') || t.?key.orValue('').startsWith('virtual-node.liqo.io/') || " +
		"variables.containers.exists(c, t.?key.orValue('') in c.?resources.?limits.orValue({})))",
		"only tolerations of node.kubernetes.io/ taints and of devices that the pod requests are allowed: others reach nodes that are not for sale"},
	{fmt.Sprintf("variables.spec.?terminationGracePeriodSeconds.orValue(30) <= %d && variables.probes.all(p, p.?terminationGracePeriodSeconds.orValue(0) <= %[1]d)", maxGrace),
		fmt.Sprintf("a pod ends within %d s: terminationGracePeriodSeconds is at most that", maxGrace)},
	{"!variables.spec.?priorityClassName.orValue('').startsWith('system-')",
		"the priority of system pods is not for sale"},
}

// Among returns a CEL list of strings.
func Among(values ...string) string { return "['" + strings.Join(values, "', '") + "']" }
