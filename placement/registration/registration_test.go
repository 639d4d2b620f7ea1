package registration

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/kube"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// A change of a cluster is one step, whoever else writes: it is applied to what the hub has then.
func TestChange(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx, key := t.Context(), client.ObjectKey{Namespace: hubtest.Namespace(t), Name: "eu"}
	h := Hub{Client: c, Owner: "test"}
	region := func(region string) func(*v1alpha1.MemberCluster) error {
		return func(cluster *v1alpha1.MemberCluster) error {
			cluster.Spec.Access = v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}
			cluster.Spec.Region = region
			return nil
		}
	}

	if _, err := h.change(ctx, key, region("eu"), true); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, key, &v1alpha1.MemberCluster{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run has written: %v", err)
	}
	created, err := h.Change(ctx, key, region("eu"))
	if err != nil || created.Spec.Region != "eu" || created.UID == "" {
		t.Fatalf("%+v, %v", created, err)
	}

	tries := 0
	changed, err := h.Change(ctx, key, func(cluster *v1alpha1.MemberCluster) error {
		if tries++; tries == 1 { // somebody else is faster
			other := cluster.DeepCopy()
			other.Spec.Zone = "zone-1"
			if err := c.Update(ctx, other); err != nil {
				return err
			}
		}
		return region("us")(cluster)
	})
	if err != nil || tries != 2 || changed.Spec.Region != "us" || changed.Spec.Zone != "zone-1" {
		t.Errorf("after %d tries: %+v, %v", tries, changed, err)
	}

	refusal := errors.New("no")
	if _, err := h.Change(ctx, key, func(*v1alpha1.MemberCluster) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("a change that refuses: %v", err)
	}
	changed.Finalizers = []string{v1alpha1.Finalizer}
	if err := errors.Join(c.Update(ctx, changed), c.Delete(ctx, changed)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Change(ctx, key, region("eu")); err == nil || !strings.Contains(err.Error(), "being removed") {
		t.Errorf("a cluster that is being removed: %v", err)
	}
	changed.Finalizers = nil
	if err := c.Patch(ctx, changed, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Error(err)
	}
}

// What is sealed for one cluster is of no use for another.
func TestSealedIsForOneCluster(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.MemberCluster{}
	cluster.Namespace, cluster.Name = "sluice", "eu"
	access, err := Sealed{keys}.Store(t.Context(), cluster, []byte("kubeconfig"))
	if err != nil || access.SecretRef != nil || strings.Contains(string(access.SealedKubeconfig), "kubeconfig") {
		t.Fatalf("%+v, %v", access, err)
	}
	if plain, err := keys.Unseal(access.SealedKubeconfig, member.Owner("sluice", "eu")); err != nil || string(plain.Reveal()) != "kubeconfig" {
		t.Errorf("%d bytes, %v", len(plain.Reveal()), err)
	}
	if _, err := keys.Unseal(access.SealedKubeconfig, member.Owner("sluice", "us")); err == nil {
		t.Error("another cluster's")
	}
}

// Each driver needs its own permissions beside the common ones.
func TestPermissions(t *testing.T) {
	for driver, other := range map[string]string{
		v1alpha1.DriverKube: "", v1alpha1.DriverCAPI: "clusterclasses", v1alpha1.DriverLiqo: "foreignclusters", "other": "",
	} {
		cluster := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: driver}}
		o, err := Permissions(kube.ManifestOptions{}, cluster)
		if (err != nil) != (driver == "other") {
			t.Errorf("%s: %v", driver, err)
		}
		for reader, reads := range map[string]bool{v1alpha1.ReaderNodes: driver != v1alpha1.DriverCAPI, v1alpha1.ReaderDeclared: false, v1alpha1.ReaderExternal: false} {
			if cluster.Spec.Capacity, cluster.Spec.Reader = nil, nil; reader == v1alpha1.ReaderExternal {
				cluster.Spec.Reader = &v1alpha1.ExternalReader{Address: "reader.example:443"}
			} else if reader == v1alpha1.ReaderDeclared {
				cluster.Spec.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			}
			o, err := Permissions(kube.ManifestOptions{}, cluster)
			if err != nil {
				continue // reported above
			}
			manifest, err := kube.Manifest(o)
			if err != nil {
				t.Fatal(err)
			}
			needs := slices.ContainsFunc(Rules(cluster), func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "nodes") })
			if gives := strings.Contains(string(manifest), "- nodes\n"); gives != reads || needs != reads {
				t.Errorf("%s, %s: the right to read nodes is given: %t, needed: %t; want %t", driver, reader, gives, needs, reads)
			}
		}
		found := other == ""
		for _, rule := range o.Rules {
			for _, name := range rule.Resources {
				found = found || name == other
			}
		}
		if !found {
			t.Errorf("%s: nothing about %s in %+v", driver, other, o.Rules)
		}
	}
}
