// Package gatewayapi installs the Gateway API, in the release for which the tests' Gateway is built, and external-dns'
// definition, on clusters of tests.
package gatewayapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/internal/crdtest"
)

// Install applies the definitions of the standard channel, and those of the experimental one that the tests' Gateway
// watches, and returns once the API server serves them. It is idempotent.
func Install(ctx context.Context, config *rest.Config) error {
	c, err := newClient(config)
	if err != nil {
		return err
	}
	folder, err := module(ctx, "sigs.k8s.io/gateway-api")
	if err != nil {
		return fmt.Errorf("find the Gateway API: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "config", "crd", "standard", "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no definitions in %s: %w", folder, err)
	}
	for _, kind := range []string{"tlsroutes", "tcproutes", "backendtlspolicies"} {
		files = append(files, filepath.Join(folder, "config", "crd", "experimental", "gateway.networking.k8s.io_"+kind+".yaml"))
	}
	return installAll(ctx, c, files...)
}

// externalDNS is the release of external-dns whose definition of DNSEndpoint the tests have.
const externalDNS = "sigs.k8s.io/external-dns@v0.19.0"

// InstallDNS does the same for DNSEndpoints.
func InstallDNS(ctx context.Context, config *rest.Config) error {
	c, err := newClient(config)
	if err != nil {
		return err
	}
	folder, err := module(ctx, externalDNS)
	if err != nil {
		return fmt.Errorf("find external-dns: %w", err)
	}
	return installAll(ctx, c, filepath.Join(folder, "config", "crd", "standard", "dnsendpoints.externaldns.k8s.io.yaml"))
}

func newClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

func installAll(ctx context.Context, c client.Client, files ...string) error {
	definitions := make([]*apiextensionsv1.CustomResourceDefinition, len(files))
	for i, file := range files {
		document, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		definitions[i] = &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(document, definitions[i]); err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(file), err)
		}
	}
	return crdtest.Define(ctx, c, definitions...)
}

// module returns the folder of a Go module: in the version that it names, or else that of test/kind/modules/traefik.
func module(ctx context.Context, name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		of := filepath.Join(dir, "test", "kind", "modules", "traefik")
		if _, err := os.Stat(of); err == nil {
			return download(ctx, of, name)
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run the tests from within the source tree")
		}
	}
}

func download(ctx context.Context, of, name string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", name)
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
