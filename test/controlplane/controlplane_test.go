package controlplane_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/test/controlplane"
)

const gpu = "nvidia.com/gpu"

func TestControlPlane(t *testing.T) {
	cp := controlplane.Start(t, controlplane.Options{Name: "eu-1", Nodes: []controlplane.Node{
		{Name: "plain", CPU: "4"},
		{Name: "accelerated", CPU: "4", Extended: map[string]string{gpu: "2"}, Labels: map[string]string{"tier": "edge"},
			Taints: []corev1.Taint{{Key: "reserved", Effect: corev1.TaintEffectNoSchedule}}},
	}})
	for _, test := range []struct {
		name string
		run  func(*testing.T, cluster)
	}{
		// Those that wait for seconds come first.
		{"a token may do what its role says and dies with its service account", aTokenDiesWithItsServiceAccount},
		{"a namespace ends with everything in it", aNamespaceEndsWithEverythingInIt},
		{"a node and its pod recover after they were given up", func(t *testing.T, c cluster) { aNodeAndItsPodRecover(t, c, cp) }},
		{"a pod is scheduled and runs", aPodIsScheduledAndRuns},
		{"a pod lands where its extended resource is", aPodLandsWhereItsExtendedResourceIs},
		{"a deleted pod is gone", aDeletedPodIsGone},
		{"a quota refuses the second pod", aQuotaRefusesTheSecondPod},
		{"a deployment becomes available", aDeploymentBecomesAvailable},
		{"a job completes", aJobCompletes},
		{"anonymous requests reach health and nothing else", anonymousRequestsReachHealthOnly},
		{"a node joins and leaves", func(t *testing.T, c cluster) { aNodeJoinsAndLeaves(t, c, cp) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newCluster(t, cp))
		})
	}
}

func aPodIsScheduledAndRuns(t *testing.T, c cluster) {
	c.create(t, pod("web"))
	got := c.running(t, "web")
	if got.Spec.NodeName != "plain" {
		t.Errorf("node is %q, want the one without a taint", got.Spec.NodeName)
	}
	if !strings.HasPrefix(got.Status.PodIP, "10.128.") || got.Status.HostIP == "" {
		t.Errorf("addresses are %q on %q, want one of the pod's own", got.Status.PodIP, got.Status.HostIP)
	}
}

func aPodLandsWhereItsExtendedResourceIs(t *testing.T, c cluster) {
	for _, name := range []string{"first", "too-many"} {
		p := pod(name)
		p.Spec.Tolerations = []corev1.Toleration{{Key: "reserved", Operator: corev1.TolerationOpExists}}
		p.Spec.NodeSelector = map[string]string{"tier": "edge"}
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: resource.MustParse("2")}
		c.create(t, p)
		if name == "first" {
			c.running(t, name)
		}
	}
	eventually(t, "the second pod is unschedulable", func(ctx context.Context) (bool, error) {
		got, err := c.CoreV1().Pods(c.namespace).Get(ctx, "too-many", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range got.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return strings.Contains(condition.Message, "Insufficient "+gpu), nil
			}
		}
		return false, nil
	})
}

func aDeletedPodIsGone(t *testing.T, c cluster) {
	c.create(t, pod("web"))
	c.running(t, "web")
	if err := c.CoreV1().Pods(c.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone", func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(c.namespace).Get(ctx, "web", metav1.GetOptions{})
		return gone(err)
	})
}

func aQuotaRefusesTheSecondPod(t *testing.T, c cluster) {
	_, err := c.CoreV1().ResourceQuotas(c.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "one-pod"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota is counted", func(ctx context.Context) (bool, error) {
		quota, err := c.CoreV1().ResourceQuotas(c.namespace).Get(ctx, "one-pod", metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) == 1, err
	})
	c.create(t, pod("first"))
	_, err = c.CoreV1().Pods(c.namespace).Create(t.Context(), pod("second"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: one-pod") {
		t.Errorf("second pod: %v, want it refused by the quota", err)
	}
}

func aDeploymentBecomesAvailable(t *testing.T, c cluster) {
	replicas, labels := int32(5), map[string]string{"app": "web"}
	_, err := c.AppsV1().Deployments(c.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "every replica is available", func(ctx context.Context) (bool, error) {
		deployment, err := c.AppsV1().Deployments(c.namespace).Get(ctx, "web", metav1.GetOptions{})
		return err == nil && deployment.Status.AvailableReplicas == replicas, err
	})
}

func aJobCompletes(t *testing.T, c cluster) {
	spec := pod("").Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := c.BatchV1().Jobs(c.namespace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "migrate"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job is complete", func(ctx context.Context) (bool, error) {
		job, err := c.BatchV1().Jobs(c.namespace).Get(ctx, "migrate", metav1.GetOptions{})
		return err == nil && job.Status.Succeeded == 1 && job.Status.CompletionTime != nil, err
	})
}

func aTokenDiesWithItsServiceAccount(t *testing.T, c cluster) {
	ctx, accounts := t.Context(), c.CoreV1().ServiceAccounts(c.namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.allow(t, "app", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
	seconds := int64(3600)
	request, err := accounts.CreateToken(ctx, "app", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = request.Status.Token
	app := kubernetes.NewForConfigOrDie(config)
	listConfigMaps := func(ctx context.Context) error {
		_, err := app.CoreV1().ConfigMaps(c.namespace).List(ctx, metav1.ListOptions{})
		return err
	}

	eventually(t, "the role is in force", func(ctx context.Context) (bool, error) { return listConfigMaps(ctx) == nil, nil })
	if _, err := app.CoreV1().Secrets(c.namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list secrets: %v, want it forbidden", err)
	}
	if err := accounts.Delete(ctx, "app", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	eventually(t, "the token is refused", func(ctx context.Context) (bool, error) {
		return apierrors.IsUnauthorized(listConfigMaps(ctx)), nil
	})
	t.Logf("the token outlived its ServiceAccount by %s", time.Since(deleted).Round(100*time.Millisecond))
}

func aNamespaceEndsWithEverythingInIt(t *testing.T, c cluster) {
	p := pod("web")
	grace := int64(1)
	p.Spec.TerminationGracePeriodSeconds = &grace
	c.create(t, p)
	c.running(t, "web")
	deleted := time.Now()
	if err := c.CoreV1().Namespaces().Delete(t.Context(), c.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		return gone(err)
	})
	t.Logf("the namespace was gone after %s", time.Since(deleted).Round(100*time.Millisecond))
	if _, err := c.CoreV1().Pods(c.namespace).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("pod: %v, want it gone with its namespace", err)
	}
}

func anonymousRequestsReachHealthOnly(t *testing.T, c cluster) {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(c.config))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/readyz":  http.StatusOK,
		"/livez":   http.StatusOK,
		"/version": http.StatusUnauthorized,
		"/api":     http.StatusUnauthorized,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.config.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("GET %s is %d, want %d", path, response.StatusCode, want)
		}
	}
}

func aNodeJoinsAndLeaves(t *testing.T, c cluster, cp *controlplane.ControlPlane) {
	late := ownNode("late")
	if err := cp.AddNode(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if err := cp.AddNode(t.Context(), late); !apierrors.IsAlreadyExists(err) {
		t.Errorf("adding it again: %v, want it to exist already", err)
	}
	c.create(t, podOn(late))
	c.running(t, late.Name)
	for range 2 {
		if err := cp.RemoveNode(t.Context(), "late"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.CoreV1().Nodes().Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("node: %v, want it gone", err)
	}
}

func aNodeAndItsPodRecover(t *testing.T, c cluster, cp *controlplane.ControlPlane) {
	lost := ownNode("lost")
	if err := cp.AddNode(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	c.create(t, podOn(lost))
	c.running(t, lost.Name)
	// What the node lifecycle controller does when heartbeats have been missing.
	nodeIsUnknown := []byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`)
	_, err := c.CoreV1().Nodes().
		Patch(t.Context(), lost.Name, types.StrategicMergePatchType, nodeIsUnknown, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	podIsUnready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	_, err = c.CoreV1().Pods(c.namespace).
		Patch(t.Context(), lost.Name, types.StrategicMergePatchType, podIsUnready, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "node and pod are ready", func(ctx context.Context) (bool, error) {
		node, err := c.CoreV1().Nodes().Get(ctx, lost.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if node.Status.NodeInfo.KubeletVersion == "" || node.Status.Allocatable.Cpu().IsZero() {
			return false, errors.New("the node has lost the rest of its status")
		}
		pod, err := c.CoreV1().Pods(c.namespace).Get(ctx, lost.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		nodeReady := slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
		podReady := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
		return nodeReady && podReady, nil
	})
}
