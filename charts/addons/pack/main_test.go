package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/addons"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// whatPlansSet are the values that the packages leave to plans.
var whatPlansSet = map[string]string{
	"metallb-addresses": `{"addresses": ["192.0.2.10-192.0.2.20"]}`,
	"gateway":           `{"domain": "apps.example", "tls": {"secretName": "apps"}}`,
	"prometheus-agent":  `{"remoteWrite": {"url": "https://prometheus.example/api/v1/write", "secretName": "remote-write"}}`,
}

// packages returns the packages as a plan has them that sells them all.
func packages(t *testing.T) []v1alpha1.AddOn {
	t.Helper()
	text, err := os.ReadFile("../packages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []v1alpha1.AddOn
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var p v1alpha1.AddOnPackage
		if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
			t.Fatal(err)
		}
		a := v1alpha1.AddOn{Name: p.Name, Description: p.Spec.Description, AddOnChart: p.Spec.AddOnChart}
		if set := whatPlansSet[p.Name]; set != "" {
			values, err := addons.Values(a.Values)
			if err != nil {
				t.Fatal(err)
			}
			over, err := addons.Values(&runtime.RawExtension{Raw: []byte(set)})
			if err != nil {
				t.Fatal(err)
			}
			document, err := json.Marshal(addons.Merged(values, over))
			if err != nil {
				t.Fatal(err)
			}
			a.Values = &runtime.RawExtension{Raw: document}
		}
		all = append(all, a)
	}
	return all
}

// Every package that comes with Sluice has the chart that it names, which describes what consumers may set,
// and which a Kubernetes API server takes with the values of a cluster: the definitions for real, the rest
// by dry run.
func TestPackages(t *testing.T) {
	folder := t.TempDir()
	if err := pack("..", folder); err != nil {
		t.Fatal(err)
	}
	instance := &v1alpha1.ServiceInstance{}
	instance.Name = v1alpha1.InstanceName("cf", "mine")
	shape := &v1alpha1.ClusterShape{Version: "v1.34.4", PodCIDRs: []string{"10.244.0.0/16"}, ServiceCIDRs: []string{"10.96.0.0/12"}}
	rendered, err := addons.Render(packages(t), addons.Choice{}, addons.FactsOf(instance, shape, addons.Order{Parameters: map[string]any{}}))
	if err != nil {
		t.Fatal(err)
	}
	if len(rendered) != len(sources) {
		t.Errorf("%d packages, and %d charts", len(rendered), len(sources))
	}
	settable := map[string][]string{}
	for _, p := range packages(t) {
		settable[p.Name] = p.Settable
	}
	cp := controlplane.Start(t, controlplane.Options{})
	c, err := client.New(cp.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rendered {
		a := &rendered[i]
		t.Run(a.Name, func(t *testing.T) {
			archive, err := os.ReadFile(filepath.Join(folder, a.Chart))
			if err != nil {
				t.Fatal(err)
			}
			if actual := charts.Digest(archive); actual != a.Digest {
				t.Fatalf("the digest of %s is %s, and the package says %s", a.Chart, actual, a.Digest)
			}
			chart, err := charts.Read(archive)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range settable[a.Name] {
				if _, err := chart.Parameter(name); err != nil {
					t.Errorf("settable: %s: %v", name, err)
				}
			}
			taken := 0
			for _, object := range objects(t, archive, a) {
				take(t, c, a.Namespace, object)
				taken++
			}
			if taken == 0 {
				t.Error("it installs nothing")
			}
		})
	}
}

// The Gateway runs the Traefik of the tests on kind, with the definitions that this Traefik is built for. Another version
// may wait for kinds that the cluster does not have, and serves nothing until then.
func TestGatewayRunsTheTestedTraefik(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tested := func(module string) string {
		_, after, _ := strings.Cut(read("../../../test/kind/modules/traefik/go.mod"), module+" v")
		return strings.Fields(after)[0]
	}
	traefik := tested("github.com/traefik/traefik/v3")
	for file, want := range map[string]string{
		"../gateway/values.yaml": "image: docker.io/library/traefik:v" + traefik + "\n",
		"../gateway/Chart.yaml":  "appVersion: v" + traefik + "\n",
	} {
		if !strings.Contains(read(file), want) {
			t.Errorf("%s does not have %q", file, want)
		}
	}
	definitions := tested("sigs.k8s.io/gateway-api")
	for i := range sources {
		if s := &sources[i]; s.name == "gateway-api" && s.version != definitions {
			t.Errorf("the definitions of the Gateway API are those of %s, and Traefik is built for %s", s.version, definitions)
		}
	}
}

// objects returns what Helm makes of an add-on, definitions first.
func objects(t *testing.T, archive []byte, a *v1alpha1.AddOn) (all []*unstructured.Unstructured) {
	t.Helper()
	chart, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	values, err := addons.Values(a.Values)
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(action.NewConfiguration())
	install.ReleaseName, install.Namespace, install.DryRunStrategy, install.IncludeCRDs = a.Name, a.Namespace, action.DryRunClient, true
	install.KubeVersion = &common.KubeVersion{Version: "v1.34.4", Major: "1", Minor: "34"}
	made, err := install.RunWithContext(t.Context(), chart, values)
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(made.(*release.Release).Manifest), 4096)
	var others []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); err != nil {
			return append(all, others...)
		}
		switch {
		case len(o.Object) == 0:
		case o.GetKind() == "CustomResourceDefinition":
			all = append(all, o)
		default:
			others = append(others, o)
		}
	}
}

// take has the API server take an object: a definition for real, anything else by dry run.
func take(t *testing.T, c client.Client, namespace string, o *unstructured.Unstructured) {
	t.Helper()
	in := &unstructured.Unstructured{}
	in.SetAPIVersion("v1")
	in.SetKind("Namespace")
	in.SetName(namespace)
	if err := c.Create(t.Context(), in); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	options := []client.CreateOption{client.FieldValidation("Strict")}
	if o.GetKind() != "CustomResourceDefinition" {
		options = append(options, client.DryRunAll)
	}
	// A definition is served a moment after it was made.
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		if namespaced, err := c.IsObjectNamespaced(o); err == nil && namespaced && o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		last = c.Create(ctx, o.DeepCopy(), options...)
		return !meta.IsNoMatchError(last) && !apierrors.IsNotFound(last), nil
	})
	if err != nil || last != nil && !apierrors.IsAlreadyExists(last) {
		t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), last)
	}
}
