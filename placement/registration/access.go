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
// to it for the cluster's spec. Of the cluster only name, namespace, owner and driver count. Storing again replaces
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

// Secrets keeps the access in Secrets of a hub that has them. Owner is the field manager. A Secret to which another cluster
// refers is not replaced: names of Secrets follow from those of clusters, and "eu" with a reader has one that "eu-reader" has.
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
	of := cluster.Name
	for _, owner := range cluster.OwnerReferences {
		of = owner.Name
	}
	other, err := OtherUser(ctx, s.Client, client.ObjectKey{Namespace: cluster.Namespace, Name: of}, name)
	if err == nil && other != "" {
		err = fmt.Errorf("it has an access of cluster %s: give one of the two clusters another name", other)
	}
	if err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("store the access to it in Secret %s: %w", name, err)
	}
	secret := corev1ac.Secret(name, cluster.Namespace).WithData(map[string][]byte{key: access}).WithType(corev1.SecretTypeOpaque)
	if err := s.Client.Apply(ctx, secret, client.FieldOwner(s.Owner), client.ForceOwnership); err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("store the access to it in Secret %s: %w", name, err)
	}
	return v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: name, Key: key}}, nil
}

// SecretName returns the name of the Secret with the access to a member cluster.
func SecretName(cluster string) string { return "sluice-cluster-" + cluster }

// Holders returns the cluster and, beside it, MemberClusters whose accesses are the others that the cluster's spec has: the
// token for its reader and, if it has joined, the identity that it gave; in this order.
func Holders(cluster *v1alpha1.MemberCluster) []*v1alpha1.MemberCluster {
	holders := []*v1alpha1.MemberCluster{cluster, v1alpha1.ReaderIdentity(cluster)}
	if cluster.IsJoined() {
		holders = append(holders, v1alpha1.JoinedIdentity(cluster))
	}
	return holders
}

// OtherUser returns the name of a member cluster other than the named one that refers to a Secret; empty if there is none.
func OtherUser(ctx context.Context, c client.Reader, cluster client.ObjectKey, secret string) (string, error) {
	var all v1alpha1.MemberClusterList
	if err := c.List(ctx, &all, client.InNamespace(cluster.Namespace)); err != nil {
		return "", fmt.Errorf("list member clusters: %w", err)
	}
	for i := range all.Items {
		for _, holder := range Holders(&all.Items[i]) {
			if ref := holder.Spec.Access.SecretRef; ref != nil && ref.Name == secret && all.Items[i].Name != cluster.Name {
				return all.Items[i].Name, nil
			}
		}
	}
	return "", nil
}
