package controlplane_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/test/controlplane"
)

// ownNode is a node that only its own pods are scheduled to.
func ownNode(name string) controlplane.Node {
	return controlplane.Node{
		Name:       name,
		Labels:     map[string]string{"own": name},
		Taints:     []corev1.Taint{{Key: "own", Value: name, Effect: corev1.TaintEffectNoSchedule}},
		ProviderID: "simulated://" + name,
	}
}

// podOn is a pod named like the only node it can be scheduled to.
func podOn(node controlplane.Node) *corev1.Pod {
	p := pod(node.Name)
	p.Spec.NodeSelector = node.Labels
	p.Spec.Tolerations = []corev1.Toleration{{Key: "own", Value: node.Name}}
	return p
}

// cluster is a control plane seen from a namespace of its own.
type cluster struct {
	*kubernetes.Clientset
	config    *rest.Config
	namespace string
}

func newCluster(t *testing.T, cp *controlplane.ControlPlane) cluster {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c := cluster{Clientset: kubernetes.NewForConfigOrDie(config), config: config}
	namespace, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.namespace = namespace.Name
	eventually(t, "the namespace has its service account", func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().ServiceAccounts(c.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	return c
}

func (c cluster) create(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if _, err := c.CoreV1().Pods(c.namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c cluster) running(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var got *corev1.Pod
	eventually(t, "pod "+name+" runs", func(ctx context.Context) (bool, error) {
		var err error
		got, err = c.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && got.Status.Phase == corev1.PodRunning, err
	})
	return got
}

func (c cluster) allow(t *testing.T, account string, rule rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: account}
	_, err := c.RbacV1().Roles(c.namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: meta,
		Rules:      []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.RbacV1().RoleBindings(c.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: c.namespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/app"}}},
	}
}

func gone(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, condition); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}
