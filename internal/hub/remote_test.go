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

// testKubeconfig reaches another hub by its kubeconfig, as in production.
func testKubeconfig(t *testing.T, server *Hub) {
	t.Helper()
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

// wantOutdated checks which of the hub's definitions are not as this binary has them.
func wantOutdated(t *testing.T, h *Hub, want ...string) {
	t.Helper()
	wanted, err := readCRDs(charts.CRDs)
	if err != nil {
		t.Fatal(err)
	}
	outdated, err := outdatedCRDs(t.Context(), h.Config, wanted)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, crd := range outdated {
		names = append(names, crd.Name)
	}
	if !slices.Equal(names, want) {
		t.Fatalf("%v are outdated, want %v", names, want)
	}
}

// changesDefinitions makes two of the hub's definitions outdated.
func changesDefinitions(t *testing.T, h *Hub) {
	t.Helper()
	wantOutdated(t, h)
	client, err := apiextensions.NewForConfig(h.Config)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]string{
		"placementpolicies.sluice.dev": `{"metadata": {"annotations": {"controller-gen.kubebuilder.io/version": "v0.0.1"}}}`,
		"servicebindings.sluice.dev":   `{"spec": {"names": {"shortNames": ["other"]}}}`,
	} {
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wantOutdated(t, h, "placementpolicies.sluice.dev", "servicebindings.sluice.dev")
}
