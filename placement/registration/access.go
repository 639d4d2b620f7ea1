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

// Keys in a Secret, of the kubeconfig of a cluster and of the credentials for a broker.
const kubeconfigKey, credentialsKey = "kubeconfig", "credentials"

// Store keeps the kubeconfig of a member cluster, or the credentials for a broker, and returns the reference
// to it for the cluster's spec. Of the cluster only name, namespace and driver count. Storing again replaces
// what is stored.
type Store interface {
	Store(ctx context.Context, cluster *v1alpha1.MemberCluster, access []byte) (v1alpha1.ClusterAccess, error)
}

// Sealed keeps the access in the resource itself, sealed with a hub's keyset.
type Sealed struct{ Keys *seal.Keyset }

// Store implements Store. It sends no request.
func (s Sealed) Store(_ context.Context, cluster *v1alpha1.MemberCluster, access []byte) (v1alpha1.ClusterAccess, error) {
	sealed, err := s.Keys.Seal(access, member.Owner(cluster.Namespace, cluster.Name))
	if err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("seal the access to it: %w", err)
	}
	if cluster.DriverName() == v1alpha1.DriverOSB {
		return v1alpha1.ClusterAccess{SealedCredentials: sealed}, nil
	}
	return v1alpha1.ClusterAccess{SealedKubeconfig: sealed}, nil
}

// Secrets keeps the access in Secrets of a hub that has them. Owner is the field manager.
type Secrets struct {
	Client client.Client
	Owner  string
}

// Store implements Store.
func (s Secrets) Store(ctx context.Context, cluster *v1alpha1.MemberCluster, access []byte) (v1alpha1.ClusterAccess, error) {
	name, key := SecretName(cluster.Name), kubeconfigKey
	if cluster.DriverName() == v1alpha1.DriverOSB {
		key = credentialsKey
	}
	secret := corev1ac.Secret(name, cluster.Namespace).WithData(map[string][]byte{key: access}).WithType(corev1.SecretTypeOpaque)
	if err := s.Client.Apply(ctx, secret, client.FieldOwner(s.Owner), client.ForceOwnership); err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("store the access to it in Secret %s: %w", name, err)
	}
	return v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: name, Key: key}}, nil
}

// SecretName returns the name of the Secret with the access to a member cluster.
func SecretName(cluster string) string { return "sluice-cluster-" + cluster }
