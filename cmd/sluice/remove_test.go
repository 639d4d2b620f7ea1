package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestRemove: what an operator adds by a command, a command removes; a provider only when nothing of it is left, and then with
// its own policies.
func TestRemove(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	must("provider", "add", "acme", "--did", "did:web:acme.example")
	must("issuer", "add", "notary", "--did", "did:web:notary.example", "--type", "VatID", "--assurance", "notary")
	rule := []v1alpha1.PolicyRule{{Name: "all", Expression: "true"}}
	own := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "acme.terms"}, Spec: v1alpha1.PlacementPolicySpec{Provider: "acme", Require: rule}}
	about := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "about-acme"}, Spec: v1alpha1.PlacementPolicySpec{Provider: "acme", Require: rule}}
	cluster := readyCluster(t, c, h.Namespace, "eu", 4)
	cluster.Spec.Provider = "acme"
	offering := &v1alpha1.ServiceOffering{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "so-1"}, Spec: v1alpha1.ServiceOfferingSpec{
		ID: "acme-compute", Name: "acme-compute", Description: "Cores.", Provider: "acme", Plans: []v1alpha1.Plan{{
			ID: "acme-1", Name: "small", Description: "One core.", Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}},
	}}
	for _, err := range []error{c.Create(t.Context(), own), c.Create(t.Context(), about), c.Create(t.Context(), offering), c.Update(t.Context(), cluster)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if out, err := operator(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("sluice %s: %v, want %q; %s", strings.Join(args, " "), err, want, out)
		}
	}
	isGone := func(o client.Object) bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	}
	refused("its member clusters are still there: eu", "provider", "remove", "acme")
	if err := c.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	refused("its offerings are still there: acme-compute", "provider", "remove", "acme")
	if isGone(own) {
		t.Error("a refused removal removes a policy")
	}
	refused("there is none of this name", "catalog", "remove", "computers")
	again := offering.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Namespace: h.Namespace, Name: "z-again"}
	again.Spec.ID, again.Spec.Plans[0].ID = "again", "again-1"
	if err := c.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	refused("2 have this name: remove one by the name of its resource: so-1, z-again", "catalog", "remove", "acme-compute")
	if must("catalog", "remove", "z-again"); !isGone(again) || isGone(offering) {
		t.Error("by the name of its resource another one is removed")
	}
	if out := must("catalog", "remove", "acme-compute"); out != "offering acme-compute: sold no more\n" || !isGone(offering) {
		t.Errorf("catalog remove: %s", out)
	}
	if out := must("provider", "remove", "acme"); out != "provider acme: removed\n" || !isGone(own) || isGone(about) {
		t.Errorf("provider remove: %s; its own policy is gone: %t, the operator's: %t", out, isGone(own), isGone(about))
	}
	must("issuer", "remove", "notary")
	must("consumer", "add", "city", "--did", "did:web:city.example", "--of", "cf/city", "--of", "default")
	if out := must("consumer", "list"); !strings.Contains(out, "cf/city, default") {
		t.Errorf("consumers are listed as %s", out)
	}
	refused("want platform, platform/organization or platform/organization/space", "consumer", "add", "city", "--did", "did:web:city.example", "--of", "/city")
	must("consumer", "remove", "city")
	for _, noun := range []string{"provider", "consumer", "issuer", "addon"} {
		refused("notary: there is none of this name; `sluice "+noun+" list` shows them all", noun, "remove", "notary")
	}
}
