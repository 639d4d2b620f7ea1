// Package liqotest installs Liqo's resource definitions on test clusters, from the Liqo version
// that Sluice is built with. It runs no controllers: the tests write what those would write, and Network
// what those of the network between two clusters would.
package liqotest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/internal/crdtest"
)

// Install installs the definitions of resources, named "networking.liqo.io_connections", and
// waits until they are served. Admin's scheme must know CustomResourceDefinitions.
func Install(t testing.TB, admin client.Client, names ...string) {
	t.Helper()
	definitions := make([]*apiextensionsv1.CustomResourceDefinition, len(names))
	for i, name := range names {
		definitions[i] = &apiextensionsv1.CustomResourceDefinition{}
		read(t, "charts/liqo-crds/crds/"+name, definitions[i])
	}
	if err := crdtest.Define(t.Context(), admin, definitions...); err != nil {
		t.Fatal(err)
	}
}

// RemoteControlPlane returns the role that Liqo gives to clusters that have proven their key,
// in their tenant namespaces.
func RemoteControlPlane(t testing.TB) *rbacv1.ClusterRole {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "liqo-remote-controlplane"}}
	read(t, "files/liqo-remote-controlplane-ClusterRole", role)
	return role
}

// VirtualKubeletRemote returns the role that Liqo gives to virtual kubelets, in the namespaces
// that it creates at the provider for their pods.
func VirtualKubeletRemote(t testing.TB) *rbacv1.ClusterRole {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "liqo-virtual-kubelet-remote"}}
	read(t, "files/liqo-virtual-kubelet-remote-ClusterRole", role)
	return role
}

// read reads a file of Liqo's chart.
func read(t testing.TB, name string, into any) {
	t.Helper()
	folder, err := module()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "deployments/liqo", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// module returns the folder of Liqo's sources.
var module = sync.OnceValues(func() (string, error) {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/liqotech/liqo").Output()
	return strings.TrimSpace(string(folder)), err
})
