package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The dry run of an order that is refused says which moves would make room, and whether a policy allows them.
func TestMovesThatWouldMakeRoomAreShown(t *testing.T) {
	h, c, _, must := operatedHub(t)
	readyCluster(t, c, h.Namespace, "eu", 4)
	readyCluster(t, c, h.Namespace, "us", 2)
	servedOffering(t, c, h.Namespace)
	offering := &v1alpha1.ServiceOffering{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: h.Namespace, Name: "compute"}, offering); err != nil {
		t.Fatal(err)
	}
	large := offering.Status.Accepted.Plans[0]
	large.ID, large.Name, large.Resources = "plan-2", "large", &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}
	offering.Status.Accepted.Plans = append(offering.Status.Accepted.Plans, large)
	if err := c.Status().Update(t.Context(), offering); err != nil {
		t.Fatal(err)
	}
	deliveredInstance(t, c, h.Namespace, "si-1", "eu")
	ask := []string{"place", "--service", "compute", "--plan", "large", "--dry-run"}
	if out := must(ask...); !strings.Contains(out, "1 move would make room on eu: si-1 to us; no policy allows that (makeRoom)") {
		t.Errorf("without a policy:\n%s", out)
	}
	policy := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "room"},
		Spec:       v1alpha1.PlacementPolicySpec{MakeRoom: &v1alpha1.MakeRoom{AtMost: 1}},
	}
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	if out := must(ask...); !strings.Contains(out, "1 move would make room on eu: si-1 to us; a policy allows that") {
		t.Errorf("with a policy:\n%s", out)
	}
}
