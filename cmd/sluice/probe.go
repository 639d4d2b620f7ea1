package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/probe"
)

// probeFlags are the settings of `sluice probe`.
type probeFlags struct {
	broker, instance, start, tokenFile, caFile string
	log                                        logFlags
}

func newProbeCommand() *cobra.Command {
	f := &probeFlags{}
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Answer a broker from a member cluster, so that it measures the cluster",
		Long: `Answer a broker from a member cluster, so that it measures what workloads there get: whether they are reached, how
long an answer takes, how much comes through, and how long a pod takes to start.

This command runs in the pods of the offering charts/probe.yaml. A placement policy with the section measure orders one
on each cluster that it selects, with its flags in environment variables. It opens one connection to the broker, which
sends random bytes now and then, and times how long it takes until their SHA-256 comes back. Nothing connects to this
command, and it reads nothing of its cluster.

When the connection ends, it connects again after a second, and later and later, a minute at most.`,
		Example: `  sluice probe --broker https://broker.example --instance si-0f3c --token-file token
  SLUICE_PROBE_BROKER=https://broker.example SLUICE_PROBE_INSTANCE=si-0f3c SLUICE_PROBE_TOKEN_FILE=/probe/token sluice probe`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.broker, "broker", "", "URL of the broker, as --public-url of its sluice serve")
	flags.StringVar(&f.instance, "instance", "", "name of the probe's ServiceInstance, which expressions of a plan call instance.name")
	flags.StringVar(&f.start, "start", "", "the parameter start of that instance, by which the broker knows a new pod")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the probe's token, which is the secret token of its instance; read for each connection")
	flags.StringVar(&f.caFile, "ca-file", "", "file with the certificates (PEM) that the broker's is checked against, if they are not the system's")
	f.log.bind(cmd)
	return cmd
}

// run answers the broker until the context ends.
func (f *probeFlags) run(ctx context.Context) error {
	if f.broker == "" || f.instance == "" || f.tokenFile == "" {
		return errors.New("--broker, --instance and --token-file are needed, or $SLUICE_PROBE_BROKER, $SLUICE_PROBE_INSTANCE and $SLUICE_PROBE_TOKEN_FILE")
	}
	roots, err := readBundle(f.caFile)
	if err != nil {
		return err
	}
	client, err := directClient("--broker", f.broker, roots)
	if err != nil {
		return err
	}
	if _, err := f.token(); err != nil {
		return err
	}
	(&probe.Client{Broker: f.broker, Instance: f.instance, Start: f.start, Token: f.token, HTTP: client, Logger: f.log.logger()}).Run(ctx)
	return nil
}

// token reads the token.
func (f *probeFlags) token() (string, error) {
	content, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}
