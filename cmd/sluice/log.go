package main

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// logFormat is --log-format.
type logFormat string

const (
	logText logFormat = "text"
	logJSON logFormat = "json"
)

// logFlags describe the log of a command with controllers.
type logFlags struct {
	format  logFormat
	verbose bool
}

func (f *logFlags) bind(cmd *cobra.Command) {
	bindChoice(cmd, &f.format, "log-format", "", "format of the log", logText, logJSON)
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "log every step of the controllers, not only the results")
}

// logger returns the process's logger, and makes the libraries use it too.
func (f *logFlags) logger() *slog.Logger {
	options := &slog.HandlerOptions{}
	if f.verbose {
		options.Level = levelStep
	}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if f.format == logJSON {
		handler = slog.NewJSONHandler(os.Stderr, options)
	}
	handler = quiet{handler}
	logger := slog.New(handler)
	slog.SetDefault(logger)
	librariesLog.Do(func() {
		klog.SetLogger(logr.FromSlogHandler(handler))
		ctrl.SetLogger(logr.FromSlogHandler(handler))
	})
	return logger
}

// levelStep is the level V(1), of the steps of Sluice's controllers. The libraries' own steps are below it.
const levelStep = slog.Level(-1)

// quiet is a handler for which the results of controller-runtime are steps: each source, controller and worker that it starts or
// ends.
type quiet struct{ slog.Handler }

func (q quiet) Handle(ctx context.Context, record slog.Record) error {
	from, _ := runtime.CallersFrames([]uintptr{record.PC}).Next()
	if record.Level == slog.LevelInfo && strings.HasPrefix(from.Function, "sigs.k8s.io/controller-runtime/") {
		if record.Level = levelStep; !q.Enabled(ctx, levelStep) {
			return nil
		}
	}
	return q.Handler.Handle(ctx, record)
}

func (q quiet) WithAttrs(attributes []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(attributes)}
}

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

// announce makes a manager log when its controllers run: after its cache has read everything, and if this replica leads.
func announce(mgr ctrl.Manager, logger *slog.Logger, about ...any) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		logger.Info("the controllers run", about...)
		<-ctx.Done()
		return nil
	}))
}

// librariesLog sets the libraries' logger once: it is the process's, and may not change while they run.
var librariesLog sync.Once
