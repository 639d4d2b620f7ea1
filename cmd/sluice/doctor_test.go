package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestDoctor: each thing that is wrong is found, with what to do about it; what cannot be looked at is skipped.
func TestDoctor(t *testing.T) {
	h, c, dir := startHub(t)
	says := func(fails bool, lines ...string) {
		t.Helper()
		out, err := sluice(t, "doctor", "--data-dir", dir)
		if (err != nil) != fails {
			t.Errorf("it ends with %v", err)
		}
		for _, line := range lines {
			if !strings.Contains(out, line) {
				t.Errorf("no %q in\n%s", line, out)
			}
		}
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says(false, "✔ hub          https://127.0.0.1:", "its id is "+h.ID, "✔ definitions  the hub has those of this version", "✔ clock ",
		"✔ leader       process ", "- keyset       there is no keyset", "- platforms    there is no platforms file", "- broker       the broker's URL is not known", "✔ resources    none needs attention")

	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	write("broker.url", server.URL+"\n")
	write("platforms.yaml", "platforms: [{name: a, bearer: [a-token-that-is-long]}]")
	says(false, "✔ broker       "+server.URL+" is ready", "✔ platforms    ")
	status = http.StatusServiceUnavailable
	write("platforms.yaml", "platforms: [{nome: a}]")
	says(true, "✘ broker       "+server.URL+"/readyz answers 503 Service Unavailable: see the log", "✘ platforms    ")
	server.Close()
	says(true, "✘ broker       ", "see whether this name leads to `sluice serve`")

	keys, err := seal.Open(filepath.Join(dir, "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	eu := readyCluster(t, c, h.Namespace, "eu", 4)
	if eu.Spec.Access.SealedKubeconfig, err = keys.Seal([]byte("kubeconfig"), member.Owner(eu.Namespace, eu.Name)); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), eu); err != nil {
		t.Fatal(err)
	}
	says(true, "✔ keyset       opens what is sealed in 1 resource")
	if err := os.Remove(filepath.Join(dir, "keyset.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Open(filepath.Join(dir, "keyset.json")); err != nil { // another one
		t.Fatal(err)
	}
	says(true, "✘ keyset       ", "does not open what is sealed in cluster eu: restore the keyset")

	says(true, "✔ rules        no policy has rules for pods")
	policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "digests"}, Spec: v1alpha1.PlacementPolicySpec{Workloads: &v1alpha1.WorkloadRules{Digests: true}}}
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	says(true, "✘ rules        eu would not enforce the rules of digests or of other policies with `workloads`, and so gets no orders that they concern: run `sluice cluster renew`")
	v1alpha1.SetCondition(&eu.Status.Conditions, 1, v1alpha1.ConditionRulesEnforced, "True", "Verified", "its admission policies for pods are there")
	if err := c.Status().Update(t.Context(), eu); err != nil {
		t.Fatal(err)
	}
	says(true, "✔ rules        enforced by every cluster")

	says(true, "✔ nodes        every cluster whose nodes are read has some that take pods")
	const why = "no node takes pods: 1 with the taint node-role.kubernetes.io/control-plane:NoSchedule; untaint it"
	v1alpha1.SetCondition(&eu.Status.Conditions, eu.Generation, v1alpha1.ConditionCapacityKnown, "True", v1alpha1.ReasonNoNodes, why)
	v1alpha1.SetCondition(&eu.Status.Conditions, eu.Generation, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady, "takes placements")
	if err := c.Status().Update(t.Context(), eu); err != nil {
		t.Fatal(err)
	}
	says(true, "✘ nodes        nothing can be placed on cluster eu: "+why)
	if out, err := sluice(t, "cluster", "list", "-o", "wide", "--data-dir", dir); err != nil || !strings.Contains(out, "yes, but "+why) {
		t.Errorf("%v\n%s", err, out)
	}
	var registered strings.Builder
	if err := awaitCluster(t.Context(), &registered, c, eu, time.Minute); err != nil || !strings.HasSuffix(registered.String(), "\ncluster eu: "+why+"\n") {
		t.Errorf("%v\n%s", err, &registered)
	}

	v1alpha1.SetCondition(&eu.Status.Conditions, 1, v1alpha1.ConditionReady, "False", "Unreachable", "connection refused")
	if err := c.Status().Update(t.Context(), eu); err != nil {
		t.Fatal(err)
	}
	says(true, "✘ resources    not ready: cluster eu; `sluice status` has the reasons")

	if out, err := sluice(t, "doctor", "--data-dir", t.TempDir()); err == nil || !strings.HasPrefix(out, "✘ hub ") || strings.Count(out, "\n") != 1 {
		t.Errorf("without a hub: %v\n%s", err, out)
	}
}
