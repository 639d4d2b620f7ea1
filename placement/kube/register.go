package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/tenant"
)

const (
	// tokenSecretName is the Secret with Sluice's token. Deleting it revokes the
	// token; registering again makes another.
	tokenSecretName = "sluice-token"
	// tokenPatience and guardPatience bound the waits for the cluster's token
	// controller and for its API server to enforce new admission policies.
	tokenPatience = 30 * time.Second
	guardPatience = 30 * time.Second
)

// Register applies Objects with an administrator's credentials and returns a minimal kubeconfig
// for Sluice: server, CA and the token of Sluice's ServiceAccount, which does not expire. It is
// idempotent: a repeat updates an older registration without changing its token. It blocks
// until the cluster has issued the token and enforces the admission policies, at most 30
// seconds each and usually one or two.
func Register(ctx context.Context, admin *rest.Config, o ManifestOptions) (kubeconfig []byte, err error) {
	c, err := client.New(admin, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("build the administrator's client: %w", err)
	}
	for _, object := range Objects(o) {
		err := tenant.ApplyTo(ctx, c, object)
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("%w: the cluster has no ValidatingAdmissionPolicy (Kubernetes before 1.30); register without admission policies only if a leaked Sluice token may reach all of its namespaces", err)
		}
		if err != nil {
			return nil, err
		}
	}
	secret, err := awaitToken(ctx, c, o.namespace(), tokenPatience)
	if err != nil {
		return nil, err
	}
	kubeconfig, err = leastKubeconfig(admin, secret)
	if err != nil || o.WithoutAdmissionPolicies {
		return kubeconfig, err
	}
	return kubeconfig, awaitGuard(ctx, kubeconfig)
}

// awaitGuard dry-runs a request that the policy sluice-own-namespaces must refuse, until it is
// refused. API servers enforce a new policy after about a second. If there are several, only
// one of them is checked.
func awaitGuard(ctx context.Context, kubeconfig []byte) error {
	config, err := member.Config(kubeconfig)
	if err != nil {
		return fmt.Errorf("use the new kubeconfig: %w", err)
	}
	sluice, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("build Sluice's client: %w", err)
	}
	unlabelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sluice-must-not-"}}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, guardPatience, true, func(ctx context.Context) (bool, error) {
		last = sluice.Create(ctx, unlabelled.DeepCopy(), client.DryRunAll)
		// A forbidden request means that the permissions are not seen yet; only an invalid one
		// was refused by the policy.
		return apierrors.IsInvalid(last), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the admission policy %s is enforced: %w", ownNamespacesName, errors.Join(err, last))
	}
	return nil
}

// awaitToken waits until the cluster has put a token into the Secret. It retries if the API server does not
// answer, and fails at once if the request is forbidden.
func awaitToken(ctx context.Context, c client.Reader, namespace string, patience time.Duration) (*corev1.Secret, error) {
	var secret corev1.Secret
	var fault error // of the last failed try
	var seen bool
	key := client.ObjectKey{Namespace: namespace, Name: tokenSecretName}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, &secret)
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return false, err
		case err == nil:
			seen, fault = true, nil
		case ctx.Err() == nil:
			fault = err
		}
		return err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) > 0, nil
	})
	switch {
	case err == nil:
		return &secret, nil
	case ctx.Err() != nil || !wait.Interrupted(err):
		return nil, fmt.Errorf("wait for the token in Secret %s: %w", key, err)
	case seen && fault == nil:
		return nil, fmt.Errorf("wait for the token in Secret %s: none has come within %s: the cluster's kube-controller-manager puts it there (its controller serviceaccount-token); "+
			"see that it runs, has --service-account-private-key-file, and does not leave that controller out, then try again", key, patience)
	}
	return nil, fmt.Errorf("wait for the token in Secret %s: the API server has not answered within %s, try again: %w", key, patience, fault)
}

// leastKubeconfig takes only server and CA from the administrator's configuration.
func leastKubeconfig(admin *rest.Config, secret *corev1.Secret) ([]byte, error) {
	config := rest.CopyConfig(admin)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the administrator's CA file: %w", err)
	}
	authority := config.CAData
	if config.Insecure {
		// Sluice always verifies the certificate. Without a CA in the configuration, the
		// cluster's own CA is used.
		authority = secret.Data[corev1.ServiceAccountRootCAKey]
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's server: %w", err)
	}
	if server.Scheme != "https" {
		return nil, errors.New("the administrator's server is not https")
	}
	return member.Kubeconfig{Server: server.String(), CA: authority, TLSServerName: config.ServerName, Token: string(secret.Data[corev1.ServiceAccountTokenKey])}.Marshal()
}
