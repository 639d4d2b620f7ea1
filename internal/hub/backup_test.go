package hub

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/backup"
)

var (
	instanceResource = schema.GroupVersionResource{Group: "sluice.dev", Version: "v1alpha1", Resource: "serviceinstances"}
	journalResource  = schema.GroupVersionResource{Group: "sluice.dev", Version: "v1alpha1", Resource: "journals"}
)

// order is a service instance, as platforms order it.
func order(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "sluice.dev/v1alpha1", "kind": "ServiceInstance",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"platform": "cf", "instanceID": name, "serviceID": "service-1", "desired": map[string]any{"planID": "plan-1"},
		},
	}}
}

// dynamicClient returns a client of Sluice's resources.
func dynamicClient(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// content returns the instances and journals of a hub by name, without resource versions: at a revision, or now.
func content(t testing.TB, config *rest.Config, revision string) map[string]any {
	t.Helper()
	o := metav1.ListOptions{}
	if revision != "" {
		o.ResourceVersion, o.ResourceVersionMatch = revision, metav1.ResourceVersionMatchExact
	}
	all := map[string]any{}
	for _, resource := range []schema.GroupVersionResource{instanceResource, journalResource} {
		list, err := dynamicClient(t, config).Resource(resource).List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			item.SetResourceVersion("")
			all[resource.Resource+"/"+item.GetName()] = item.Object
		}
	}
	return all
}

// wantSame compares what a hub has with what was.
func wantSame(t testing.TB, got, want map[string]any) {
	t.Helper()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("restored %d resources, want %d: %s", len(got), len(want), names)
	}
	for name, is := range got {
		if !reflect.DeepEqual(is, want[name]) {
			t.Fatalf("%s is\n%v\nwant\n%v", name, is, want[name])
		}
	}
}

// backedUp makes a backup of a hub in memory, with a file.
func backedUp(t testing.TB, config *rest.Config, key *age.X25519Identity) ([]byte, *BackedUp) {
	t.Helper()
	var out bytes.Buffer
	made, err := Backup(t.Context(), config, &out, BackupOptions{
		Recipients: []age.Recipient{key.Recipient()}, Files: []backup.File{{Name: "keyset.json", Content: []byte("keys")}}, Version: "test", page: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), made
}

// restoreOf returns the options of a restore into dir.
func restoreOf(dir string, content []byte, key age.Identity) RestoreOptions {
	return RestoreOptions{
		DataDir: dir, Files: map[string]string{"keyset.json": filepath.Join(dir, "keyset.json")},
		Read: func(do func(backup.Entry) error) (*backup.Header, error) {
			return backup.Read(bytes.NewReader(content), []age.Identity{key}, do)
		},
	}
}

func newIdentity(t testing.TB) *age.X25519Identity {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// writeUntil orders, changes and deletes an instance every few milliseconds until the context ends, and returns how many it
// has ordered.
func writeUntil(ctx context.Context, instances dynamic.ResourceInterface) (ordered int, err error) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for ; ctx.Err() == nil; ordered++ {
		<-pace.C
		i, err := instances.Create(ctx, order(fmt.Sprintf("si-%d", ordered)), metav1.CreateOptions{})
		if err != nil {
			return ordered, err
		}
		if err := unstructured.SetNestedField(i.Object, fmt.Sprintf("plan-%d", ordered), "spec", "desired", "planID"); err != nil {
			return ordered, err
		}
		if _, err := instances.Update(ctx, i, metav1.UpdateOptions{}); err != nil {
			return ordered, err
		}
		if ordered%3 == 2 {
			if err := instances.Delete(ctx, fmt.Sprintf("si-%d", ordered-1), metav1.DeleteOptions{}); err != nil {
				return ordered, err
			}
		}
	}
	return ordered, nil
}

// TestRestoredIsWhatWas: a backup of a hub that is written to has one revision, whatever is written meanwhile, and a
// hub restored from it has that: UIDs, generations, times, finalizers, what is being deleted, and its identity.
func TestRestoredIsWhatWas(t *testing.T) {
	h := startHub(t, t.TempDir())
	client := dynamicClient(t, h.Config)
	instances := client.Resource(instanceResource).Namespace(DefaultNamespace)
	leaving := order("leaving")
	leaving.SetFinalizers([]string{"sluice.dev/finalizer"})
	leaving.SetLabels(map[string]string{"a": "b"})
	leaving, err := instances.Create(t.Context(), leaving, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(leaving.Object, int64(1), "status", "observedGeneration"); err != nil {
		t.Fatal(err)
	}
	if _, err := instances.UpdateStatus(t.Context(), leaving, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := instances.Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	elsewhere := client.Resource(instanceResource).Namespace("elsewhere")
	for i := range 30 {
		if _, err := elsewhere.Create(t.Context(), order(fmt.Sprintf("old-%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	writing, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := writeUntil(writing, instances)
		if writing.Err() != nil {
			err = nil // a request was cancelled
		}
		ended <- err
	}()
	key := newIdentity(t)
	for range 2 { // each with another revision, under writes
		file, made := backedUp(t, h.Config, key)
		want := content(t, h.Config, made.Revision)
		dir := filepath.Join(t.TempDir(), "new")
		restored, err := Restore(t.Context(), restoreOf(dir, file, key))
		if err != nil {
			t.Fatal(err)
		}
		if restored.Header != made.Header || restored.Resources != made.Resources || made.Resources != len(want) {
			t.Fatalf("restored %+v, backed up %+v, there were %d", restored, made, len(want))
		}
		again := startHub(t, dir)
		if again.ID != h.ID {
			t.Errorf("the hub's id is %s, want %s", again.ID, h.ID)
		}
		wantSame(t, content(t, again.Config, ""), want)
		wantOrdersContinue(t, again, made)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	file, made := backedUp(t, h.Config, key)
	want := content(t, h.Config, made.Revision) // the hub may still carry out the request that was cancelled
	t.Run("refused", func(t *testing.T) { restoreRefuses(t, file, key) })
	t.Run("killed", func(t *testing.T) { restoreIsKilled(t, file, key, want) })
}

// wantOrdersContinue uses a restored hub.
func wantOrdersContinue(t *testing.T, h *Hub, made *BackedUp) {
	t.Helper()
	instances := dynamicClient(t, h.Config).Resource(instanceResource).Namespace(DefaultNamespace)
	if _, err := instances.Create(t.Context(), order("after"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	leaving, err := instances.Get(t.Context(), "leaving", metav1.GetOptions{})
	if err != nil || leaving.GetDeletionTimestamp() == nil || leaving.GetGeneration() != 2 {
		t.Fatalf("what was being deleted is %v, %v", leaving, err)
	}
	leaving.SetFinalizers(nil)
	if _, err := instances.Update(t.Context(), leaving, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := instances.Get(t.Context(), "leaving", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was being deleted, without a finalizer: %v", err)
	}
	mark, err := Restored(t.Context(), h.Config)
	if err != nil || mark == nil || mark.At.Before(mark.From) || mark.From.Unix() != made.Taken.Unix() {
		t.Fatalf("the mark is %v, %v", mark, err)
	}
	for range 2 { // it is idempotent
		if err := Release(t.Context(), h.Config); err != nil {
			t.Fatal(err)
		}
	}
	if mark, err := Restored(t.Context(), h.Config); mark != nil || err != nil {
		t.Errorf("after the release the mark is %v, %v", mark, err)
	}
}
