package hub

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func startHub(t testing.TB, dir string) *Hub {
	t.Helper()
	h, err := Start(t.Context(), Options{DataDir: dir, Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// TestPrepare: what is prepared is there before other processes find the hub, and an error ends the start.
func TestPrepare(t *testing.T) {
	dir, refused := t.TempDir(), errors.New("refused")
	_, err := Start(t.Context(), Options{DataDir: dir, Embedded: true, Prepare: func() error {
		if _, err := os.Stat(KubeconfigPath(dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the kubeconfig: %v", err)
		}
		return refused
	}})
	if !errors.Is(err, refused) {
		t.Errorf("the start: %v", err)
	}
}

// TestEmbeddedHub has what the rest of Sluice relies on, in a directory whose path is too long for a socket.
func TestEmbeddedHub(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-directory-name/", 6))
	h := startHub(t, dir)
	t.Run("its OpenAPI documents", func(t *testing.T) { testOpenAPI(t, h) })
	client := widgets(t, h.Config)
	ctx := t.Context()
	create := func(t *testing.T, w *unstructured.Unstructured) *unstructured.Unstructured {
		t.Helper()
		created, err := client.Create(ctx, w, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}

	t.Run("is described by its fields", func(t *testing.T) {
		if !h.Embedded || h.Namespace != DefaultNamespace || h.ID == "" || h.Kubeconfig != KubeconfigPath(dir) {
			t.Errorf("got %+v", h)
		}
		if h.Config.QPS != -1 {
			t.Errorf("client-side rate limit is %v, want none", h.Config.QPS)
		}
	})
	t.Run("a CEL rule refuses", func(t *testing.T) {
		_, err := client.Create(ctx, widget("too-big", 11), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "size is beyond limit") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a status write leaves the generation and the spec alone", func(t *testing.T) {
		w := create(t, widget("status", 1))
		unstructured.SetNestedField(w.Object, "Ready", "status", "phase")
		unstructured.SetNestedField(w.Object, int64(2), "spec", "size")
		w, err := client.UpdateStatus(ctx, w, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		phase, _, _ := unstructured.NestedString(w.Object, "status", "phase")
		size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size")
		if phase != "Ready" || size != 1 || w.GetGeneration() != 1 {
			t.Errorf("phase %q, size %d, generation %d", phase, size, w.GetGeneration())
		}
	})
	t.Run("a stale write conflicts", func(t *testing.T) {
		stale := create(t, widget("stale", 1))
		fresh := stale.DeepCopy()
		unstructured.SetNestedField(fresh.Object, int64(2), "spec", "size")
		if _, err := client.Update(ctx, fresh, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		unstructured.SetNestedField(stale.Object, int64(3), "spec", "size")
		if _, err := client.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict", err)
		}
	})
	t.Run("server-side apply tracks owners", func(t *testing.T) {
		apply := func(owner string, size int64) error {
			_, err := client.Apply(ctx, "applied", widget("applied", size), metav1.ApplyOptions{FieldManager: owner})
			return err
		}
		if err := apply("first", 1); err != nil {
			t.Fatal(err)
		}
		if err := apply("second", 2); !apierrors.IsConflict(err) {
			t.Errorf("second owner got %v, want a conflict", err)
		}
	})
	t.Run("who wrote a field is recorded once somebody has applied it", func(t *testing.T) {
		owners := func(w *unstructured.Unstructured, err error) (all []string) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range w.GetManagedFields() {
				all = append(all, fmt.Sprint(entry.Manager, " ", entry.Operation))
			}
			slices.Sort(all)
			return all
		}
		w := create(t, widget("owned", 1))
		if got := owners(w, nil); len(got) != 0 {
			t.Errorf("created: %v", got)
		}
		unstructured.SetNestedField(w.Object, "Ready", "status", "phase")
		if got := owners(client.UpdateStatus(ctx, w, metav1.UpdateOptions{})); len(got) != 0 {
			t.Errorf("its status written: %v", got)
		}
		patch := []byte(`{"spec":{"size":2}}`)
		if got := owners(client.Patch(ctx, "owned", types.MergePatchType, patch, metav1.PatchOptions{})); len(got) != 0 {
			t.Errorf("patched: %v", got)
		}

		apply := metav1.ApplyOptions{FieldManager: "first"}
		if _, err := client.Apply(ctx, "owned", widget("owned", 3), apply); !apierrors.IsConflict(err) {
			t.Errorf("applied over what others have written: got %v, want a conflict", err)
		}
		apply.Force = true
		if got, want := owners(client.Apply(ctx, "owned", widget("owned", 3), apply)), []string{"before-first-apply Update", "first Apply"}; !slices.Equal(got, want) {
			t.Errorf("applied: %v, want %v", got, want)
		}
		patch = []byte(`{"metadata":{"labels":{"colour":"red"}}}`)
		patched, err := client.Patch(ctx, "owned", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "second"})
		if got, want := owners(patched, err), []string{"before-first-apply Update", "first Apply", "second Update"}; !slices.Equal(got, want) {
			t.Errorf("patched afterwards: %v, want %v", got, want)
		}
	})
	t.Run("a finalizer holds an object until it is removed", func(t *testing.T) {
		w := widget("finalized", 1)
		w.SetFinalizers([]string{"test.sluice.dev/hold"})
		create(t, w)
		if err := client.Delete(ctx, "finalized", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		held, err := client.Get(ctx, "finalized", metav1.GetOptions{})
		if err != nil || held.GetDeletionTimestamp() == nil || held.GetGeneration() != 2 {
			t.Fatalf("deleted object: %v, %v", held, err)
		}
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := client.Patch(ctx, "finalized", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Get(ctx, "finalized", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("released object: %v, want not found", err)
		}
	})
	t.Run("foreground deletion does not wait for a garbage collector", func(t *testing.T) {
		create(t, widget("foreground", 1))
		foreground := metav1.DeletePropagationForeground
		if err := client.Delete(ctx, "foreground", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Get(ctx, "foreground", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want not found", err)
		}
	})
	t.Run("a field selector picks a name", func(t *testing.T) {
		create(t, widget("picked", 1))
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=picked"})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "picked" {
			t.Errorf("got %v, %v", list, err)
		}
	})
	t.Run("a watch sees writes", func(t *testing.T) {
		watcher, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=watched"})
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Stop()
		create(t, widget("watched", 1))
		select {
		case event := <-watcher.ResultChan():
			if event.Type != watch.Added {
				t.Errorf("got %v", event)
			}
		case <-time.After(10 * time.Second):
			t.Error("no event")
		}
	})
	t.Run("a client without the token is refused", func(t *testing.T) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(h.Config.CAData)
		anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
		for _, path := range []string{"/apis/sluice.dev/v1alpha1", "/healthz", "/openapi/v3"} {
			response, err := anonymous.Get(h.Config.Host + path)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s answers %s", path, response.Status)
			}
		}
	})
	t.Run("its files are private", func(t *testing.T) {
		for path, want := range map[string]os.FileMode{h.Kubeconfig: 0o600, filepath.Join(dir, "etcd"): 0o700} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has mode %o, want %o", path, got, want)
			}
		}
	})
	t.Run("kubectl works", func(t *testing.T) { testKubectl(t, h) })
	t.Run("its kubeconfig", func(t *testing.T) { testKubeconfig(t, h) })
}

func testKubectl(t *testing.T, h *Hub) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed")
	}
	kubectl := func(input string, args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", h.Kubeconfig, "--cache-dir", t.TempDir()}, args...)...)
		command.Stdin = strings.NewReader(input)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
		}
		return string(output)
	}
	manifest := func(size string) string {
		return "apiVersion: test.sluice.dev/v1\nkind: Widget\nmetadata:\n  name: from-kubectl\nspec:\n  size: " + size + "\n"
	}
	for _, step := range []struct {
		input, args, want string
	}{
		{manifest("1"), "apply -f -", "created"},
		{manifest("2"), "apply -f -", "configured"},
		{manifest("2"), "apply --server-side --force-conflicts -f -", "serverside-applied"},
		{"", "get widgets -o name", "widget.test.sluice.dev/from-kubectl"},
		{"", "get widget from-kubectl -o jsonpath={.spec.size}", "2"},
		{"", "explain widget.spec", "size"},
		{"", "api-resources --api-group=sluice.dev", "membercluster"},
		{"", "delete widget from-kubectl", "deleted"},
	} {
		if got := kubectl(step.input, strings.Fields(step.args)...); !strings.Contains(got, step.want) {
			t.Errorf("kubectl %s: got %q, want %q in it", step.args, got, step.want)
		}
	}
}

// A hub with an open watch stops quickly. The next start has everything, and has applied the definitions that are not as
// this binary has them.
func TestRestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	first := startHub(t, dir)
	installWidgets(t, first.Config)
	created, err := widgets(t, first.Config).Create(t.Context(), widget("kept", 1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changesDefinitions(t, first)
	watcher, err := widgets(t, first.Config).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	began := time.Now()
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("Stop took %v", took)
	}
	if err, open := <-first.Done(); err != nil || open {
		t.Errorf("Done after Stop: %v, open %t", err, open)
	}
	if _, err := os.Stat(first.Kubeconfig); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig of a stopped hub is still there: %v", err)
	}

	second := startHub(t, dir)
	wantOutdated(t, second)
	if second.ID != first.ID {
		t.Errorf("ID changed from %s to %s", first.ID, second.ID)
	}
	if second.Config.BearerToken == first.Config.BearerToken {
		t.Error("the token survived the restart")
	}
	kept, err := widgets(t, second.Config).Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kept.GetUID() != created.GetUID() || kept.GetResourceVersion() != created.GetResourceVersion() {
		t.Errorf("got %s at %s, want %s at %s", kept.GetUID(), kept.GetResourceVersion(), created.GetUID(), created.GetResourceVersion())
	}
}

func TestDoneReceivesWhyTheHubEnded(t *testing.T) {
	store, err := startEtcd(t.Context(), t.TempDir(), slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api, err := startAPIServer(t.Context(), listener, store.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	h := &Hub{done: make(chan error, 1)}
	h.supervise(store, api, &stack{store.stop, api.stop})

	api.cancel()
	if err := <-h.Done(); err == nil || !strings.Contains(err.Error(), "API server ended") {
		t.Errorf("Done received %v", err)
	}
	if err, open := <-h.Done(); err != nil || open {
		t.Errorf("then %v, open %t; want it closed", err, open)
	}
	if err := h.Stop(); err != nil {
		t.Errorf("Stop afterwards: %v", err)
	}
}
