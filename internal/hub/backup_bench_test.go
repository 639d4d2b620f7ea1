package hub

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/internal/backup"
)

// BenchmarkBackup reports the time to back a hub up, to restore it, and to start it again, with as many instances, of 5 KB
// each.
func BenchmarkBackup(b *testing.B) {
	key := newIdentity(b)
	for _, instances := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(instances), func(b *testing.B) {
			full := withInstances(b, key, instances)
			var restoring, starting, backing time.Duration
			size := 0
			for range b.N {
				dir := filepath.Join(b.TempDir(), "data")
				began := time.Now()
				made, err := Restore(b.Context(), restoreOf(dir, full, key))
				if err != nil || made.Resources != instances {
					b.Fatalf("restored %+v, %v", made, err)
				}
				restoring += time.Since(began)
				began = time.Now()
				h, err := Start(b.Context(), Options{DataDir: dir, Embedded: true})
				if err != nil {
					b.Fatal(err)
				}
				starting += time.Since(began)
				began = time.Now()
				var out bytes.Buffer
				again, err := Backup(b.Context(), h.Config, &out, BackupOptions{Recipients: []age.Recipient{key.Recipient()}})
				backing += time.Since(began)
				if err := errors.Join(err, h.Stop()); err != nil || again.Resources != instances {
					b.Fatalf("backed up %+v, %v", again, err)
				}
				size = out.Len()
			}
			for what, took := range map[string]time.Duration{"s/restore": restoring, "s/start": starting, "s/backup": backing} {
				b.ReportMetric(took.Seconds()/float64(b.N), what)
			}
			b.ReportMetric(float64(size)/(1<<20), "MiB")
			b.ReportMetric(residentMegabytes(b), "MB-resident")
		})
	}
}

// withInstances returns the backup of a hub with as many instances.
func withInstances(b *testing.B, key *age.X25519Identity, instances int) []byte {
	b.Helper()
	h, err := Start(b.Context(), Options{DataDir: b.TempDir(), Embedded: true})
	if err != nil {
		b.Fatal(err)
	}
	empty, made := backedUp(b, h.Config, key)
	if err := h.Stop(); err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	w, err := backup.NewWriter(&out, []age.Recipient{key.Recipient()}, made.Header)
	if err != nil {
		b.Fatal(err)
	}
	_, err = backup.Read(bytes.NewReader(empty), []age.Identity{key}, func(e backup.Entry) error {
		if e.File != nil {
			return w.File(e.File.Name, e.File.Content)
		}
		return w.Object(e.Object)
	})
	for i := range instances {
		one := order(fmt.Sprintf("si-%d", i))
		one.SetNamespace(DefaultNamespace)
		one.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
		one.SetAnnotations(map[string]string{"status": strings.Repeat(fmt.Sprintf("%08x ", i*i*7919), 520)[:4600]})
		encoded, problem := one.MarshalJSON()
		err = errors.Join(err, problem, w.Object(encoded))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}
