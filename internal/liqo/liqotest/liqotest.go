// Package liqotest installs Liqo's resources on clusters of tests: the definitions of the very
// module that Sluice is built with, and no controllers. What those would write is up to the tests.
package liqotest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Install installs the definitions of resources, named "networking.liqo.io_connections", and
// waits until they are served. Admin's scheme must know CustomResourceDefinitions.
func Install(t testing.TB, admin client.Client, names ...string) {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/liqotech/liqo").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "deployments/liqo/charts/liqo-crds/crds", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(content, &definition); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), &definition); err != nil {
			t.Fatal(err)
		}
		err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(&definition), &definition)
			return err == nil && slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}), err
		})
		if err != nil {
			t.Fatalf("the definition %s is established: %v", name, err)
		}
	}
}
