package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestLogsBelowWarningsAreDropped(t *testing.T) {
	klogLine := func(line string) func(*slog.Logger) {
		return func(l *slog.Logger) { writeKlogLine(slog.New(warnHandler{l.Handler()}), line) }
	}
	fatal := func(message string, cause error) func(*slog.Logger) {
		return func(l *slog.Logger) {
			defer func() { _ = recover() }() // instead of ending the process
			zapOver(l).WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic)).Fatal(message, zap.Error(cause))
		}
	}
	for _, row := range []struct {
		name string
		log  func(*slog.Logger)
		want string // empty: nothing is logged
	}{
		{"klog info", klogLine("I0102 15:04:05.6 7 a.go:1] told\n"), ""},
		{"klog warning", klogLine("W0102 15:04:05.6 7 a.go:1] warned\n"), "level=WARN msg=warned"},
		{"klog error", klogLine("E0102 15:04:05.6 7 a.go:1] failed\n"), "level=ERROR msg=failed"},
		{"klog warning of every start", klogLine("W0102 15:04:05.6 7 a.go:1] " + expectedOfAPIServer + " because\n"), ""},
		{"zap info", func(l *slog.Logger) { zapOver(l).Info("told") }, ""},
		{"zap warning", func(l *slog.Logger) { zapOver(l).With(zap.Int("member", 1)).Warn("warned") }, "level=WARN msg=warned member=1"},
		{"zap error", func(l *slog.Logger) { zapOver(l).Error("failed", zap.Error(errors.New("late"))) }, "level=ERROR msg=failed error=late"},
		{"zap error of every stop", func(l *slog.Logger) { zapOver(l).Error("setting up serving from embedded etcd failed.") }, ""},
		{"zap fatal", fatal("failed to read WAL, cannot be repaired", errors.New("wal: crc mismatch")), `remedy="` + damaged + `"`},
		{"full disk", fatal("failed to save Raft hard state and entries", &fs.PathError{Op: "write", Path: "0.wal", Err: syscall.ENOSPC}), `remedy="` + diskFull + `"`},
		{"full disk, as text", fatal("failed to commit tx", errors.New("write db: "+syscall.ENOSPC.Error())), `remedy="` + diskFull + `"`},
		{"no quota", fatal("failed to commit tx", fmt.Errorf("write db: %w", syscall.EDQUOT)), `remedy="` + diskFull + `"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			var output bytes.Buffer
			row.log(slog.New(slog.NewTextHandler(&output, nil)))
			got := strings.TrimSpace(output.String())
			if row.want == "" && got != "" || !strings.HasSuffix(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// TestAPanicOfEtcdEndsTheProcessWithTheRemedy, and without a stack trace below it.
func TestAPanicOfEtcdEndsTheProcessWithTheRemedy(t *testing.T) {
	const inside = "SLUICE_TEST_PANIC"
	if os.Getenv(inside) != "" {
		zapOver(slog.New(slog.NewTextHandler(os.Stderr, nil))).Panic("failed to create WAL", zap.Error(syscall.ENOSPC))
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.HasSuffix(strings.TrimSpace(string(out)), `remedy="`+diskFull+`"`) {
		t.Errorf("%v\n%s", err, out)
	}
}
