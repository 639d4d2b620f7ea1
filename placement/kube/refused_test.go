package kube

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Only a lack of rights means that the registration is to be renewed.
func TestWhoRefusesARoute(t *testing.T) {
	on := &target{Tenant: &tenant.Tenant{Connection: &member.Connection{Cluster: "a"}}}
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(workload.HTTPRoutes)
	resource := schema.GroupResource{Group: workload.HTTPRoutes.Group, Resource: "httproutes"}
	for words, lacksRights := range map[string]bool{
		`User "system:serviceaccount:sluice-system:sluice" cannot patch resource "httproutes" in API group "gateway.networking.k8s.io" in the namespace "n"`: true,
		`ValidatingAdmissionPolicy 'hosts' with binding 'hosts' denied request: the host is taken`:                                                           false,
	} {
		if refused := on.noneTaken(route, apierrors.NewForbidden(resource, "web", errors.New(words))); (refused != nil) != lacksRights {
			t.Errorf("%s: %v", words, refused)
		}
	}
	webhook := apierrors.NewForbidden(resource, "web", nil)
	webhook.ErrStatus.Message = `admission webhook "hosts.example" denied the request: the User "a" cannot have it`
	if refused := on.noneTaken(route, webhook); refused != nil {
		t.Errorf("a webhook: %v", refused)
	}
}
