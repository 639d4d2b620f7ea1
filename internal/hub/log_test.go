package hub

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestLogsBelowWarningsAreDropped(t *testing.T) {
	klogLine := func(line string) func(*slog.Logger) {
		return func(l *slog.Logger) { writeKlogLine(slog.New(warnHandler{l.Handler()}), line) }
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
		{"zap fatal", func(l *slog.Logger) {
			defer func() { _ = recover() }() // instead of ending the process
			zapOver(l).WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic)).Fatal("failed to read WAL, cannot be repaired")
		}, `remedy="` + damaged + `"`},
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
