package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestOperatorOfClusters registers a control plane, changes its description, and renews
// Sluice's access to it.
func TestOperatorOfClusters(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	there := controlplane.Start(t, controlplane.Options{Name: "member"})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, there.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(there.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(says string, args ...string) {
		t.Helper()
		args = append(args, "--from-kubeconfig", file, "--wait", "0")
		if _, err := operator(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("sluice %s: %v, want %q", strings.Join(args, " "), err, says)
		}
	}
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "eu"}}
	read := func() v1alpha1.MemberClusterSpec {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		return *cluster.Spec.DeepCopy()
	}

	t.Run("what the hub refuses leaves nothing on the cluster", func(t *testing.T) {
		refused("nothing was done", "cluster", "add", "eu", "--label", "no label=x")
		refused("nothing was done", "cluster", "add", "eu", "--latitude", "north", "--longitude", "13")
		refused("no member cluster has that name", "cluster", "renew", "eu")
		for _, command := range [][]string{{"cluster", "describe", "eu"}, {"cluster", "cordon", "eu"}, {"cluster", "remove", "eu"}} {
			if _, err := operator(command...); err == nil || err.Error() != "cluster eu: there is none of this name; `sluice cluster list` shows them all" {
				t.Errorf("%q: %v", command, err)
			}
		}
		if _, err := operator("peering", "remove", "eu", "us"); err == nil || err.Error() != "end the peering of eu and us: there is none of this name; `sluice peering list` shows them all" {
			t.Errorf("a peering: %v", err)
		}
		if _, err := operator("cluster", "renew", "eu", "--from-kubeconfig", "nowhere"); err == nil || !strings.Contains(err.Error(), "cluster eu: no member cluster has that name") {
			t.Errorf("with a kubeconfig that is not there: %v", err)
		}
		var namespace corev1.Namespace
		if err := admin.Get(t.Context(), client.ObjectKey{Name: "sluice-system"}, &namespace); !apierrors.IsNotFound(err) {
			t.Errorf("namespace sluice-system: %v", err)
		}
	})
	const offering = "https://acme.example/selfdescription/offering-eu#subject"
	must("cluster", "add", "eu", "--from-kubeconfig", file, "--wait", "0", "--provider", "acme", "--region", "eu-de", "--offering", offering, "--price", "cpu=0.04")
	registered := read()
	if registered.Provider != "acme" || registered.Region != "eu-de" || registered.Trust.Offering != offering || len(registered.Access.SealedKubeconfig) < 100 {
		t.Fatalf("registered as %+v", registered)
	}
	t.Run("renewing changes the access only", func(t *testing.T) {
		must("cluster", "renew", "eu", "--from-kubeconfig", file, "--wait", "0")
		renewed := read()
		if equality.Semantic.DeepEqual(renewed.Access, registered.Access) {
			t.Error("the access is the old one")
		}
		renewed.Access = registered.Access
		if !equality.Semantic.DeepEqual(renewed, registered) {
			t.Errorf("renewed to\n%+v\nfrom\n%+v", renewed, registered)
		}
	})
	t.Run("adding again changes what is said", func(t *testing.T) {
		must("cluster", "add", "eu", "--from-kubeconfig", file, "--wait", "0", "--zone", "b")
		changed, want := read(), registered
		want.Zone, want.Access = "b", changed.Access
		if !equality.Semantic.DeepEqual(changed, want) {
			t.Errorf("changed to\n%+v\nwant\n%+v", changed, want)
		}
	})
	t.Run("it still has to prove what it is", func(t *testing.T) {
		servedOffering(t, c, h.Namespace)
		cluster.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
		for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified} {
			v1alpha1.SetCondition(&cluster.Status.Conditions, 1, condition, metav1.ConditionTrue, "Fine", "fine")
		}
		if err := c.Status().Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		if out := must("place", "--service", "compute", "--plan", "small", "--dry-run"); !strings.Contains(out, "NotAdmitted") {
			t.Errorf("a cluster that has proven nothing:\n%s", out)
		}
	})
	t.Run("another cluster is not taken for it", func(t *testing.T) {
		read()
		cluster.Status.UID = "another"
		if err := c.Status().Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		refused("is another one than the one registered", "cluster", "renew", "eu")
		refused("is another one than the one registered", "cluster", "add", "eu", "--region", "us-va")
		if read().Region != "eu-de" {
			t.Error("the region has changed")
		}
	})
	t.Run("one in use is not removed", func(t *testing.T) {
		deliveredInstance(t, c, h.Namespace, "si-1", "eu")
		_, err := operator("cluster", "remove", "eu", "--wait", "0")
		if err == nil || !strings.Contains(err.Error(), "1 instance is on it: si-1 (cf)") || !strings.Contains(err.Error(), "sluice cluster drain eu") {
			t.Errorf("removed: %v", err)
		}
		if read(); !cluster.DeletionTimestamp.IsZero() {
			t.Error("it is leaving")
		}
		// A cluster that is lost for good: the instance is elsewhere, and its objects on the lost
		// cluster cannot be removed.
		moved := deliveredInstance(t, c, h.Namespace, "si-2", "us")
		moved.Status.Left = []v1alpha1.LeftPlacement{{Placement: v1alpha1.Placement{Cluster: "lost", Reserved: corev1.ResourceList{}}, Since: metav1.Now()}}
		if err := c.Status().Update(t.Context(), moved); err != nil {
			t.Fatal(err)
		}
		readyCluster(t, c, h.Namespace, "lost", 4)
		must("cluster", "remove", "lost", "--wait", "0")
		must("cluster", "remove", "eu", "--wait", "0", "--when-empty")
	})
}
