package market

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// rolesOf returns who may call each operation, by the description.
func rolesOf(t *testing.T) map[string][]string {
	t.Helper()
	var described struct {
		Paths map[string]map[string]struct {
			Roles []string `json:"x-roles"`
		} `json:"paths"`
	}
	must(t, json.Unmarshal(openAPI, &described))
	all := map[string][]string{}
	for path, methods := range described.Paths {
		for method, operation := range methods {
			all[strings.ToUpper(method)+" "+path] = operation.Roles
		}
	}
	return all
}

// TestWhoMayCallWhat: each role calls each operation of the description, on an object of its own and on another's.
func TestWhoMayCallWhat(t *testing.T) {
	w := newWorld(t)
	marketplace(w)
	for _, provider := range []string{"acme", "rival"} {
		must(t, w.Create(t.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: provider + "-1"},
			Spec: v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Guarded: true, Provider: provider}}))
		if status := w.put(provider, provider+"-db", sell1(provider+"-db"), ""); status != http.StatusCreated {
			t.Fatalf("%s cannot sell: %d", provider, status)
		}
		w.policyOf(provider+".terms", provider, nil)
	}
	for _, platform := range []string{"cf", "korifi"} {
		w.policyOf("platform."+platform+".terms", "platform:"+platform, nil)
	}
	// objects of each path, by their owner; "" has those that are nobody's alone.
	policies := map[string]string{"provider:acme": "acme.terms", "provider:rival": "rival.terms", "platform:cf": "platform.cf.terms", "platform:korifi": "platform.korifi.terms"}
	objects := map[string]map[string]string{
		"/market/v1/offerings/{id}": {"provider:acme": "acme-db", "provider:rival": "rival-db"}, "/market/v1/clusters/{id}": {"provider:acme": "acme-1", "provider:rival": "rival-1"},
		"/market/v1/clusters/{id}/moves": {"": "acme-1"}, "/market/v1/plans/{id}": {"": "db-small"}, "/market/v1/invitations/{id}": {"": "acme-2"}, "/market/v1/contracts/{id}": {"": "si-1"},
		"/market/v1/policies/{id}": policies, "/market/v1/policies/{id}/check": policies,
	}
	checked := 0
	for operation, roles := range rolesOf(t) {
		method, path, _ := strings.Cut(operation, " ")
		if path == "/market/v1/changes" {
			continue // it does not end; TestFollowers has it
		}
		w.start() // with its own count of writes
		for _, caller := range []string{"", "operator", "platform:cf", "provider:acme"} {
			role, _, _ := strings.Cut(caller, ":")
			all := objects[path]
			if all == nil {
				all = map[string]string{"": ""}
			}
			for owner, object := range all {
				forbidden := owner != "" && owner != caller && role != "operator"
				q := request{method: method, path: strings.Replace(path, "{id}", object, 1), body: "{}"}
				if caller != "" {
					q.with = w.as(caller)
				}
				want, got := func(status int) bool { return status != http.StatusForbidden && status != http.StatusUnauthorized }, w.send(q, nil).StatusCode
				switch {
				case path == "/market/v1/tokens", operation == "POST /market/v1/clusters":
					want = func(status int) bool { return status == http.StatusUnauthorized } // a token is not what they want
				case len(roles) == 0:
				case caller == "":
					want = func(status int) bool { return status == http.StatusUnauthorized }
				case !slices.Contains(roles, role) || forbidden:
					want = func(status int) bool { return status == http.StatusForbidden }
				}
				if !want(got) {
					t.Errorf("%s of %q by %q is answered %d", operation, object, caller, got)
				}
				checked++
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d calls were made", checked)
	}
	// Nothing of another's has changed.
	if got := w.offering("rival", "rival-db"); got.Status.State == "deleting" || !strings.Contains(string(got.Spec), "rival-db") {
		t.Errorf("rival's offering: %+v", got)
	}
	for owner, policy := range policies {
		role, name, _ := strings.Cut(owner, ":")
		var stored v1alpha1.PlacementPolicy
		err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: policy}, &stored)
		if about := map[string]string{"provider": stored.Spec.Provider, "platform": stored.Spec.Platform}[role]; err != nil || about != name || len(stored.Spec.Require) != 1 {
			t.Errorf("%s: %+v, %v", policy, stored.Spec, err)
		}
	}
	described := rolesOf(t)
	for _, route := range routes {
		var want []string
		if _, there := described[route.method+" "+route.path]; !there {
			t.Errorf("%s %s is not described", route.method, route.path)
		}
		for _, role := range route.roles {
			want = append(want, string(role))
		}
		got := slices.Sorted(slices.Values(described[route.method+" "+route.path]))
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s %s is for %v, and described for %v", route.method, route.path, want, got)
		}
		delete(described, route.method+" "+route.path)
	}
	if len(described) > 0 {
		t.Errorf("described, and not there: %v", described)
	}
}
