package kube

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/tenant"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestManifest(t *testing.T) {
	for file, options := range map[string]ManifestOptions{
		"manifest.yaml":             {},
		"manifest_before_1.30.yaml": {Namespace: "brokers", WithoutAdmissionPolicies: true},
	} {
		t.Run(file, func(t *testing.T) {
			got, err := Manifest(options)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", file)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the manifest differs from %s; see what changed with: go test ./placement/kube -run TestManifest -update && git diff", golden)
			}
		})
	}
}

// What a consumer may do in its namespace, Sluice may do there too.
func TestRolesStayBelowTheCeiling(t *testing.T) {
	for _, role := range consumerRoles() {
		t.Run(role.name, func(t *testing.T) {
			for permission := range permissions(role.rules) {
				if !permissions(TenantRules())[permission] {
					t.Errorf("%v is above the ceiling", permission)
				}
			}
		})
	}
}

// Whoever orders from a pool may do everything but read events, which name the pool's members.
func TestOpaqueRolesReadNoEvents(t *testing.T) {
	all := map[string]map[permission]bool{}
	for _, role := range consumerRoles() {
		all[role.name] = permissions(role.rules)
	}
	for _, name := range []string{"edit", "view"} {
		opaque := all[v1alpha1.OpaqueRole(name)]
		for permission := range all[v1alpha1.MemberRole(name)] {
			if opaque[permission] == (permission.resource == "events") {
				t.Errorf("%s: %v is allowed: %t", name, permission, opaque[permission])
			}
		}
	}
}

func TestRulesNeverEscalate(t *testing.T) {
	for name, rules := range map[string][]rbacv1.PolicyRule{"cluster": Rules(v1alpha1.ReaderNodes), "tenant": TenantRules()} {
		t.Run(name, func(t *testing.T) {
			for _, rule := range rules {
				for _, verb := range []string{"*", "escalate", "impersonate"} {
					if slices.Contains(rule.Verbs, verb) {
						t.Errorf("verb %s on %q", verb, rule.Resources)
					}
				}
				may := map[string][]string{"cluster": {tenant.ClusterRole}, "tenant": roleNames()}[name]
				if slices.Contains(rule.Verbs, "bind") && !slices.Equal(rule.ResourceNames, may) {
					t.Errorf("bind on %q, want it on %q only", rule.ResourceNames, may)
				}
				if slices.Contains(rule.Resources, "*") || slices.Contains(rule.APIGroups, "*") {
					t.Errorf("a wildcard in %v", rule)
				}
			}
		})
	}
	for _, forbidden := range []permission{
		{"", "secrets", "get"}, {"", "secrets", "list"}, {"", "pods/exec", "create"}, {"", "pods", "create"},
		{"", "serviceaccounts/token", "create"}, {"rbac.authorization.k8s.io", "clusterrolebindings", "create"},
	} {
		if permissions(Rules(v1alpha1.ReaderNodes))[forbidden] {
			t.Errorf("Sluice may do %v everywhere", forbidden)
		}
	}
}

type permission struct{ group, resource, verb string }

func permissions(rules []rbacv1.PolicyRule) map[permission]bool {
	all := map[permission]bool{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all[permission{group, resource, verb}] = true
				}
			}
		}
	}
	return all
}
