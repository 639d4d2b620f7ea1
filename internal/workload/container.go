package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/utils/ptr"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/podrules"
)

const (
	// annotationContent changes with the environment and the files of a component, so that its pods
	// are replaced when those do.
	annotationContent = "sluice.dev/content"
	// mostReplicas is the greatest number of pods of a component on one cluster.
	mostReplicas = 1000
)

func deadlineOf(c *v1alpha1.WorkloadContainer) (seconds int32) { return cmp.Or(c.DeadlineSeconds, 300) }

// StartsWithin returns how long a workload may take to start on a cluster, by the deadlines of its components; zero if they
// do not tell: one is no container, or its number of pods is an expression. The pods of a StatefulSet start one after another,
// each once the one that it replaces has ended.
func StartsWithin(plan *v1alpha1.WorkloadPlan) time.Duration {
	var longest time.Duration
	for i := range plan.Components {
		c, pods := plan.Components[i].Container, int32(1)
		if c == nil {
			return 0
		}
		counts := []*intstr.IntOrString{c.Replicas}
		if c.Autoscaling != nil {
			counts = append(counts, &c.Autoscaling.Max)
		}
		for _, count := range counts {
			switch {
			case count == nil:
			case count.Type == intstr.String:
				return 0
			default:
				pods = max(pods, count.IntVal)
			}
		}
		seconds := int64(deadlineOf(c))
		if len(c.Volumes) > 0 {
			seconds += ptr.Deref(c.GracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
		}
		longest = max(longest, time.Duration(pods)*time.Duration(seconds)*time.Second)
	}
	return longest
}

// container renders a container: what it reads (Secret), where it writes (PersistentVolumeClaims),
// its pods (Deployment, or StatefulSet with volumes), and how they are reached (Service).
func (r *rendering) container(c *v1alpha1.WorkloadContainer) {
	at := r.path.Child("container")
	template := r.pods(at, c)
	replicas := int32(1)
	if c.Replicas != nil {
		replicas = r.count(at.Child("replicas"), *c.Replicas, 0, mostReplicas)
	}
	selector := metav1ac.LabelSelector().WithMatchLabels(r.labels())
	if len(c.Volumes) > 0 {
		r.claims(at, c)
		r.add(appsv1ac.StatefulSet(r.component, r.namespace).WithLabels(r.labels()).WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(replicas).WithSelector(selector).WithServiceName(r.component).WithTemplate(template)))
	} else {
		spec := appsv1ac.DeploymentSpec().WithSelector(selector).WithTemplate(template).
			WithProgressDeadlineSeconds(deadlineOf(c)).WithRevisionHistoryLimit(2).
			WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RollingUpdateDeploymentStrategyType).WithRollingUpdate(
				appsv1ac.RollingUpdateDeployment().WithMaxSurge(intstr.FromInt32(1)).WithMaxUnavailable(intstr.FromInt32(0))))
		if c.Autoscaling == nil {
			spec.WithReplicas(replicas) // otherwise the autoscaler owns the number
		}
		r.add(appsv1ac.Deployment(r.component, r.namespace).WithLabels(r.labels()).WithSpec(spec))
	}
	if c.Autoscaling != nil {
		r.autoscaler(at.Child("autoscaling"), c.Autoscaling, replicas)
	}
	if len(r.ports) > 0 {
		r.service(r.component)
	}
}

// pods renders the template of the pods, and the Secret that they read.
func (r *rendering) pods(at *field.Path, c *v1alpha1.WorkloadContainer) *corev1ac.PodTemplateSpecApplyConfiguration {
	container := corev1ac.Container().WithName(r.component).WithImage(c.Image).
		WithCommand(r.texts(at.Child("command"), c.Command)...).WithArgs(r.texts(at.Child("args"), c.Args)...).
		WithSecurityContext(corev1ac.SecurityContext().WithAllowPrivilegeEscalation(false).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL")))
	resources := r.resources(at.Child("resources"), c.Resources)
	container.WithResources(corev1ac.ResourceRequirements().WithRequests(resources).WithLimits(resources))
	for _, p := range r.ports {
		container.WithPorts(corev1ac.ContainerPort().WithName(p.Name).WithProtocol(protocolOf(p)).WithContainerPort(containerPort(p)))
	}
	container.ReadinessProbe = r.probe(at.Child("readinessProbe"), r.readinessOf(c))
	container.StartupProbe = r.probe(at.Child("startupProbe"), c.StartupProbe)
	container.LivenessProbe = r.probe(at.Child("livenessProbe"), c.LivenessProbe)
	security := corev1ac.PodSecurityContext().WithRunAsNonRoot(true).
		WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
	if c.RunAsUser != nil {
		security.WithRunAsUser(*c.RunAsUser).WithRunAsGroup(*c.RunAsUser).WithFSGroup(*c.RunAsUser).
			WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch)
	}
	spec := corev1ac.PodSpec().WithAutomountServiceAccountToken(false).WithEnableServiceLinks(false).WithSecurityContext(security)
	r.end(c, container, spec)
	template := corev1ac.PodTemplateSpec().WithLabels(r.labels())
	if content := r.content(at, c, container, spec); content != nil {
		template.WithAnnotations(map[string]string{annotationContent: r.order.Secrets.fingerprint(content)})
	}
	for _, v := range c.Volumes {
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(v.Name).WithMountPath(v.MountPath))
		spec.WithVolumes(corev1ac.Volume().WithName(v.Name).WithPersistentVolumeClaim(
			corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(claimName(cmp.Or(r.volumesOf, r.component), v.Name))))
	}
	for i, folder := range c.Scratch {
		name := fmt.Sprintf("sluice-scratch-%d", i)
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(name).WithMountPath(folder))
		spec.WithVolumes(corev1ac.Volume().WithName(name).WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	}
	return template.WithSpec(spec.WithContainers(container))
}

// servesOn is the time in seconds that a pod goes on serving after its end was asked for. A node leads
// callers to it for up to a second more, a Gateway for about two.
const servesOn = 3

// sleeps reports whether the cluster knows hooks that sleep: from Kubernetes 1.30 on.
func (c Cluster) sleeps() bool {
	v, err := version.ParseGeneric(c.Kubernetes)
	return err == nil && v.AtLeast(version.MajorMinor(1, 30))
}

// end renders how a pod ends: while another one may replace it, it goes on serving before it is told to end, so that
// no caller is refused. Its program still has the whole grace period, as far as that is allowed.
func (r *rendering) end(c *v1alpha1.WorkloadContainer, container *corev1ac.ContainerApplyConfiguration, spec *corev1ac.PodSpecApplyConfiguration) {
	grace := c.GracePeriodSeconds
	if r.sleeps && len(r.ports) > 0 && len(c.Volumes) == 0 {
		container.WithLifecycle(corev1ac.Lifecycle().WithPreStop(corev1ac.LifecycleHandler().WithSleep(corev1ac.SleepAction().WithSeconds(servesOn))))
		seconds := ptr.Deref(grace, corev1.DefaultTerminationGracePeriodSeconds) + servesOn
		grace = ptr.To(min(seconds, int64(podrules.MaxGrace.Seconds())))
	}
	if grace != nil {
		spec.WithTerminationGracePeriodSeconds(*grace)
	}
}

// content renders the Secret with the environment and the files, and makes the pods read it. It
// returns its content; nil if there is none.
func (r *rendering) content(at *field.Path, c *v1alpha1.WorkloadContainer, container *corev1ac.ContainerApplyConfiguration, spec *corev1ac.PodSpecApplyConfiguration) []byte {
	if len(c.Env) == 0 && len(c.Files) == 0 {
		return nil
	}
	data := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		data["env."+name] = []byte(r.text(at.Child("env").Key(name), c.Env[name]))
		container.WithEnv(corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().
			WithSecretKeyRef(corev1ac.SecretKeySelector().WithName(r.component).WithKey("env." + name))))
	}
	const volume = "sluice-files"
	from := corev1ac.SecretVolumeSource().WithSecretName(r.component)
	for i, f := range c.Files {
		key := "file." + strconv.Itoa(i)
		data[key] = []byte(r.text(at.Child("files").Key(f.Path), f.Content))
		mode := int32(0o444)
		if f.Mode != nil {
			mode = *f.Mode
		}
		from.WithItems(corev1ac.KeyToPath().WithKey(key).WithPath(key).WithMode(mode))
		container.WithVolumeMounts(corev1ac.VolumeMount().WithName(volume).WithMountPath(path.Clean(f.Path)).WithSubPath(key).WithReadOnly(true))
	}
	if len(c.Files) > 0 {
		spec.WithVolumes(corev1ac.Volume().WithName(volume).WithSecret(from))
	}
	r.add(corev1ac.Secret(r.component, r.namespace).WithLabels(r.labels()).WithData(data))
	content, err := json.Marshal(data)
	r.fail(at, err)
	return content
}

// probe converts a probe to its apply configuration.
func (r *rendering) probe(at *field.Path, probe *corev1.Probe) *corev1ac.ProbeApplyConfiguration {
	if probe == nil {
		return nil
	}
	configuration := corev1ac.Probe()
	document, err := json.Marshal(probe)
	r.fail(at, err)
	r.fail(at, json.Unmarshal(document, configuration))
	return configuration
}

// readinessOf returns the readiness probe. By default, a connection to the first TCP port is one. It has to succeed twice, a
// second apart: a network applies NetworkPolicies to a new pod some time after the pod has its address, and refuses until then
// what they let in.
func (r *rendering) readinessOf(c *v1alpha1.WorkloadContainer) *corev1.Probe {
	if c.ReadinessProbe != nil {
		return c.ReadinessProbe
	}
	for _, p := range r.ports {
		if protocolOf(p) == corev1.ProtocolTCP {
			return &corev1.Probe{
				PeriodSeconds: 1, SuccessThreshold: 2,
				ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(p.Name)}},
			}
		}
	}
	return nil
}

// claims renders the claims of a component's volumes.
func (r *rendering) claims(at *field.Path, c *v1alpha1.WorkloadContainer) {
	for _, v := range c.Volumes {
		size := r.quantity(at.Child("volumes").Key(v.Name).Child("size"), v.Size)
		r.add(corev1ac.PersistentVolumeClaim(claimName(r.component, v.Name), r.namespace).WithLabels(r.labels()).
			WithSpec(corev1ac.PersistentVolumeClaimSpec().WithAccessModes(corev1.ReadWriteOnce).WithStorageClassName(v.StorageClass).
				WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))))
	}
}

func claimName(component, volume string) string { return component + "-" + volume }

func (r *rendering) autoscaler(at *field.Path, a *v1alpha1.WorkloadAutoscaling, least int32) {
	most := r.count(at.Child("max"), a.Max, max(least, 1), mostReplicas)
	r.add(autoscalingv2ac.HorizontalPodAutoscaler(r.component, r.namespace).WithLabels(r.labels()).
		WithSpec(autoscalingv2ac.HorizontalPodAutoscalerSpec().
			WithScaleTargetRef(autoscalingv2ac.CrossVersionObjectReference().WithAPIVersion("apps/v1").WithKind("Deployment").WithName(r.component)).
			WithMinReplicas(max(least, 1)).WithMaxReplicas(most).
			WithMetrics(autoscalingv2ac.MetricSpec().WithType(autoscalingv2.ResourceMetricSourceType).WithResource(
				autoscalingv2ac.ResourceMetricSource().WithName(corev1.ResourceCPU).WithTarget(
					autoscalingv2ac.MetricTarget().WithType(autoscalingv2.UtilizationMetricType).WithAverageUtilization(max(a.CPUPercent, 1)))))))
}

func (r *rendering) service(name string) {
	spec := corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP).WithSelector(r.labels())
	for _, p := range r.ports {
		spec.WithPorts(corev1ac.ServicePort().WithName(p.Name).WithPort(p.Port).WithProtocol(protocolOf(p)).WithTargetPort(intstr.FromInt32(containerPort(p))))
	}
	r.add(corev1ac.Service(name, r.namespace).WithLabels(r.labels()).WithSpec(spec))
}

// networkPolicy lets in the pods of the component itself, and at its ports those that their reach
// names; for public ports those of the Gateway. If everyPort, those of the instance are let in at every
// port.
func (r *rendering) networkPolicy(everyPort bool, exposure *v1alpha1.ClusterExposure) *networkingv1ac.NetworkPolicyApplyConfiguration {
	itself := networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(r.labels()))
	instance := networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector())
	spec := networkingv1ac.NetworkPolicySpec().WithPolicyTypes(networkingv1.PolicyTypeIngress).
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(r.labels())).
		WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithFrom(itself))
	if everyPort {
		spec.WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithFrom(instance))
	}
	for _, p := range r.ports {
		rule := networkingv1ac.NetworkPolicyIngressRule().
			WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(protocolOf(p)).WithPort(intstr.FromInt32(containerPort(p))))
		switch p.Reach {
		case v1alpha1.ReachComponent:
			continue
		case v1alpha1.ReachConsumer:
			rule.WithFrom(Ranges(r.order.Consumers)...)
		case v1alpha1.ReachPublic:
			rule.WithFrom(networkingv1ac.NetworkPolicyPeer().WithNamespaceSelector(metav1ac.LabelSelector().
				WithMatchLabels(map[string]string{corev1.LabelMetadataName: exposure.Gateway.PodNamespaceName()})))
		}
		spec.WithIngress(rule.WithFrom(Ranges(r.order.Share.callers(r.component))...).WithFrom(instance))
	}
	return networkingv1ac.NetworkPolicy(r.component, r.namespace).WithLabels(r.labels()).WithSpec(spec)
}

// Ranges returns peers of a NetworkPolicy: addresses, as CIDRs.
func Ranges(cidrs []string) (peers []*networkingv1ac.NetworkPolicyPeerApplyConfiguration) {
	for _, cidr := range cidrs {
		peers = append(peers, networkingv1ac.NetworkPolicyPeer().WithIPBlock(networkingv1ac.IPBlock().WithCIDR(cidr)))
	}
	return peers
}

func protocolOf(p v1alpha1.WorkloadPort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}

func containerPort(p v1alpha1.WorkloadPort) int32 {
	if p.ContainerPort == 0 {
		return p.Port
	}
	return p.ContainerPort
}

func (r *rendering) resources(at *field.Path, from map[string]intstr.IntOrString) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		out[corev1.ResourceName(name)] = r.quantity(at.Key(name), from[name])
	}
	return out
}

// quantity expands and parses an amount, which must be positive.
func (r *rendering) quantity(at *field.Path, from intstr.IntOrString) resource.Quantity {
	text := r.text(at, from.String())
	if r.err != nil {
		return resource.Quantity{}
	}
	amount, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		r.fail(at, fmt.Errorf("%q is not a quantity, for instance 500m or 1Gi", text))
	case amount.Sign() <= 0:
		r.fail(at, fmt.Errorf("%s: want more than 0", text))
	}
	return amount
}

// count expands and parses a whole number within limits.
func (r *rendering) count(at *field.Path, from intstr.IntOrString, least, most int32) int32 {
	text := r.text(at, from.String())
	if r.err != nil {
		return 0
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || int32(number) < least || int32(number) > most {
		r.fail(at, fmt.Errorf("%q is not a whole number from %d to %d", text, least, most))
	}
	return int32(number)
}
