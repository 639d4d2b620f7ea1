package kube

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/sluice-dev/sluice/placement/tenant"
)

// Limits on objects that a consumer writes.
const (
	// maxData is the size of a ConfigMap or Secret, in bytes as the API server reads it; maxObject
	// is that of all other objects. Multiplied by the counts in the quota, they limit what a plan
	// takes in etcd.
	maxData   = 256 << 10
	maxObject = 128 << 10
)

type (
	// Where selects the namespaces in which a guard applies.
	Where = admissionregistrationv1ac.MatchResourcesApplyConfiguration
	// What is operations on resources, see Matching.
	What = admissionregistrationv1ac.NamedRuleWithOperationsApplyConfiguration
)

const (
	create = admissionregistrationv1.Create
	change = admissionregistrationv1.Update
	remove = admissionregistrationv1.Delete
)

// PodsGuard is the admission policy for consumers' pods and for objects that become such pods.
// spec is the CEL expression of the pod spec in object. It enforces the level baseline of the
// Pod Security Standards (Kubernetes 1.34), and denies what that level allows but is unsafe on
// shared machines.
func PodsGuard(name, spec string, where *Where, what ...*What) []tenant.Object {
	policy := admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(what...)).
		// A pod that was admitted before may still be labelled, and may end.
		WithMatchConditions(admissionregistrationv1ac.MatchCondition().WithName("what-is-new").
			WithExpression("request.operation == 'CREATE' || object.spec != oldObject.spec")).
		WithVariables(
			variable("spec", spec),
			variable("containers", "variables.spec.?containers.orValue([]) + variables.spec.?initContainers.orValue([]) + variables.spec.?ephemeralContainers.orValue([])"),
			variable("contexts", "[variables.spec.?securityContext.orValue({})] + variables.containers.map(c, c.?securityContext.orValue({}))"),
			variable("probes", "variables.containers.map(c, c.?livenessProbe.orValue({})) + variables.containers.map(c, c.?readinessProbe.orValue({})) + variables.containers.map(c, c.?startupProbe.orValue({}))"),
			variable("hooks", "variables.containers.map(c, c.?lifecycle.?postStart.orValue({})) + variables.containers.map(c, c.?lifecycle.?preStop.orValue({}))"))
	for _, rule := range podRules {
		policy.WithValidations(Validation(rule.holds, rule.otherwise))
	}
	return Policy(name, policy, where)
}

func variable(name, expression string) *admissionregistrationv1ac.VariableApplyConfiguration {
	return admissionregistrationv1ac.Variable().WithName(name).WithExpression(expression)
}

// among returns a CEL list of strings.
func among(values ...string) string { return "['" + strings.Join(values, "', '") + "']" }

// podRules are the conditions for a pod, each with its error message.
var podRules = []struct{ holds, otherwise string }{
	// The level baseline:
	{"!variables.spec.?hostNetwork.orValue(false) && !variables.spec.?hostPID.orValue(false) && !variables.spec.?hostIPC.orValue(false)",
		"a pod has no namespaces of its node: hostNetwork, hostPID and hostIPC are refused"},
	{"variables.containers.all(c, c.?ports.orValue([]).all(p, p.?hostPort.orValue(0) == 0))",
		"ports of the node are not for sale: hostPort is refused"},
	{"variables.contexts.all(s, !s.?privileged.orValue(false))",
		"privileged containers are refused"},
	{"variables.contexts.all(s, s.?capabilities.?add.orValue([]).all(c, c in " + among("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID",
		"KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT") + "))",
		"capabilities beyond the default ones are refused"},
	{"variables.contexts.all(s, s.?procMount.orValue('Default') == 'Default')",
		"procMount other than Default is refused"},
	{"variables.contexts.all(s, s.?seccompProfile.?type.orValue('RuntimeDefault') != 'Unconfined')",
		"seccomp profile Unconfined is refused"},
	{"variables.contexts.all(s, s.?appArmorProfile.?type.orValue('RuntimeDefault') != 'Unconfined') && " +
		"object.metadata.?annotations.orValue({}).all(k, !k.startsWith('container.apparmor.security.beta.kubernetes.io/') || object.metadata.annotations[k] != 'unconfined')",
		"AppArmor profile Unconfined is refused"},
	{"variables.contexts.all(s, s.?seLinuxOptions.?type.orValue('') in " + among("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t") +
		" && s.?seLinuxOptions.?user.orValue('') == '' && s.?seLinuxOptions.?role.orValue('') == '')",
		"SELinux users, roles and types other than those of containers are refused"},
	{"variables.contexts.all(s, s.?sysctls.orValue([]).all(c, c.name in " + among("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range",
		"net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_syncookies") + "))",
		"sysctls that are not a pod's own are refused"},
	{"variables.contexts.all(s, !s.?windowsOptions.?hostProcess.orValue(false))",
		"host processes of Windows are refused"},
	{"(variables.probes + variables.hooks).all(h, h.?httpGet.?host.orValue('') == '' && h.?tcpSocket.?host.orValue('') == '')",
		"probes and hooks ask the pod itself: host is refused, as the node would ask it past every NetworkPolicy"},
	// Further rules:
	{"variables.spec.?volumes.orValue([]).all(v, v.all(k, k in " + among("name", "configMap", "secret", "emptyDir", "projected", "downwardAPI",
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

// maxGrace is tenant.MaxGrace in seconds.
const maxGrace = int64(tenant.MaxGrace / 1e9)

// EndsGuard denies deleting or evicting a pod with a longer grace period than the pod itself
// may have.
func EndsGuard(name string, where *Where) []tenant.Object {
	return Policy(name,
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				Matching("", "v1", "pods", remove), Matching("", "v1", "pods/eviction", create))).
			WithValidations(Validation(
				fmt.Sprintf("(request.operation == 'DELETE' ? request.?options.?gracePeriodSeconds : object.?deleteOptions.?gracePeriodSeconds).orValue(0) <= %d", maxGrace),
				fmt.Sprintf("a pod ends within %d s: gracePeriodSeconds is at most that", maxGrace))),
		where)
}

// ObjectsGuard limits the size of the objects that consumers write, and denies them to set
// finalizers, which nothing would remove. by is the CEL expression that reports whether a request
// comes from a consumer.
func ObjectsGuard(name, by string, where *Where, what ...*What) []tenant.Object {
	const finalizers = "dyn(object).metadata.?finalizers.orValue([])"
	return Policy(name,
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(what...)).
			WithVariables(
				variable("template", "dyn(object).?spec.?jobTemplate.?spec.?template.orValue(dyn(object).?spec.?template.orValue({}))"),
				variable("limit", fmt.Sprintf("request.resource.resource in %s ? %d : %d", among("configmaps", "secrets"), maxData, maxObject))).
			WithValidations(
				// Measured as text, because CEL cannot measure an object. An object that is too large
				// already may shrink.
				Validation("bytes('%s'.format([object])).size() <= variables.limit || "+
					"(request.operation == 'UPDATE' && bytes('%s'.format([object])).size() <= bytes('%s'.format([oldObject])).size())",
					fmt.Sprintf("the object is too large: a ConfigMap or Secret has %d KiB at most, anything else %d KiB", maxData>>10, maxObject>>10)),
				// The API server itself sets the finalizer of claims when a consumer creates
				// them.
				Validation("!("+by+") || "+finalizers+".all(f, (request.operation == 'UPDATE' && f in dyn(oldObject).metadata.?finalizers.orValue([])) || "+
					"(request.resource.resource == 'persistentvolumeclaims' && f == 'kubernetes.io/pvc-protection'))",
					"consumers may not set finalizers: nothing would remove them"),
				Validation("variables.template.?metadata.?finalizers.orValue([]).size() == 0 && "+
					"dyn(object).?spec.?volumeClaimTemplates.orValue([]).all(c, c.?metadata.?finalizers.orValue([]).size() == 0)",
					"templates may not have finalizers: nothing would remove them from the objects")),
		where)
}

// written are the kinds that consumers write.
func written() []*What {
	each := func(group, version string, resources ...string) *What {
		return Matching(group, version, resources[0], create, change).WithResources(resources[1:]...)
	}
	return []*What{
		each("", "v1", "configmaps", "persistentvolumeclaims", "pods", "secrets", "services"),
		each("apps", "v1", "daemonsets", "deployments", "replicasets", "statefulsets"),
		each("autoscaling", "*", "horizontalpodautoscalers"),
		each("batch", "v1", "cronjobs", "jobs"),
	}
}
