package main

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestTheLogLeavesOutWhatControllerRuntimeStarts: dozens of lines at each start. Its errors are logged, and its results with
// --verbose.
func TestTheLogLeavesOutWhatControllerRuntimeStarts(t *testing.T) {
	theirs, ours := reflect.ValueOf(manager.New).Pointer()+1, reflect.ValueOf(newCommand).Pointer()+1
	for _, c := range []struct {
		least, level slog.Level
		from         uintptr
		want         string // the line begins so; empty means none
	}{
		{slog.LevelInfo, slog.LevelInfo, theirs, ""},
		{slog.LevelInfo, slog.LevelError, theirs, "level=ERROR"},
		{slog.LevelInfo, slog.LevelInfo, ours, "level=INFO"},
		{slog.LevelInfo, slog.LevelInfo, 0, "level=INFO"},
		{levelStep, slog.LevelInfo, theirs, "level=DEBUG+3"},
	} {
		var out strings.Builder
		handler := quiet{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: c.least})}.WithAttrs([]slog.Attr{slog.String("controller", "x")})
		if err := handler.Handle(t.Context(), slog.NewRecord(time.Time{}, c.level, "Starting workers", c.from)); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s of %#x, from %s: %q, want %q", c.level, c.from, c.least, got, c.want)
		}
	}
}
