package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// podNamespace returns the namespace of this pod; empty if the service account is mounted
// without it.
func podNamespace() (string, error) {
	content, err := os.ReadFile(podNamespaceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the pod's namespace: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// connect makes a remote hub usable. It returns an error if the namespace or a definition is
// missing; the error names the command that creates it.
func (h *Hub) connect(ctx context.Context, o Options, crds fs.FS) error {
	h.Config.QPS = -1
	if h.Config.UserAgent == "" {
		h.Config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if err := h.ensureNamespace(ctx, o.InstallCRDs); err != nil {
		return err
	}
	wanted, err := readCRDs(crds)
	if err != nil {
		return err
	}
	if o.InstallCRDs {
		if err := applyCRDs(ctx, h.Config, wanted); err != nil {
			return err
		}
		if err := awaitServed(ctx, h.Config, wanted); err != nil {
			return err
		}
	} else if err := verifyCRDs(ctx, h.Config, wanted, o.Logger); err != nil {
		return err
	}
	return h.identify(ctx, o.moving)
}

// ensureNamespace checks that the namespace exists, and creates it if create is set. If Sluice
// may not read namespaces, that is no error: the namespace may still exist.
func (h *Hub) ensureNamespace(ctx context.Context, create bool) error {
	client, err := kubernetes.NewForConfig(h.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	_, err = client.CoreV1().Namespaces().Get(ctx, h.Namespace, metav1.GetOptions{})
	switch {
	case err == nil, apierrors.IsForbidden(err), hasNoNamespaces(err):
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get namespace %s: %w", h.Namespace, err)
	case !create:
		return fmt.Errorf("namespace %s does not exist; create it with: kubectl create namespace %[1]s", h.Namespace)
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.Namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", h.Namespace, err)
	}
	return nil
}

// hasNoNamespaces reports whether err means that the server does not have namespaces as
// objects: it is the embedded hub of another process, reached through its kubeconfig. There,
// every namespace exists.
func hasNoNamespaces(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
