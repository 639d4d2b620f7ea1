// Package gatewayapi installs the Gateway API on clusters of tests: the release for which the tests' Gateway is built.
package gatewayapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Install applies the definitions of the standard channel, and returns once the API server serves them. It is idempotent.
func Install(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	folder, err := module(ctx)
	if err != nil {
		return fmt.Errorf("find the Gateway API: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "config", "crd", "standard", "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions in %s: %w", folder, err)
	}
	for _, file := range files {
		if err := install(ctx, c, file); err != nil {
			return fmt.Errorf("install %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

func install(ctx context.Context, c client.Client, file string) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(document, crd); err != nil {
		return err
	}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, crd)); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return false, err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// module returns the folder of the Gateway API's Go module, in the version that test/kind/modules/traefik has.
func module(ctx context.Context) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		of := filepath.Join(dir, "test", "kind", "modules", "traefik")
		if _, err := os.Stat(of); err == nil {
			return download(ctx, of)
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run the tests from within the source tree")
		}
	}
}

func download(ctx context.Context, of string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "sigs.k8s.io/gateway-api")
	cmd.Dir = of
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("go mod download: %w\n%s%s", err, out, exit.Stderr)
	}
	if err != nil {
		return "", err
	}
	var answer struct{ Dir string }
	err = json.Unmarshal(out, &answer)
	return answer.Dir, err
}
