package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	corev1 "k8s.io/api/core/v1"
)

const (
	// EnvResults is the environment variable with the URL at which a hook writes its results.
	EnvResults = "SLUICE_RESULTS"
	// mostResults is the greatest size of the results of a hook, in bytes.
	mostResults = 16 << 10
	// accountPath is the folder in which Kubernetes' clients look for the token of their pod.
	accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	// leastToken is the shortest lifetime of a token in seconds that Kubernetes gives.
	leastToken = 600
)

// APIServer is the address at which the pods of a cluster reach its API server.
type APIServer struct {
	// Addresses of the API server, as CIDRs.
	Addresses []string
	Ports     []int32
}

// ResultsName is the name of the Secret into which the bind hook of the order's binding writes its
// results; "" if it returns none.
func (o *Order) ResultsName() string {
	if !o.returns(HookBind) {
		return ""
	}
	name, _ := o.binding["name"].(string)
	return "results-" + name
}

// Results reads what a bind hook has written. The error says to end users what is wrong with it, and
// contains no value.
func (o *Order) Results(data map[string][]byte) (map[string]string, error) {
	results, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(data)) {
		size += len(name) + len(data[name])
		switch {
		case !slices.Contains(o.Plan.Bindings.Results, name):
			return nil, fmt.Errorf("it returned %.63q, which is not among the results of the plan", name)
		case !utf8.Valid(data[name]):
			return nil, fmt.Errorf("it returned a value for %s that is no text", name)
		}
		results[name] = string(data[name])
	}
	if size > mostResults {
		return nil, fmt.Errorf("its results have %d bytes, more than %d", size, mostResults)
	}
	for _, name := range o.Plan.Bindings.Results {
		if results[name] == "" {
			return nil, fmt.Errorf("it returned nothing for %s", name)
		}
	}
	return results, nil
}

// returning renders what a hook needs to return results: a Secret, an account that may write it and
// nothing else, and the way to the API server. The token of the account ends with the pod.
func (r *rendering) returning(pod *corev1ac.PodSpecApplyConfiguration, api APIServer) {
	account, secret := r.component, r.order.ResultsName()
	nothing := map[string][]byte{} // over what a former hook of this name may have left
	for _, name := range r.order.Plan.Bindings.Results {
		nothing[name] = []byte{}
	}
	r.add(corev1ac.Secret(secret, r.namespace).WithLabels(r.labels()).WithData(nothing))
	r.add(corev1ac.ServiceAccount(account, r.namespace).WithLabels(r.labels()).WithAutomountServiceAccountToken(false))
	r.add(rbacv1ac.Role(account, r.namespace).WithLabels(r.labels()).WithRules(
		rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("secrets").WithResourceNames(secret).WithVerbs("get", "patch")))
	r.add(rbacv1ac.RoleBinding(account, r.namespace).WithLabels(r.labels()).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(r.namespace).WithName(account)).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(account)))
	policy := networkingv1ac.NetworkPolicySpec().WithPolicyTypes(networkingv1.PolicyTypeEgress).
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(r.labels()))
	if len(api.Addresses) > 0 {
		rule := networkingv1ac.NetworkPolicyEgressRule().WithTo(Ranges(api.Addresses)...)
		for _, port := range api.Ports {
			rule.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(port)))
		}
		policy.WithEgress(rule)
	}
	r.add(networkingv1ac.NetworkPolicy(account, r.namespace).WithLabels(r.labels()).WithSpec(policy))

	const volume = "sluice-account"
	pod.WithServiceAccountName(account).WithVolumes(corev1ac.Volume().WithName(volume).WithProjected(corev1ac.ProjectedVolumeSource().WithSources(
		corev1ac.VolumeProjection().WithServiceAccountToken(corev1ac.ServiceAccountTokenProjection().WithPath("token").WithExpirationSeconds(leastToken)),
		corev1ac.VolumeProjection().WithConfigMap(corev1ac.ConfigMapProjection().WithName("kube-root-ca.crt").
			WithItems(corev1ac.KeyToPath().WithKey("ca.crt").WithPath("ca.crt"))),
		corev1ac.VolumeProjection().WithDownwardAPI(corev1ac.DownwardAPIProjection().WithItems(corev1ac.DownwardAPIVolumeFile().
			WithPath("namespace").WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.namespace")))),
	)))
	pod.Containers[0].WithVolumeMounts(corev1ac.VolumeMount().WithName(volume).WithMountPath(accountPath).WithReadOnly(true))
	pod.Containers[0].WithEnv(corev1ac.EnvVar().WithName(EnvResults).WithValue(
		fmt.Sprintf("https://kubernetes.default.svc/api/v1/namespaces/%s/secrets/%s", r.namespace, secret)))
}

// isRight reports whether an object of a hook is one that only Sluice makes.
func isRight(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetAPIVersion(), rbacv1.GroupName+"/") || o.GetKind() == rbacv1.ServiceAccountKind
}
