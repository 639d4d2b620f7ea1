//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// backups is a place for backups that pods of kind clusters reach: an HTTP server of the test, which keeps what
// is put there and gives it back.
type backups struct {
	// file names it for `sluice serve --backup-target`.
	file string

	mu   sync.Mutex
	kept map[string][]byte
}

func newBackups(t *testing.T) *backups {
	t.Helper()
	b := &backups{file: filepath.Join(t.TempDir(), "target.yaml"), kept: map[string][]byte{}}
	at, address := listenOnKind(t, b)
	must(t, os.WriteFile(b.file, fmt.Appendf(nil, "{url: '%s/sluice', username: sluice, password: hush, addresses: [%s/32]}", at, address), 0o600))
	return b
}

// listenOnKind serves pods on kind, at a URL with the address of this machine on their network.
func listenOnKind(t *testing.T, handler http.Handler) (at, address string) {
	t.Helper()
	host, err := exec.Command("docker", "network", "inspect", "kind", "--format", "{{range .IPAM.Config}}{{.Gateway}} {{end}}").Output()
	must(t, err)
	for _, address := range strings.Fields(string(host)) {
		if net.ParseIP(address).To4() == nil {
			continue
		}
		listener, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
		must(t, err)
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		go server.Serve(listener)
		t.Cleanup(func() { _ = server.Close() })
		return "http://" + listener.Addr().String(), address
	}
	t.Fatalf("the network kind has no gateway with an IPv4 address: %s", host)
	return "", ""
}

func (b *backups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	content, there := b.kept[r.URL.Path]
	user, password, _ := r.BasicAuth()
	switch {
	case user != "sluice" || password != "hush":
		http.Error(w, "who is there?", http.StatusUnauthorized)
	case r.Method == http.MethodPut:
		var all bytes.Buffer
		if _, err := io.Copy(&all, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b.kept[r.URL.Path] = all.Bytes()
		w.WriteHeader(http.StatusCreated)
	case !there:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Length", strconv.Itoa(len(content))) // for HEAD, too
		_, _ = w.Write(content)
	}
}

// lose drops what was put there.
func (b *backups) lose() (before map[string][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.kept = b.kept, map[string][]byte{}
	return before
}

func (b *backups) find(kept map[string][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = kept
}

// instanceOf reads an instance of the platform from the hub.
func (s server) instanceOf(t *testing.T, id string) *v1alpha1.ServiceInstance {
	t.Helper()
	instance := &v1alpha1.ServiceInstance{}
	must(t, s.hub(t).Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: v1alpha1.InstanceName("first", id)}, instance))
	return instance
}

// dataMoves drains the cluster of a PostgreSQL: it goes on elsewhere, with its rows and its users. Then its
// backup takes the place of what was written since; a backup that is lost is none, and says so.
func dataMoves(t *testing.T, s server, target *backups) {
	const id = "e2e-carried"
	postgresql := services()[0]
	archive, _ := postgresql.build(t, postgresql.program)
	must(t, run("test/kind/load.sh", members[1], archive))
	for _, name := range members {
		volumeFor(t, name, id)
	}
	p := s.broker.findPlan(t, "postgresql", "small")
	s.broker.provision(t, id, p, map[string]any{"selector": map[string]any{"topology.kubernetes.io/region": "region-of-" + members[0]}})
	at := instance{members[0], v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))}
	user := s.broker.bind(t, id, "first", p, nil)
	postgresql.asks(t, at, user, [][2]string{{"CREATE TABLE orders (n int)", "CREATE TABLE"}, {"INSERT INTO orders VALUES (42)", "INSERT 0 1"}})

	// The consumer chose a region; the same one is elsewhere now.
	s.sluice("cluster", "add", members[1], "--from-kubeconfig", kubeconfig(members[1]), "--region", "region-of-"+members[0])
	t.Cleanup(func() {
		s.sluice("cluster", "add", members[1], "--from-kubeconfig", kubeconfig(members[1]), "--region", "region-of-"+members[1])
	})
	s.sluice("cluster", "drain", members[0], "--wait", "10m")
	s.sluice("cluster", "uncordon", members[0])
	at.cluster = members[1]
	postgresql.asks(t, at, user, [][2]string{{"SELECT n FROM orders", "42"}, {"INSERT INTO orders VALUES (43)", "INSERT 0 1"}})

	young := s.broker.bind(t, id, "second", p, nil) // younger than the backup
	backup := s.instanceOf(t, id).Status.LastBackup()
	if backup == nil || !backup.IsComplete() || backup.Cluster != members[0] {
		t.Fatalf("the last backup is %+v", backup)
	}
	lost := target.lose()
	if out, err := s.restore(id, backup.ID); err == nil || !strings.Contains(out, "The requested URL returned error: 404") {
		t.Errorf("a backup that is lost is restored with %v: %s", err, out)
	}
	target.find(lost)
	out, err := s.restore(id, backup.ID)
	if err != nil {
		t.Fatalf("restore: %v: %s", err, out)
	}
	postgresql.asks(t, at, user, [][2]string{{"SELECT count(*) FROM orders", "1"}})
	postgresql.asks(t, at, young, [][2]string{{"SELECT n FROM orders", "42"}})
	s.broker.deprovision(t, id, p)
}

// restore runs `sluice instance restore`.
func (s server) restore(id, backup string) (out string, err error) {
	said, err := exec.CommandContext(s.t.Context(), filepath.Join(root, "bin/sluice"), "instance", "restore", id, "--from", backup, "--wait", "10m", "--data-dir", s.dataDir).CombinedOutput()
	s.t.Logf("sluice instance restore\n%s", said)
	return string(said), err
}

// returnedToken binds: the hook's pod writes its result through the API server of its cluster.
func returnedToken(t *testing.T, b broker) {
	const id = "e2e-returning"
	p := b.findPlan(t, "workloads", "returning")
	b.provision(t, id, p, map[string]any{"selector": map[string]any{"topology.kubernetes.io/region": "region-of-" + members[0]}})
	credentials := b.bind(t, id, "first", p, nil)
	if want := fmt.Sprint("made-for-", credentials["user"]); credentials["token"] != want {
		t.Errorf("the credentials have the token %v, want %s", credentials["token"], want)
	}
	b.unbind(t, id, "first", p)
	b.deprovision(t, id, p)
}
