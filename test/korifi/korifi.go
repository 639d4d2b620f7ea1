// Package korifi runs a Korifi, Cloud Foundry's API on Kubernetes, for tests: its own API and controllers, as
// programs of this host, on a control plane of their own. Apps do not run there: nothing stages or starts them.
package korifi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/hosted"
	"github.com/sluice-dev/sluice/test/loopback"
)

const (
	namespace = "cf" // the root namespace, in which organizations are
	user      = "operator"
	// webhooks is the port that the controllers listen on; they take no other.
	webhooks = 9443
)

// Korifi is a Korifi that runs until its test ends.
type Korifi struct {
	*controlplane.ControlPlane
	// URL of the CF API, which Authority vouches for, in PEM.
	URL       string
	Authority []byte
	// Token of an administrator.
	Token string
}

// Start runs a Korifi for the length of a test, and builds it once on a machine.
func Start(t *testing.T) *Korifi {
	t.Helper()
	k := &Korifi{ControlPlane: controlplane.Start(t, controlplane.Options{Name: "korifi", Nodes: []controlplane.Node{{Name: "node-1"}}})}
	if err := k.install(t.Context(), t.TempDir()); err != nil {
		t.Fatalf("start Korifi: %v", err)
	}
	return k
}

func (k *Korifi) install(ctx context.Context, folder string) error {
	built, err := hosted.Build(ctx, "test/korifi/programs/build.sh")
	if err != nil {
		return err
	}
	// Where controllers look for their certificate cannot be told them but by the folder for temporary files.
	if err := os.Mkdir(filepath.Join(folder, "k8s-webhook-server"), 0o700); err != nil {
		return err
	}
	controllers, err := hosted.NewServer(filepath.Join(folder, "k8s-webhook-server", "serving-certs"), webhooks)
	if err != nil {
		return err
	}
	api, err := hosted.NewServer(filepath.Join(folder, "api"), loopback.Port())
	if err != nil {
		return err
	}
	k.URL, k.Authority = api.URL(""), api.Authority
	c, err := client.New(k.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return err
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Secret{ // of the registry that images of apps would be in; each organization gets a copy
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "image-registry-credentials"},
			Type:       corev1.SecretTypeDockerConfigJson,
			StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths": {}}`},
		},
	} {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	rendered, err := render(filepath.Join(built, "chart"), api.Port)
	if err != nil {
		return fmt.Errorf("render Korifi's chart: %w", err)
	}
	if err := k.apply(ctx, c, folder, rendered, controllers); err != nil {
		return err
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, k.Kubeconfig(), 0o600); err != nil {
		return err
	}
	environment := []string{
		"KUBECONFIG=" + kubeconfig, "TMPDIR=" + folder,
		"APICONFIG=" + filepath.Join(folder, "korifi-api-config"), "CERT_PATH=" + api.Folder, "INTERNAL_CERT_PATH=" + api.Folder,
		"CONTROLLERSCONFIG=" + filepath.Join(folder, "korifi-controllers-config"),
	}
	for _, program := range []string{"controllers", "api"} {
		if err := k.Run(filepath.Join(built, program), environment); err != nil {
			return err
		}
	}
	for name, server := range map[string]*hosted.Server{"controllers": controllers, "api": api} {
		if err := server.Await(ctx); err != nil {
			return fmt.Errorf("the program %s: %w", name, err)
		}
	}
	return k.login(ctx)
}

// render returns what Korifi's chart installs.
func render(folder string, port int) ([]*unstructured.Unstructured, error) {
	return hosted.Render(folder, "korifi", namespace, map[string]any{
		"adminUserName": user, "rootNamespace": namespace, "defaultAppDomainName": "apps.example.com", "containerRepositoryPrefix": "localhost/",
		"api":               map[string]any{"apiServer": map[string]any{"url": "127.0.0.1", "port": port, "internalPort": port}},
		"kpackImageBuilder": map[string]any{"include": false}, "statefulsetRunner": map[string]any{"include": false},
		"networking":    map[string]any{"gatewayClass": "none"},
		"jobTaskRunner": map[string]any{"include": false}, "migration": map[string]any{"include": false},
		"experimental": map[string]any{
			"managedServices": map[string]any{"enabled": true},
			"routing":         map[string]any{"disableRouteController": true},
		},
	})
}

// applied are the kinds of the chart that have a meaning without pods.
var applied = []string{"CustomResourceDefinition", "ClusterRole", "RoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}

// apply installs what the chart gives: configuration becomes files in a folder, by the names of the ConfigMaps, and
// webhooks call the controllers.
func (k *Korifi) apply(ctx context.Context, c client.Client, folder string, rendered []*unstructured.Unstructured, controllers *hosted.Server) error {
	for _, o := range rendered {
		switch {
		case o.GetKind() == "ConfigMap":
			if err := write(filepath.Join(folder, o.GetName()), o); err != nil {
				return err
			}
		case slices.Contains(applied, o.GetKind()):
			controllers.Redirect(o)
			administered(o)
			if err := hosted.ApplyObject(ctx, c, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// write puts what a ConfigMap holds into files of a folder.
func write(folder string, o *unstructured.Unstructured) error {
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for name, content := range data {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// administered makes a service account the administrator, whose token stands for the one of an identity provider.
func administered(o *unstructured.Unstructured) {
	if o.GetKind() == "RoleBinding" {
		_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"kind": "ServiceAccount", "name": user, "namespace": namespace}}, "subjects")
		o.SetNamespace(namespace)
	}
}

// login gets the administrator's token.
func (k *Korifi) login(ctx context.Context) error {
	core, err := kubernetes.NewForConfig(k.Config())
	if err != nil {
		return err
	}
	accounts := core.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: user}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	token, err := accounts.CreateToken(ctx, user, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	k.Token = token.Status.Token
	return nil
}
