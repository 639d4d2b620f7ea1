package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/internal/member"
)

// clusterFacts returns the values that tie a ClusterBinding to a cluster: the UID of its
// namespace kube-system, and the digest of its API server's public key.
func clusterFacts(ctx context.Context, kubeconfig string) (uid, keyHash string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return "", "", err
	}
	config.Timeout = clusterTimeout
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", "", err
	}
	namespace, err := clients.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", "", fmt.Errorf("read its namespace %s: %w", metav1.NamespaceSystem, err)
	}
	keyHash, err = member.KeyHash(ctx, config)
	if err != nil {
		return "", "", fmt.Errorf("read its API server's certificate: %w", err)
	}
	return string(namespace.UID), keyHash, nil
}
