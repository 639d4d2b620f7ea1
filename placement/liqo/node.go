package liqo

import (
	"context"
	"fmt"
	"slices"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// defaultPods is the pod capacity of a node whose plan has no pod count: the kubelet's default.
const defaultPods = 110

// sliceOf returns the resources of a ResourceSlice for a reservation: without persistent
// storage, which nodes do not have, and with pods, without which a node runs none.
func sliceOf(reserved corev1.ResourceList) corev1.ResourceList {
	slice := corev1.ResourceList{}
	for name, quantity := range reserved {
		if !v1alpha1.IsStorage(name) {
			slice[name] = quantity
		}
	}
	if _, said := slice[corev1.ResourcePods]; !said {
		slice[corev1.ResourcePods] = *resource.NewQuantity(defaultPods, resource.DecimalSI)
	}
	return slice
}

// ensureNode gives the consumer a virtual node for a placement. It requests the slice, judges
// it, and waits until the node has the reserved resources.
func ensureNode(ctx context.Context, consumer, provider *side, d delivery.Delivery, selectable []string) error {
	node := d.Placement.Peering.Node
	meta := consumer.meta(node)
	meta.Labels[consts.ReplicationRequestedLabel] = consts.ReplicationRequestedLabelValue
	meta.Labels[consts.ReplicationDestinationLabel] = provider.own.ClusterID
	meta.Labels[v1alpha1.LabelInstance] = d.Instance.Name
	meta.Annotations = map[string]string{consts.CreateVirtualNodeAnnotation: "true"}
	want := sliceOf(d.Placement.Reserved)
	err := consumer.apply(ctx, &authv1beta1.ResourceSlice{ObjectMeta: meta, Spec: authv1beta1.ResourceSliceSpec{Class: names.Class, Resources: want}})
	if err != nil {
		return err
	}
	if err := judgeOne(ctx, provider, node, &d.Placement, d.Instance, selectable); err != nil {
		return err
	}
	return consumer.hasNode(ctx, node, want)
}

// hasNode returns nil while the virtual node is ready and has exactly the wanted resources.
func (s *side) hasNode(ctx context.Context, name string, want corev1.ResourceList) error {
	node := &corev1.Node{}
	err := s.Get(ctx, client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		return s.pending("virtual node "+name, s.whyNoNode(ctx, name))
	}
	if err != nil {
		return s.failed(fmt.Errorf("read node %s: %w", name, err))
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		return s.pending("virtual node "+name, "it is not ready yet")
	}
	for resource, quantity := range want {
		if has := node.Status.Allocatable[resource]; has.Cmp(quantity) != 0 {
			return s.pending("virtual node "+name, fmt.Sprintf("it has %s %s, and should have %s", &has, resource, &quantity))
		}
	}
	return nil
}

// whyNoNode returns Liqo's message about a slice that has no node yet.
func (s *side) whyNoNode(ctx context.Context, name string) string {
	slice := &authv1beta1.ResourceSlice{}
	if err := s.get(ctx, name, slice); err != nil {
		return err.Error()
	}
	detail := ""
	for _, c := range slice.Status.Conditions {
		if c.Status != authv1beta1.ResourceSliceConditionAccepted {
			detail = fmt.Sprintf("%s is %s: %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return detail
}

// removeNode removes a virtual node. Liqo drains it first. It returns nil once the node, and
// everything behind it, is gone.
func (s *side) removeNode(ctx context.Context, name string) error {
	err := s.gone(ctx, name, &authv1beta1.ResourceSlice{})
	if err != nil {
		return err
	}
	if err := s.gone(ctx, name, &offloadingv1beta1.VirtualNode{}); err != nil {
		return err
	}
	node := &corev1.Node{}
	err = s.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return s.failed(fmt.Errorf("read node %s: %w", name, err))
	}
	return s.pending("delete virtual node "+name, "Liqo drains it")
}
