package hub

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/charts"
)

// TestKubeconfigHub reaches another hub by its kubeconfig, as in production.
func TestKubeconfigHub(t *testing.T) {
	server := startHub(t, t.TempDir())
	connect := func(o Options) (*Hub, error) {
		o.Kubeconfig = server.Kubeconfig
		return Start(t.Context(), o)
	}

	var log bytes.Buffer
	h, err := connect(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("definitions that were just installed: %s", log.String())
	}
	if h.Embedded || h.ID != server.ID || h.Namespace != server.Namespace {
		t.Errorf("got %+v", h)
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	if _, open := <-h.Done(); open {
		t.Error("Done is not closed after Stop")
	}

	deleteCRD(t, server, "servicebindings.sluice.dev")
	_, err = connect(Options{})
	if err == nil || !strings.Contains(err.Error(), "servicebindings.sluice.dev") || !strings.Contains(err.Error(), "kubectl apply") {
		t.Errorf("a missing definition gives %v; want its name and the remedy", err)
	}

	if _, err := connect(Options{InstallCRDs: true}); err != nil {
		t.Errorf("InstallCRDs: %v", err)
	}
	if _, err := connect(Options{}); err != nil {
		t.Errorf("after InstallCRDs: %v", err)
	}
}

func deleteCRD(t *testing.T, h *Hub, name string) {
	t.Helper()
	client, err := apiextensions.NewForConfig(h.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := func(ctx context.Context) error {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errStillThere
	}
	if err := pollUntilDone(t.Context(), gone, func(error) bool { return false }); err != nil {
		t.Fatal(err)
	}
}

func TestStartErrorsSayWhatToDo(t *testing.T) {
	for _, row := range []struct {
		name    string
		options Options
		want    string
	}{
		{"kubeconfig does not exist", Options{Kubeconfig: "no-such-file"}, "no-such-file"},
		{"kubeconfig and embedded", Options{Kubeconfig: "any", Embedded: true}, "exclude each other"},
		{"data directory is a file", Options{Embedded: true, DataDir: "hub_test.go"}, "data directory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := Start(t.Context(), row.options)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q in it", err, row.want)
			}
		})
	}
}

// A start applies the definitions that are not as this binary has them, and leaves the others.
func TestStartAppliesOutdatedDefinitions(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	start := func() *Hub {
		t.Helper()
		h, err := Start(ctx, Options{DataDir: dir, Embedded: true})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := start()
	defer func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	}()
	wanted, err := readCRDs(charts.CRDs)
	if err != nil {
		t.Fatal(err)
	}
	outdated := func() (names []string) {
		t.Helper()
		crds, err := outdatedCRDs(ctx, h.Config, wanted)
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range crds {
			names = append(names, crd.Name)
		}
		return names
	}
	if names := outdated(); len(names) > 0 {
		t.Fatalf("after a start %v are outdated", names)
	}
	client, err := apiextensions.NewForConfig(h.Config)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	changes := map[string]string{
		"placementpolicies.sluice.dev": `{"metadata": {"annotations": {"controller-gen.kubebuilder.io/version": "v0.0.1"}}}`,
		"servicebindings.sluice.dev":   `{"spec": {"names": {"shortNames": ["other"]}}}`,
	}
	for name, change := range changes {
		if _, err := definitions.Patch(ctx, name, types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if names, want := outdated(), []string{"placementpolicies.sluice.dev", "servicebindings.sluice.dev"}; !slices.Equal(names, want) {
		t.Fatalf("%v are outdated, want %v", names, want)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	h = start()
	if names := outdated(); len(names) > 0 {
		t.Errorf("after the next start %v are outdated", names)
	}
}
