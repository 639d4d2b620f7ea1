package hubtest_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

func TestHubIsShared(t *testing.T) {
	h := hubtest.Start(t)
	if h.ID == "" || h.Embedded == hubtest.OnKube() {
		t.Errorf("got %+v", h)
	}
	t.Run("with subtests", func(t *testing.T) {
		if hubtest.Start(t) != h {
			t.Error("got another hub")
		}
	})
}

func TestNamespacesAreValidAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"plain", "UPPER_and/slash", "-", "äöü", strings.Repeat("long", 60), strings.Repeat("long", 60) + "er"} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				namespace := hubtest.Namespace(t)
				if problems := validation.IsDNS1123Label(namespace); problems != nil {
					t.Errorf("%q: %v", namespace, problems)
				}
				if seen[namespace] {
					t.Errorf("%q is used twice", namespace)
				}
				seen[namespace] = true
			}
		})
	}
}

func TestMissingNamespaceIsReportedWithItsRemedy(t *testing.T) {
	h := hubtest.Start(t)
	if h.Embedded {
		t.Skip("every namespace exists on an embedded hub; run with SLUICE_TEST_HUB=kube")
	}
	_, err := hub.Start(t.Context(), hub.Options{Kubeconfig: h.Kubeconfig, Namespace: "absent"})
	if err == nil || !strings.Contains(err.Error(), "kubectl create namespace absent") {
		t.Errorf("got %v", err)
	}
}
