package registration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

// kubeconfigKey is the key of the kubeconfig in a Secret.
const kubeconfigKey = "kubeconfig"

// Store keeps the kubeconfig of a member cluster, of which only name and namespace count, and
// returns the reference to it for the cluster's spec. Storing again replaces what is stored.
type Store interface {
	Store(ctx context.Context, cluster *v1alpha1.MemberCluster, kubeconfig []byte) (v1alpha1.ClusterAccess, error)
}

// Sealed keeps kubeconfigs in the resource itself, sealed with a hub's keyset.
type Sealed struct{ Keys *seal.Keyset }

// Store implements Store. It sends no request.
func (s Sealed) Store(_ context.Context, cluster *v1alpha1.MemberCluster, kubeconfig []byte) (v1alpha1.ClusterAccess, error) {
	sealed, err := s.Keys.Seal(kubeconfig, member.Owner(cluster.Namespace, cluster.Name))
	if err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("seal its kubeconfig: %w", err)
	}
	return v1alpha1.ClusterAccess{SealedKubeconfig: sealed}, nil
}

// Secrets keeps kubeconfigs in Secrets of a hub that has them. Owner is the field manager.
type Secrets struct {
	Client client.Client
	Owner  string
}

// Store implements Store.
func (s Secrets) Store(ctx context.Context, cluster *v1alpha1.MemberCluster, kubeconfig []byte) (v1alpha1.ClusterAccess, error) {
	name := SecretName(cluster.Name)
	secret := corev1ac.Secret(name, cluster.Namespace).WithData(map[string][]byte{kubeconfigKey: kubeconfig}).WithType(corev1.SecretTypeOpaque)
	if err := s.Client.Apply(ctx, secret, client.FieldOwner(s.Owner), client.ForceOwnership); err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("store its kubeconfig in Secret %s: %w", name, err)
	}
	return v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: name, Key: kubeconfigKey}}, nil
}

// SecretName returns the name of the Secret with the kubeconfig of a member cluster.
func SecretName(cluster string) string { return "sluice-cluster-" + cluster }
