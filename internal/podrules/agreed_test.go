package podrules_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/test/escape"
)

// TestCheckAgreed refuses and allows what the member clusters' policies refuse and allow.
func TestCheckAgreed(t *testing.T) {
	for _, row := range escape.Agreed() {
		t.Run(row.Name, func(t *testing.T) {
			pod := escape.Pod("n", "p", "registry.example/team/app")
			row.Make(pod)
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
			if err != nil {
				t.Fatal(err)
			}
			refused, because, err := podrules.CheckAgreed(object, podrules.Annotations(row.Rules...))
			if err != nil || (row.By == "") != (refused == "") || !strings.Contains(refused, row.By) || !strings.HasPrefix(because, strings.SplitN(row.By, " ", 2)[0]) {
				t.Errorf("refused by %q, %q (%v), want %q", refused, because, err, row.By)
			}
		})
	}
}

// TestRepositories: names of images are read as containerd reads them.
func TestRepositories(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]string{
		"nginx": "docker.io/library/nginx", "nginx:1": "docker.io/library/nginx", "nginx:1" + digest: "docker.io/library/nginx",
		"team/app": "docker.io/team/app", "docker.io/app": "docker.io/library/app", "index.docker.io/app:1": "docker.io/library/app",
		"index.docker.io/team/app": "docker.io/team/app", "localhost/app": "localhost/app", "localhost:5000": "docker.io/library/localhost",
		"registry:5000/app:1": "registry:5000/app", "registry.example/app" + digest: "registry.example/app",
		"registry.example:5000/a/b:2": "registry.example:5000/a/b", "Registry/app": "Registry/app", "[::1]:5000/app": "[::1]:5000/app",
		"registry.example@evil.example/app": "registry.example@evil.example/app", "": "docker.io/library/", "/app": "docker.io//app",
	} {
		object := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": image}}}}
		_, because, err := podrules.CheckAgreed(object, map[string]string{v1alpha1.AnnotationRegistries: v1alpha1.NothingAllowed})
		if got := strings.TrimSuffix(strings.TrimPrefix(because, "images come only from -: "), " is refused"); err != nil || got != want {
			t.Errorf("%q is read as %q (%v), want %q", image, got, err, want)
		}
	}
}

// TestBoth: what rules of two policies allow together is what each of them allows, in either order.
func TestBoth(t *testing.T) {
	of := func(r v1alpha1.WorkloadRules) map[string]string { return podrules.Annotations(r) }
	const registries, classes, capabilities = v1alpha1.AnnotationRegistries, v1alpha1.AnnotationRuntimeClasses, v1alpha1.AnnotationCapabilities
	for name, test := range map[string]struct{ a, b, want map[string]string }{
		"no rules": {nil, nil, map[string]string{}},
		"registries of one": {of(v1alpha1.WorkloadRules{Registries: []string{"b.example", "a.example"}}), nil,
			map[string]string{registries: "a.example,b.example"}},
		"the narrower of two registries": {of(v1alpha1.WorkloadRules{Registries: []string{"a.example", "b.example/team", "c.example"}}),
			of(v1alpha1.WorkloadRules{Registries: []string{"a.example/x", "b.example", "d.example", "b.example/teams"}}),
			map[string]string{registries: "a.example/x,b.example/team"}},
		"nothing in common": {of(v1alpha1.WorkloadRules{Registries: []string{"a.example"}, RuntimeClasses: []string{"a"}}),
			of(v1alpha1.WorkloadRules{Registries: []string{"a.exam"}, RuntimeClasses: []string{"b"}}), map[string]string{registries: "-", classes: "-"}},
		"digests of one":    {of(v1alpha1.WorkloadRules{Digests: true}), nil, map[string]string{v1alpha1.AnnotationDigests: "true"}},
		"the default class": {of(v1alpha1.WorkloadRules{RuntimeClasses: []string{"", "a"}}), of(v1alpha1.WorkloadRules{RuntimeClasses: []string{"b", ""}}), map[string]string{classes: ""}},
		"no capability": {of(v1alpha1.WorkloadRules{Capabilities: []string{"NONE"}}), of(v1alpha1.WorkloadRules{Capabilities: []string{"KILL"}}),
			map[string]string{capabilities: "-"}},
		"another name of a registry": {of(v1alpha1.WorkloadRules{Registries: []string{"index.docker.io/library"}}), of(v1alpha1.WorkloadRules{Registries: []string{"docker.io"}}),
			map[string]string{registries: "docker.io/library"}},
		"other annotations": {map[string]string{"a": "b"}, nil, map[string]string{}},
	} {
		for _, got := range []map[string]string{podrules.Both(test.a, test.b), podrules.Both(test.b, test.a)} {
			if !maps.Equal(got, test.want) {
				t.Errorf("%s: %s", name, cmp.Diff(test.want, got))
			}
			if again := podrules.Both(got, test.a); !maps.Equal(again, got) {
				t.Errorf("%s: a second time: %s", name, cmp.Diff(got, again))
			}
		}
	}
}
