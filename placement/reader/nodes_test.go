package reader

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// TestDevicesCountWhileAllOfThemIsRead reads a cluster as clusters before Kubernetes 1.34 are, and one that has not granted
// the right to read something.
func TestDevicesCountWhileAllOfThemIsRead(t *testing.T) {
	hides := &v1alpha1.MemberCluster{}
	hides.Name, hides.Spec.Sell = "c", &v1alpha1.Sale{Hide: []corev1.ResourceName{v1alpha1.DevicesResource("every")}}
	for _, c := range []struct {
		name     string
		fails    string // a resource whose reading fails
		with     error
		cluster  *v1alpha1.MemberCluster
		reserved placement.Resources
		want     string
	}{
		{"it is read", "", nil, nil, nil, "every=1,large=0"},
		{"another class is hidden", "", nil, hides, nil, "large=1"},
		{"another class is hidden, and an instance has it", "", nil, hides, placement.Resources{v1alpha1.DevicesResource("every"): 1}, "every=1,large=0"},
		{"the cluster does not serve it", "*", apierrors.NewNotFound(schema.GroupResource{}, ""), nil, nil, ""},
		{"the classes are not to be read", "deviceclasses", apierrors.NewForbidden(schema.GroupResource{}, "", nil), nil, nil, ""},
		{"the claims are not to be read", "resourceclaims", apierrors.NewForbidden(schema.GroupResource{}, "", nil), nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			kube := fake.NewClientset(placementtest.Node("a", nil), deviceClass("large", atLeast("40Gi")), deviceClass("every", ""), published("a", gpu("0", "80Gi"), gpu("1", "16Gi")))
			kube.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				ours := action.GetResource().Group == resourcev1.GroupName && c.with != nil
				return ours && slices.Contains([]string{"*", action.GetResource().Resource}, c.fails), nil, c.with
			})
			inventory := placement.NewInventory()
			if c.cluster != nil {
				inventory.UpsertCluster(placement.ClusterOf(c.cluster, time.Time{}))
			}
			if c.reserved != nil {
				inventory.Reserve(placement.Holding{Instance: "si-1", Held: map[string]placement.Resources{"c": c.reserved}})
			}
			n := NewNodes(t.Context(), NodesOptions{Kube: kube, Cluster: "c", HubID: "hub", Inventory: inventory, Changed: func() {}})
			patient, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			n.Wait(patient)
			r, err := n.Read()
			if err != nil {
				t.Fatal(err)
			}
			if got := byClass(r.Allocatable); got != c.want {
				t.Errorf("allocatable are %q, want %q", got, c.want)
			}
		})
	}
}
