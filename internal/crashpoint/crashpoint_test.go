//go:build faults

package crashpoint

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// childServer is the API server of a child process, which is a fake: only that it is asked counts.
const childServer = "SLUICE_TEST_CHILD_SERVER"

// TestEachWriteKillsOnce: a process that is started again dies after each of its writes, once, and
// at nothing else.
func TestEachWriteKillsOnce(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one"}}`))
	}))
	defer server.Close()
	armed := filepath.Join(t.TempDir(), "armed")
	run := func() (died bool) {
		asked = nil
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
		child.Env = append(os.Environ(), childServer+"="+server.URL, "SLUICE_CRASH_FILE="+armed)
		out, err := child.CombinedOutput()
		var ended *exec.ExitError
		if errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return true
		}
		if err != nil {
			t.Fatalf("the child: %v\n%s", err, out)
		}
		return false
	}
	if run() {
		t.Error("it died though nothing is armed")
	}
	if err := os.WriteFile(armed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GET POST", "GET POST DELETE"} {
		if died := run(); !died || strings.Join(asked, " ") != want {
			t.Errorf("died %t after %v, want to die after %s", died, asked, want)
		}
	}
	if run() {
		t.Error("it dies again where it has died")
	}
	const want = `hub create configmaps
hub delete configmaps
`
	if got, err := os.ReadFile(armed); err != nil || string(got) != want {
		t.Errorf("it died\n%s%v, want\n%s", got, err, want)
	}
}

// TestChild reads, asks for a rehearsal, and writes twice.
func TestChild(t *testing.T) {
	if os.Getenv(childServer) == "" {
		t.Skip("for TestEachWriteKillsOnce")
	}
	config := &rest.Config{Host: os.Getenv(childServer)}
	Guard(config, "hub")
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("sluice")
	_, read := maps.Get(t.Context(), "one", metav1.GetOptions{})
	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	_, create := maps.Create(t.Context(), one, metav1.CreateOptions{})
	if err := errors.Join(read, create, maps.Delete(t.Context(), "one", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
}

func TestNames(t *testing.T) {
	for _, row := range []struct{ method, path, body, want string }{
		{"GET", "/api/v1/namespaces/a", "", ""},
		{"GET", "/api/v1/namespaces?watch=true", "", ""},
		{"POST", "/api/v1/namespaces?dryRun=All", "{}", ""},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "{}", ""},
		{"POST", "/api/v1/namespaces/a/events", "{}", ""},
		{"POST", "/api/v1/namespaces/a/serviceaccounts/b/token", "{}", "hub create serviceaccounts/token"},
		{"PATCH", "/proxy/api/v1/namespaces/a", "not JSON", "hub patch namespaces"},
		{"PATCH", "/api/v1/namespaces/a", `{"metadata":{"annotations":{"b":"c"},"uid":"d"}}`, "hub patch namespaces: annotations"},
		{"PUT", "/apis/sluice.dev/v1alpha1/namespaces/a/serviceinstances/b/status",
			`{"spec":{"planID":"x"},"status":{"decision":{},"conditions":[{"type":"Placed","reason":"Chosen"}],"operation":{"state":"in progress"}}}`,
			"hub update serviceinstances/status: Chosen decision in progress operation"},
		{"PUT", "/apis/sluice.dev/v1alpha1/namespaces/a/serviceinstances/b", `{"metadata":{"finalizers":["a"]},"spec":{"planID":"x"},"status":{"decision":{}}}`,
			"hub update serviceinstances: finalizers planID"},
	} {
		r := httptest.NewRequest(row.method, row.path, strings.NewReader(row.body))
		got, err := (&transport{server: "hub", base: "/proxy"}).name(r)
		if err != nil || got != row.want {
			t.Errorf("%s %s is %q, %v; want %q", row.method, row.path, got, err, row.want)
		}
	}
}
