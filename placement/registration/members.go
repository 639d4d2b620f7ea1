package registration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
)

// Members makes the clusters that were created for instances member clusters of the hub, and takes them
// out again. All its state is on the hub, so that each method continues where a kill has stopped it.
type Members struct {
	// Client writes to the hub; Live reads from it without a cache.
	Client client.Client
	Live   client.Reader
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Connections to the management clusters and, through them, to what they created.
	Connections *member.Connections
	// Store keeps Sluice's access.
	Store Store
}

// often is how often a member cluster is looked at while it joins or leaves.
const often = time.Second

var _ capi.Members = (*Members)(nil)

// Join implements capi.Members: it registers Sluice on the cluster, adds it to the hub, and waits until it
// is ready.
func (m *Members) Join(ctx context.Context, management string, instance *v1alpha1.ServiceInstance, shape *v1alpha1.ClusterShape) error {
	found, err := m.find(ctx, instance.Name)
	if err != nil {
		return err
	}
	wanted := shape.MemberCluster(m.Namespace, instance.Name)
	switch {
	case found == nil && wanted == nil:
		return nil
	case wanted == nil, found != nil && (!found.DeletionTimestamp.IsZero() || differs(found, wanted)):
		if err := m.Leave(ctx, instance); err != nil || wanted == nil {
			return err
		}
		return joins(wanted.Name, "it has left, and joins anew")
	case found != nil:
		return isReady(found)
	}
	if wanted.Spec.Access, err = m.register(ctx, management, instance.Name, wanted); err != nil {
		return fmt.Errorf("cluster %s joins the inventory: %w", wanted.Name, err)
	}
	err = m.Client.Create(ctx, wanted)
	switch {
	case apierrors.IsAlreadyExists(err):
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("there is a member cluster %s already, and it was not created for this instance", wanted.Name),
			Remedy: "its operator has to remove it from the inventory",
		}
	case apierrors.IsInvalid(err):
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("the hub refuses the member cluster %s: %v", wanted.Name, err),
			Remedy: "the operator has to correct the member cluster that the plan or the policy describes",
		}
	case err != nil:
		return fmt.Errorf("cluster %s joins the inventory: %w", wanted.Name, err)
	}
	return joins(wanted.Name, "it is not ready yet")
}

// Joined implements capi.Members.
func (m *Members) Joined(ctx context.Context, instance *v1alpha1.ServiceInstance, shape *v1alpha1.ClusterShape) error {
	found, err := m.find(ctx, instance.Name)
	if err != nil {
		return err
	}
	wanted := shape.MemberCluster(m.Namespace, instance.Name)
	switch {
	case found == nil && wanted == nil:
		return nil
	case wanted == nil:
		return fmt.Errorf("cluster %s is still in the inventory", found.Name)
	case found == nil:
		return fmt.Errorf("cluster %s is not in the inventory", wanted.Name)
	case !found.DeletionTimestamp.IsZero(), differs(found, wanted):
		return fmt.Errorf("cluster %s is in the inventory as something else", found.Name)
	}
	return nil
}

// Leave implements capi.Members.
func (m *Members) Leave(ctx context.Context, instance *v1alpha1.ServiceInstance) error {
	found, err := m.find(ctx, instance.Name)
	if err != nil || found == nil {
		return err
	}
	pending := &delivery.PendingError{
		Step: "cluster " + found.Name + " leaves the inventory", Every: often,
		Consumer: "waiting until nothing is delivered to the cluster any more",
	}
	if found.DeletionTimestamp.IsZero() {
		if err := m.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cluster %s leaves the inventory: %w", found.Name, err)
		}
		return pending
	}
	if ready := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Reason == v1alpha1.ReasonDeleting {
		pending.Detail = ready.Message
	}
	return pending
}

// find returns the member cluster that was created for an instance; nil if there is none.
func (m *Members) find(ctx context.Context, instance string) (*v1alpha1.MemberCluster, error) {
	found := &v1alpha1.MemberCluster{}
	key := client.ObjectKey{Namespace: m.Namespace, Name: v1alpha1.InstanceClusterName(instance)}
	err := m.Live.Get(ctx, key, found)
	if apierrors.IsNotFound(err) || err == nil && !found.IsMadeFor(instance) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read member cluster %s: %w", key.Name, err)
	}
	return found, nil
}

// register registers Sluice on a cluster, and returns the access to it.
func (m *Members) register(ctx context.Context, management, instance string, as *v1alpha1.MemberCluster) (v1alpha1.ClusterAccess, error) {
	made, err := m.Connections.OfInstance(ctx, management, instance)
	if err != nil {
		return v1alpha1.ClusterAccess{}, err
	}
	manifest, err := Permissions(kube.ManifestOptions{}, as)
	if err != nil {
		return v1alpha1.ClusterAccess{}, err
	}
	kubeconfig, err := kube.Register(ctx, made.Config, manifest)
	if err != nil {
		return v1alpha1.ClusterAccess{}, err
	}
	return m.Store.Store(ctx, as, kubeconfig)
}

// differs reports whether a member cluster takes part otherwise than wanted. What operators change about
// it afterwards is theirs.
func differs(found, wanted *v1alpha1.MemberCluster) bool {
	return found.Spec.Driver != wanted.Spec.Driver || !equality.Semantic.DeepEqual(found.Spec.Consumers, wanted.Spec.Consumers)
}

func isReady(found *v1alpha1.MemberCluster) error {
	ready := meta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return joins(found.Name, "it is not ready yet")
	case ready.Status != metav1.ConditionTrue:
		return joins(found.Name, ready.Message)
	}
	return nil
}

func joins(name, detail string) *delivery.PendingError {
	return &delivery.PendingError{Step: "cluster " + name + " joins the inventory", Detail: detail, Consumer: "the cluster is there, and becomes a member cluster", Every: often}
}
