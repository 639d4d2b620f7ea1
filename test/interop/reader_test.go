//go:build interop

package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/reader"
	"github.com/sluice-dev/sluice/placement/reader/readertest"
)

// python has python3-grpcio and python3-protobuf of Debian, which run.sh installs.
const python = "/usr/bin/python3"

// A reader in Python, after the schema of the paper and by the names of either protocol, feeds Sluice.
func TestAReaderInPython(t *testing.T) {
	for _, protocol := range []v1alpha1.ReaderProtocol{v1alpha1.ReaderProtocolPaper, v1alpha1.ReaderProtocolV1} {
		t.Run(string(protocol), func(t *testing.T) {
			folder := t.TempDir()
			certificate, key := readertest.Certificate(t)
			for name, content := range map[string][]byte{"certificate.pem": certificate, "key.pem": key} {
				if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			service := string(protocol)
			if protocol == v1alpha1.ReaderProtocolV1 {
				service += ".Resources"
			}
			server := exec.CommandContext(t.Context(), python, "reader.py", filepath.Join(folder, "certificate.pem"), filepath.Join(folder, "key.pem"), service)
			server.Stderr = os.Stderr
			in, err := server.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			line := func() string {
				t.Helper()
				if !lines.Scan() {
					t.Fatalf("the server has ended: %v", lines.Err())
				}
				return lines.Text()
			}
			var port int
			if _, err := fmt.Sscanf(line(), "listening %d", &port); err != nil {
				t.Fatal(err)
			}
			has := func(resources string) {
				t.Helper()
				if _, err := fmt.Fprintln(in, resources); err != nil {
					t.Fatal(err)
				}
			}
			has("cpu=8 memory=32Gi")
			changed := make(chan struct{}, 16)
			r := reader.NewExternal(t.Context(), reader.ExternalOptions{
				ExternalReader: v1alpha1.ExternalReader{Address: fmt.Sprintf("127.0.0.1:%d", port), Protocol: protocol, CABundle: certificate},
				// So long that only a notification of the server brings what changes below.
				Period: time.Hour, Cluster: "eu", Changed: func() { changed <- struct{}{} },
			})
			until := func(cores int64) {
				t.Helper()
				for deadline := time.After(time.Minute); ; {
					reading, err := r.Read(t.Context())
					if err == nil && reading.Allocatable.Cpu().Value() == cores {
						return
					}
					select {
					case <-changed:
					case <-deadline:
						t.Fatalf("the reading is %+v, %v, want %d cores", reading, err, cores)
					}
				}
			}
			until(8)
			has("cpu=4 memory=32Gi")
			until(4)
			has("cpu=6 memory=32Gi")
			until(6)
			r.Close(true)
			if got := line(); got != "forgotten eu" {
				t.Errorf("the server says %q", got)
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			if err := server.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
