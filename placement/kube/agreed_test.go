package kube_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/placement/registration"
	"github.com/sluice-dev/sluice/placement/tenant"
	"github.com/sluice-dev/sluice/test/escape"
)

// agreedPodsOnly: the cluster holds a consumer's pods to the rules of policies, also those that a controller makes of its
// Deployments, and containers that are added later. An update without rules lifts them.
func agreedPodsOnly(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "4", "memory", "4Gi", "pods", "20")
	d.Placement.Workloads = []v1alpha1.WorkloadRules{
		{Registries: []string{"registry.example"}, RuntimeClasses: []string{""}},
		{Registries: []string{"registry.example/team"}, Digests: true, Capabilities: []string{"CHOWN"}},
	}
	f.deliver(t, d)
	ns := namespaceOf(d)
	f.awaitDefaultAccount(t, ns)
	c := f.consumer(t, ns)
	good := "registry.example/team/app@sha256:" + strings.Repeat("a", 64)
	allowed := func(name string) *corev1.Pod {
		p := escape.Pod(ns, name, good)
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN"}}}
		return p
	}
	attempts := []struct {
		name string
		set  func(*corev1.PodSpec)
		by   string
	}{
		{"another registry", func(s *corev1.PodSpec) {
			s.Containers[0].Image = strings.Replace(good, "/team/", "/teams/", 1)
		}, "images come only from registry.example/team: registry.example/teams/app is refused"},
		{"no digest", func(s *corev1.PodSpec) { s.Containers[0].Image = "registry.example/team/app:1" }, "registry.example/team/app:1 is refused"},
		{"a runtime class", func(s *corev1.PodSpec) { s.RuntimeClassName = ptr.To("gvisor") }, "gvisor is refused"},
		{"a capability", func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"KILL"}}}
		}, "containers add only capabilities that were agreed: CHOWN"},
	}

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: allowed("").Spec},
	}}
	deployment.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
	config := rest.CopyConfig(f.adminConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:replicaset-controller", Groups: []string{"system:serviceaccounts", "system:authenticated", "system:masters"}}
	controller := newClient(t, config, f.admin.Scheme())
	ofDeployment := func(name string, from *corev1.PodTemplateSpec) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: from.Labels}, Spec: *from.Spec.DeepCopy()}
	}
	if err := f.admin.Create(t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the runtime class is known", func(ctx context.Context) (bool, error) {
		p := allowed("refused")
		p.Spec.RuntimeClassName = ptr.To("gvisor")
		return !strings.Contains(fmt.Sprint(c.Create(ctx, p, client.DryRunAll)), "not found"), nil
	})
	for _, attempt := range attempts {
		p := allowed("refused")
		attempt.set(&p.Spec)
		refusedWith(t, attempt.name, c.Create(t.Context(), p, client.DryRunAll), attempt.by)
		web := deployment.DeepCopy()
		attempt.set(&web.Spec.Template.Spec)
		if err := c.Create(t.Context(), web, client.DryRunAll); err != nil {
			t.Errorf("a Deployment with %s: %v", attempt.name, err)
		}
		refusedWith(t, attempt.name+", of a Deployment", controller.Create(t.Context(), ofDeployment("web-1", &web.Spec.Template), client.DryRunAll), attempt.by)
	}
	if err := controller.Create(t.Context(), ofDeployment("web-1", &deployment.Spec.Template)); err != nil {
		t.Errorf("an allowed pod of a Deployment: %v", err)
	}
	running := allowed("running")
	if err := c.Create(t.Context(), running); err != nil {
		t.Fatalf("an allowed pod: %v", err)
	}
	ephemeral := func(image string) error {
		debugged := running.DeepCopy()
		debugged.ResourceVersion = "" // the scheduler writes it, too
		debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}}}
		return f.admin.SubResource("ephemeralcontainers").Update(t.Context(), debugged, client.DryRunAll)
	}
	refusedWith(t, "an ephemeral container", ephemeral("busybox@sha256:"+strings.Repeat("a", 64)), "docker.io/library/busybox is refused")
	if err := ephemeral(good); err != nil {
		t.Errorf("an allowed ephemeral container: %v", err)
	}
	refusedWith(t, "another image, later", c.Patch(t.Context(), running.DeepCopy(), client.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"registry.example/team/app:1"}]`))), "named by their digest")
	refusedWith(t, "other rules", c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"sluice.dev/registries":"docker.io"}}}`))), "cannot patch resource")

	if err := f.admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"sluice.dev/digests":null}}}`))); err != nil {
		t.Fatal(err)
	}
	if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), v1alpha1.AnnotationDigests) {
		t.Errorf("without a rule: %v", err)
	}
	d.Placement.Workloads = d.Placement.Workloads[:1]
	f.deliver(t, d)
	if err := f.driver().Observe(t.Context(), d); err != nil {
		t.Error(err)
	}
	eventually(t, "the rules are those of the update", func(ctx context.Context) (bool, error) {
		p := allowed("later")
		p.Spec.Containers[0].Image, p.Spec.Containers[0].SecurityContext.Capabilities.Add[0] = "registry.example/teams/app:1", "KILL"
		return c.Create(ctx, p, client.DryRunAll) == nil, nil
	})
	refusedWith(t, "a rule that stays", c.Create(t.Context(), escape.Pod(ns, "later", "nginx"), client.DryRunAll), "images come only from registry.example: docker.io/library/nginx is refused")
	d.Placement.Workloads = nil
	f.deliver(t, d)
	namespace := &corev1.Namespace{}
	if err := f.admin.Get(t.Context(), client.ObjectKey{Name: ns}, namespace); err != nil || namespace.Annotations[v1alpha1.AnnotationRegistries] != "" {
		t.Errorf("the namespace has %v, %v", namespace.Annotations, err)
	}
}

// aClusterThatDoesNotEnforceRulesIsSeen: Sluice's account reads whether the admission policies are there, and as this
// version registers them. The cluster was registered for the driver kube.
func aClusterThatDoesNotEnforceRulesIsSeen(t *testing.T, f *fixture) {
	want := func(driver, says string) {
		t.Helper()
		cluster := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: driver}}
		missing, err := registration.Unguarded(t.Context(), cluster, &member.Connection{Client: f.sluice})
		if err != nil || says == "" && missing != "" || !strings.Contains(missing, says) {
			t.Errorf("driver %s: %q, %v, want %q", driver, missing, err, says)
		}
	}
	want(v1alpha1.DriverKube, "")
	want(v1alpha1.DriverLiqo, `"sluice-liqo-agreed" not found`)
	guards := liqo.AgreedGuard()
	for _, guard := range guards {
		if err := tenant.ApplyTo(t.Context(), f.admin, guard); err != nil {
			t.Fatal(err)
		}
	}
	want(v1alpha1.DriverLiqo, "")
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: *guards[0].GetName()}}
	if err := f.admin.Patch(t.Context(), policy, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/validations/0"}]`))); err != nil {
		t.Fatal(err)
	}
	want(v1alpha1.DriverLiqo, "ValidatingAdmissionPolicy sluice-liqo-agreed was changed: .spec.validations has 3 items, not 4")
	want(v1alpha1.DriverKube, "")
}
