package hub

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

var routeOnce sync.Once

// RouteLogs sends what the API server logs through klog to logger, from
// warnings up. klog has one output for the whole process, so the first call
// decides; an embedded hub calls it when it starts.
func RouteLogs(logger *slog.Logger) {
	routeOnce.Do(func() {
		quiet := warnHandler{logger.With("component", "apiserver").Handler()}
		klog.SetLoggerWithOptions(logr.FromSlogHandler(quiet), klog.WriteKlogBuffer(func(line []byte) {
			writeKlogLine(slog.New(quiet), string(line))
		}))
	})
}

// expectedOfAPIServer is a warning that the API server logs at each start: an old version of
// its own API is absent, on purpose.
const expectedOfAPIServer = "Skipping API apiextensions.k8s.io/v1beta1"

// writeKlogLine logs a line that klog has formatted: its first letter is the
// severity, and the message follows the header, which ends in "] ".
func writeKlogLine(logger *slog.Logger, line string) {
	level := slog.LevelInfo
	switch {
	case strings.HasPrefix(line, "W"):
		level = slog.LevelWarn
	case strings.HasPrefix(line, "E"), strings.HasPrefix(line, "F"):
		level = slog.LevelError
	}
	if _, message, found := strings.Cut(line, "] "); found {
		line = message
	}
	if strings.HasPrefix(line, expectedOfAPIServer) {
		return
	}
	logger.Log(context.Background(), level, strings.TrimSpace(line))
}

// warnHandler drops records below warnings.
type warnHandler struct{ slog.Handler }

func (h warnHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h warnHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnHandler{h.Handler.WithAttrs(attrs)}
}

func (h warnHandler) WithGroup(name string) slog.Handler {
	return warnHandler{h.Handler.WithGroup(name)}
}

// zapOver returns a zap logger, as etcd requires, that writes to logger from warnings up. An entry of the level panic, for
// instance about a full disk, ends the process as a fatal one does: a stack trace would hide the remedy.
func zapOver(logger *slog.Logger) *zap.Logger {
	return zap.New(&zapCore{LevelEnabler: zapcore.WarnLevel, logger: logger}, zap.WithPanicHook(zapcore.WriteThenFatal))
}

// expectedOfEtcd are messages that etcd logs as warnings or errors in the normal
// course of a start or stop.
var expectedOfEtcd = map[string]bool{
	// During the first start of a data directory, until the first write.
	"Failed to detect schema version":  true,
	"failed to update storage version": true,
	// At each stop; a real failure is also what [Hub.Done] receives.
	"setting up serving from embedded etcd failed.": true,
	// Several hundred times at the first start after a kill, until the only member has elected
	// itself. If that takes too long, startEtcd returns an error.
	"failed to publish local member to cluster through raft": true,
}

// Remedies when etcd cannot go on, for instance when its log fails its checksums, or when the disk is full.
const (
	damaged = "the embedded hub cannot use what is in the folder etcd of its data directory: keep that directory for later, restore the last backup into another one with `sluice hub restore`, " +
		"and serve that; clusters and what is on them stay as they are meanwhile"
	diskFull = "the disk of the data directory is full: free some room and start again; nothing is lost"
)

// remedyFor returns the remedy for an entry with which etcd ends.
func remedyFor(fields []zapcore.Field) string {
	for _, field := range fields {
		err, ok := field.Interface.(error)
		if field.Type != zapcore.ErrorType || !ok {
			continue
		}
		for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
			if errors.Is(err, cause) || strings.Contains(err.Error(), cause.Error()) { // bbolt may keep only the text
				return diskFull
			}
		}
	}
	return damaged
}

type zapCore struct {
	zapcore.LevelEnabler
	logger *slog.Logger
}

func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{LevelEnabler: c.LevelEnabler, logger: c.logger.With(attributes(fields)...)}
}

func (c *zapCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) && !expectedOfEtcd[entry.Message] {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *zapCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if entry.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	attrs := attributes(fields)
	if entry.Level > zapcore.ErrorLevel {
		attrs = append(attrs, slog.String("remedy", remedyFor(fields))) // the process ends with this line
	}
	c.logger.Log(context.Background(), level, entry.Message, attrs...)
	return nil
}

func (c *zapCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	encoder := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(encoder)
	}
	attrs := make([]any, 0, len(encoder.Fields))
	for key, value := range encoder.Fields {
		attrs = append(attrs, slog.Any(key, value))
	}
	return attrs
}
