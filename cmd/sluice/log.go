package main

import (
	"log/slog"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
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
		options.Level = slog.Level(-1) // V(1), the steps of Sluice's controllers; the libraries' steps are below it
	}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if f.format == logJSON {
		handler = slog.NewJSONHandler(os.Stderr, options)
	}
	logger := slog.New(handler)
	slog.SetDefault(logger)
	librariesLog.Do(func() {
		klog.SetLogger(logr.FromSlogHandler(handler))
		ctrl.SetLogger(logr.FromSlogHandler(handler))
	})
	return logger
}

// librariesLog sets the libraries' logger once: it is the process's, and may not change while they run.
var librariesLog sync.Once
