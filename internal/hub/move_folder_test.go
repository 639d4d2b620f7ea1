package hub

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/backup"
)

// movesBack moves a hub from a cluster to a folder. Before that, the cluster refuses to be left, and the process dies when
// it has left.
func movesBack(t *testing.T, config *rest.Config, id string, before map[string]*unstructured.Unstructured) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "back")
	move := func(config *rest.Config) (*Moved, error) {
		back := moveTo(config)
		back.DataDir, back.To = dir, "folder"
		return back.ToFolder(t.Context(), BackupOptions{Files: []backup.File{{Name: "keyset.json", Content: []byte("keys")}}},
			RestoreOptions{Files: map[string]string{"keyset.json": filepath.Join(dir, "keyset.json")}})
	}
	readOnly := rest.CopyConfig(config)
	readOnly.Wrap(func(next http.RoundTripper) http.RoundTripper { return readOnlyTransport{next} })
	if _, err := move(readOnly); err == nil || !isRefusal(err) || readTestHome(t, config).check() != nil {
		t.Errorf("a hub that may not be marked: %v", err)
	}
	if err := isWhole(dir); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	if _, err := move((&mortal{}).on(config)); err == nil || !strings.Contains(err.Error(), errDied.Error()) || readTestHome(t, config).check() == nil {
		t.Errorf("it dies when it has left the cluster: %v", err)
	}
	if _, err := Start(t.Context(), Options{DataDir: dir, Embedded: true}); err == nil || !strings.Contains(err.Error(), "did not finish") {
		t.Fatalf("a start in the new home, where nothing has arrived: %v", err)
	}
	if moved, err := move(config); err != nil || moved.Already || moved.Resources != 4 {
		t.Fatalf("it moves back: %+v, %v", moved, err)
	}
	if moved, err := move(config); err != nil || !moved.Already {
		t.Errorf("it moves back again: %+v, %v", moved, err)
	}
	if err := readTestHome(t, config).check(); err == nil || !strings.Contains(err.Error(), "the folder") {
		t.Errorf("a start in the former home: %v", err)
	}
	h := startHub(t, dir)
	if h.ID != id {
		t.Errorf("the hub is %s, was %s", h.ID, id)
	}
	wantKnown(t, h.Config, before)
}

// readOnlyTransport answers that writes are forbidden.
type readOnlyTransport struct{ next http.RoundTripper }

func (t readOnlyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return t.next.RoundTrip(r)
	}
	answer := httptest.NewRecorder()
	answer.WriteHeader(http.StatusForbidden)
	return answer.Result(), nil
}
