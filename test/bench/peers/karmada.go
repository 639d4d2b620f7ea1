package peers

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/hosted"
	"github.com/sluice-dev/sluice/test/loopback"
)

// karmadaHub are the objects that an administrator gives Karmada: the member in push mode, by its credentials, and a policy for all
// Deployments of the namespace.
const karmadaHub = `
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: member, finalizers: [karmada.io/cluster-controller]}
spec:
  id: member
  syncMode: Push
  apiEndpoint: %s
  secretRef: {namespace: karmada-cluster, name: member}
  impersonatorSecretRef: {namespace: karmada-cluster, name: member}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: peers}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}
`

var (
	clusterKind = schema.GroupVersionKind{Group: "cluster.karmada.io", Version: "v1alpha1", Kind: "Cluster"}
	bindingKind = schema.GroupVersionKind{Group: "work.karmada.io", Version: "v1alpha2", Kind: "ResourceBinding"}
)

// karmada orders by a Deployment each, which the policy for all propagates.
type karmada struct{ *hub }

// StartKarmada runs Karmada with a member cluster in push mode: the controller manager, the scheduler and the webhook
// beside the hub. It blocks until orders are taken.
func StartKarmada(ctx context.Context, folder string, cluster *controlplane.ControlPlane) (Peer, error) {
	h, err := newHub(ctx, "karmada", folder, cluster, controlplane.Options{
		// Those of Karmada's installation, and serviceaccount: the hub's Deployments must not run there.
		Controllers: []string{"namespace", "garbagecollector", "serviceaccount", "serviceaccount-token", "ttl-after-finished", "clusterrole-aggregation"},
	})
	if err != nil {
		return nil, err
	}
	k := &karmada{h}
	if err := k.start(ctx, folder, cluster); err != nil {
		_ = k.Stop() // after the error that matters
		return nil, err
	}
	return k, nil
}

func (k *karmada) start(ctx context.Context, folder string, cluster *controlplane.ControlPlane) error {
	files, err := filepath.Glob(filepath.Join(k.manifests, "*.io_*.yaml"))
	if err != nil {
		return err
	}
	if err := define(ctx, k.client, files...); err != nil {
		return err
	}
	for _, name := range []string{Namespace, "karmada-system", "karmada-cluster"} {
		if err := k.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	server, err := hosted.NewServer(filepath.Join(folder, "karmada-webhook"), loopback.Port())
	if err != nil {
		return err
	}
	kubeconfig := "--kubeconfig=" + k.kubeconfig
	unlimited := []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}
	for _, run := range []struct {
		program string
		flags   []string
	}{
		{"webhook", []string{"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", server.Port), "--cert-dir=" + server.Folder}},
		{"scheduler", []string{"--leader-elect=false"}},
		{"controller-manager", []string{"--leader-elect=false", "--cluster-status-update-frequency=10s", "--cluster-api-qps=1000", "--cluster-api-burst=2000"}},
	} {
		flags := append(run.flags, kubeconfig, "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
		if err := k.Run(filepath.Join(k.programs, run.program), nil, append(flags, unlimited...)...); err != nil {
			return err
		}
	}
	if err := server.Await(ctx); err != nil {
		return fmt.Errorf("the webhook: %w", err)
	}
	if err := k.call(ctx, server); err != nil {
		return err
	}
	return k.join(ctx, cluster)
}

// call installs Karmada's webhooks.
func (k *karmada) call(ctx context.Context, server *hosted.Server) error {
	documents, err := os.ReadFile(filepath.Join(k.manifests, "webhook-configuration.yaml"))
	if err != nil {
		return err
	}
	installed := strings.NewReplacer(
		"https://karmada-webhook.karmada-system.svc:443", server.URL(""),
		"{{caBundle}}", base64.StdEncoding.EncodeToString(server.Authority),
	)
	return k.apply(ctx, installed.Replace(string(documents)))
}

// join registers the member, and blocks until it is ready and has the namespace.
func (k *karmada) join(ctx context.Context, cluster *controlplane.ControlPlane) error {
	config := cluster.Config()
	there, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	token, err := controlplane.AdministratorToken(ctx, there, "karmada")
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "karmada-cluster", Name: member},
		StringData: map[string]string{"token": token},
		Data:       map[string][]byte{"caBundle": config.CAData},
	}
	if err := k.client.Create(ctx, secret); err != nil {
		return err
	}
	if err := k.apply(ctx, fmt.Sprintf(karmadaHub, config.Host)); err != nil {
		return err
	}
	return await(ctx, k.client, object(clusterKind, "", member), func(o *unstructured.Unstructured) bool { return hosted.HasCondition(o, "Ready") })
}

func (k *karmada) Order(ctx context.Context, d *appsv1.Deployment) error {
	d = d.DeepCopy()
	d.Namespace = Namespace
	return k.client.Create(ctx, d)
}

func (k *karmada) Settle(ctx context.Context, name string) error {
	return await(ctx, k.client, object(bindingKind, Namespace, name+"-deployment"), func(o *unstructured.Unstructured) bool { return hosted.HasCondition(o, "FullyApplied") })
}

func (k *karmada) Cancel(ctx context.Context, name string) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	return k.client.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationBackground))
}
