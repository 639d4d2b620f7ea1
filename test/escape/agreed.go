package escape

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// AgreedRow is a pod under rules of policies: it must be refused with By, or be allowed if that is empty. Make changes
// a pod whose image is registry.example/team/app.
type AgreedRow struct {
	Name  string
	Rules []v1alpha1.WorkloadRules
	Make  func(*corev1.Pod)
	By    string
}

// Agreed are pods under rules of policies, each rule with pods that it allows and pods that it refuses.
func Agreed() []AgreedRow {
	one := func(r v1alpha1.WorkloadRules) []v1alpha1.WorkloadRules { return []v1alpha1.WorkloadRules{r} }
	from := func(registries ...string) []v1alpha1.WorkloadRules {
		return one(v1alpha1.WorkloadRules{Registries: registries})
	}
	image := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Image = name }
	}
	class := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To(name) }
	}
	adds := func(capabilities ...corev1.Capability) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: capabilities}}
		}
	}
	first := func(p *corev1.Pod) {
		c := p.Spec.Containers[0]
		c.Name, c.Image = "first", "other.example/app"
		p.Spec.InitContainers = []corev1.Container{c}
	}
	plain := func(*corev1.Pod) {}
	digest := "@sha256:" + strings.Repeat("a", 64)
	const registries, digests, classes, capabilities = "images come only from", "images are named by their digest", "the runtime class is not among", "containers add only"
	return []AgreedRow{
		{"no rules", nil, image("other.example/app"), ""},
		{"a registry", from("registry.example"), plain, ""},
		{"a path of a registry", from("other.example", "registry.example/team"), plain, ""},
		{"a repository", from("registry.example/team/app"), image("registry.example/team/app:1" + digest), ""},
		{"another registry", from("registry.example/team"), image("other.example/team/app"), registries},
		{"a path that begins with the same letters", from("registry.example/team"), image("registry.example/teams/app"), registries},
		{"a repository that begins with the same letters", from("registry.example/team/app"), image("registry.example/team/app2"), registries},
		{"another port", from("registry.example"), image("registry.example:5000/team/app"), registries},
		{"a host that begins with the same letters", from("registry.example"), image("registry.example.org/team/app"), registries},
		{"a user that looks like the host", from("registry.example"), image("registry.example@other.example/app"), registries},
		{"the path without its host", from("registry.example/team"), image("team/app"), registries},
		{"no host", from("docker.io/library"), image("nginx:1"), ""},
		{"no host, with a path", from("docker.io/library"), image("team/nginx"), registries},
		{"another name of the host", from("docker.io/team"), image("index.docker.io/team/app"), ""},
		{"an init container's image", from("registry.example"), first, registries},
		{"registries of two policies", append(from("registry.example"), from("registry.example/team")...), plain, ""},
		{"registries of two policies, one without the image", append(from("registry.example"), from("registry.example/other")...), plain, registries},
		{"registries that have nothing in common", append(from("registry.example"), from("other.example")...), plain, registries},
		{"a digest", one(v1alpha1.WorkloadRules{Digests: true}), image("registry.example/app:1" + digest), ""},
		{"a tag", one(v1alpha1.WorkloadRules{Digests: true}), image("registry.example/app:1"), digests},
		{"half a digest", one(v1alpha1.WorkloadRules{Digests: true}), image("registry.example/app" + digest[:40]), digests},
		{"an allowed runtime class", one(v1alpha1.WorkloadRules{RuntimeClasses: []string{"gvisor", "kata"}}), class("kata"), ""},
		{"another runtime class", one(v1alpha1.WorkloadRules{RuntimeClasses: []string{"gvisor"}}), class("runc"), classes},
		{"the default runtime class", one(v1alpha1.WorkloadRules{RuntimeClasses: []string{"gvisor"}}), plain, classes},
		{"the default runtime class, allowed", one(v1alpha1.WorkloadRules{RuntimeClasses: []string{"", "gvisor"}}), plain, ""},
		{"only the default runtime class", one(v1alpha1.WorkloadRules{RuntimeClasses: []string{""}}), class("gvisor"), classes},
		{"an allowed capability", one(v1alpha1.WorkloadRules{Capabilities: []string{"CHOWN", "NET_BIND_SERVICE"}}), adds("NET_BIND_SERVICE"), ""},
		{"another capability", one(v1alpha1.WorkloadRules{Capabilities: []string{"CHOWN"}}), adds("CHOWN", "KILL"), capabilities},
		{"a capability where none is allowed", one(v1alpha1.WorkloadRules{Capabilities: []string{v1alpha1.CapabilityNone}}), adds("KILL"), capabilities},
		{"no capability where none is allowed", one(v1alpha1.WorkloadRules{Capabilities: []string{v1alpha1.CapabilityNone}}), plain, ""},
	}
}
