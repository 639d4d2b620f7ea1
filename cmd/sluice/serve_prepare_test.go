package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeStartsNothingWithWrongFlags: what is wrong with a flag, or with the file that it names, is said before the hub
// starts.
func TestServeStartsNothingWithWrongFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("- {"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	inUse := other.Addr().String()
	for flags, says := range map[string]string{
		"--scorer-url ftp://scorer.example":                               "--scorer-url: the scorer: its URL: want https://HOST/PATH",
		"--scorer-url https://scorer.example":                             "needs a token file",
		"--forecast-url https://forecast.example":                         "--forecast-url: the forecaster: ",
		"--chart-registry charts.example":                                 "--chart-registry: --charts is needed",
		"--backup-target " + file:                                         "--backup-target: ",
		"--public-url http://broker.example":                              "--public-url ",
		"--describe " + file:                                              "--describe ",
		"--platforms " + file + ".none":                                   "--platforms: ",
		"--lease-duration 1500ms":                                         "--lease-duration 1.5s: want whole seconds",
		"--measure-window 1s":                                             "--measure-window 1s: want at least a minute",
		"--backup-every 1h":                                               "--backup-every: needs --backup-dir and --backup-key",
		"--tls-cert " + file + " --tls-key " + file:                       "--tls-cert, --tls-key: ",
		"--tls-client-ca " + file:                                         "--tls-client-ca needs --tls-cert and --tls-key",
		"--listen " + inUse:                                               "--listen: listen tcp " + inUse + ": bind: address already in use",
		"--listen 8080":                                                   "--listen: listen tcp: address 8080: missing port in address",
		"--metrics-listen " + inUse:                                       "--metrics-listen: listen tcp " + inUse + ": bind: address already in use",
		"--resources-listen 127.0.0.1:0":                                  "--resources-listen needs ",
		"--resources-listen :0 --tls-cert " + file + " --tls-key " + file: "--tls-cert",
	} {
		t.Run(flags, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			_, err := sluice(t, append([]string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "0"}, strings.Fields(flags)...)...)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the hub has started")
			}
		})
	}
}

// TestServeMayBeStoppedWhileItStarts: that is no error.
func TestServeMayBeStoppedWhileItStarts(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	cmd := newCommand()
	cmd.SetArgs([]string{"serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics-listen", "0"})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Error(err)
	}
}
