package workload

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestCopying(t *testing.T) {
	d := &Data{Step: v1alpha1.StepBackup, Backup: "b0", Run: "b0", Expired: []string{"b8", "b9"}, Target: &Target{URL: "https://target.example/x", Username: "ann", Password: "hush", Addresses: []string{"192.0.2.0/24"}}}
	objects, err := order(t, "testdata/hook/data.yaml").Copying(d, Cluster{Name: "eu-1"}, "sluice-si-1")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, object := range objects {
		got += "---\n" + yamlOf(t, object.Object)
	}
	matchesGolden(t, "testdata/hook/data.golden", got)
}

func TestParseTarget(t *testing.T) {
	for _, row := range []struct{ document, because string }{
		{"{url: 'https://target.example/x', username: ann, password: hush, addresses: [192.0.2.0/24]}", ""},
		{"{url: target}", "url: want SCHEME://HOST, with a path or without"},
		{"{url: 'https://target.example', passwort: hush}", "line 1: passwort: unknown field"},
		{"{url: 'https://target.example', addresses: [somewhere]}", "addresses[0]: netip.ParsePrefix(\"somewhere\"): no '/'"},
	} {
		if _, err := ParseTarget([]byte(row.document)); errorText(err) != row.because || strings.Contains(errorText(err), "hush") {
			t.Errorf("%s: got %v, want %s", row.document, err, row.because)
		}
	}
}

// What can be backed up moves with its data.
func TestIsBackedUp(t *testing.T) {
	const volume, hook = "volumes: [{name: v, mountPath: /v, storageClass: s, size: 1Gi}]", "{image: i, resources: {cpu: 1, memory: 1Gi}}"
	backup := volume + ", backup: " + hook + ", restore: " + hook
	for _, row := range []struct {
		plan string
		want bool
	}{
		{container(backup), true},
		{container(volume), false},
		{strings.TrimSuffix(container(backup), "]") + ", {name: b, container: {image: i, resources: {cpu: 1, memory: 1Gi}}}]", true},
		{strings.TrimSuffix(container(backup), "]") + ", {name: b, container: {image: i, resources: {cpu: 1, memory: 1Gi}, " + volume + "}}]", false},
		{strings.TrimSuffix(container(backup), "]") + ", {name: b, manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}]", false},
	} {
		if got := planOf(t, row.plan).IsBackedUp(); got != row.want {
			t.Errorf("%s: %t", row.plan, got)
		}
	}
}
