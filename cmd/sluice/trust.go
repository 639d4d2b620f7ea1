package main

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription/controller"
	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/draft"
	"github.com/sluice-dev/sluice/selfdescription/server"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

// trustFlags configure the broker's identity and the hosts that it asks for keys.
type trustFlags struct {
	publicURL    string
	describe     string
	hosts        []string
	addresses    ranges
	rotateEvery  time.Duration
	vantage      string
	probes       ranges
	measureEvery time.Duration

	recorder *journal.Recorder // of admissions
}

func (f *trustFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.publicURL, "public-url", "", "https URL of this broker, which is also its identity (did:web:HOST); without it, the broker issues no credentials and accepts no presentations")
	flags.StringVar(&f.describe, "describe", "", "description of the organisation that runs this broker (as sluice sd init writes it, without clusters); the broker signs and publishes it")
	flags.StringSliceVar(&f.hosts, "did-hosts", nil, "hosts from which DID documents and status lists may be fetched, beside those of providers and trusted issuers")
	flags.Var(&f.addresses, "did-allow-addresses", "private address ranges (CIDR) in which DID documents and status lists may be fetched (default: public addresses only)")
	flags.DurationVar(&f.rotateEvery, "identity-rotate-every", 90*24*time.Hour, "how long the broker signs with one key")
	flags.StringVar(&f.vantage, "vantage", "", "name of the place from which this broker probes; if set, the broker measures member clusters and signs the measurements")
	flags.Var(&f.probes, "probe-allow-addresses", "private address ranges (CIDR) in which probes on member clusters may reach this broker (default: public addresses only)")
	flags.DurationVar(&f.measureEvery, "measure-window", 24*time.Hour, "length of one measurement")
}

// name returns the broker's DID (did:web method specification, 3.1); "" without a URL.
func (f *trustFlags) name() (string, error) {
	if f.publicURL == "" {
		return "", nil
	}
	u, err := url.Parse(f.publicURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("--public-url %q: want https://HOST without a path", f.publicURL)
	}
	return "did:web:" + strings.ReplaceAll(u.Host, ":", "%3A"), nil
}

// organisation reads the description of the organisation that runs the broker; nil without
// --describe.
func (f *trustFlags) organisation(name string) (*draft.Draft, error) {
	if f.describe == "" {
		return nil, nil
	}
	data, err := os.ReadFile(f.describe)
	if err != nil {
		return nil, fmt.Errorf("--describe: %w", err)
	}
	described, err := draft.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("--describe %s: %w", f.describe, err)
	}
	if described.DID != name {
		return nil, fmt.Errorf("--describe %s: did: want the broker's own, %q by --public-url, got %q", f.describe, name, described.DID)
	}
	return described, nil
}

// measured returns how this broker measures member clusters, each of which is probed once in every; empty if it does not.
func (f *trustFlags) measured(every time.Duration) controller.Measure {
	if f.vantage == "" || f.publicURL == "" {
		return controller.Measure{}
	}
	return controller.Measure{Probes: &controller.Probes{Window: f.measureEvery}, Every: every, Vantage: f.vantage}
}

// leastProbes is the least number of probes for which a window is meaningful.
const leastProbes = 10

// checkMeasure refuses windows that are too short for a measurement.
func (f *trustFlags) checkMeasure(m controller.Measure) error {
	if f.measureEvery < time.Minute {
		return fmt.Errorf("--measure-window %s: want at least a minute", f.measureEvery)
	}
	if least := leastProbes * m.Every; f.measureEvery < least {
		return fmt.Errorf("--measure-window %s: want at least %s, the time of %d probes by --probe-every", f.measureEvery, least, leastProbes)
	}
	return nil
}

// assemble adds self-descriptions to the manager, and returns the options of their server. everywhere writes on all
// replicas.
func (f *trustFlags) assemble(mgr ctrl.Manager, h *hub.Hub, keys *seal.Keyset, everywhere client.Client, p prepared) (o server.Options, err error) {
	book := &trust.Book{}
	beside := func(known func(string) bool) func(string) bool {
		return func(host string) bool { return slices.Contains(f.hosts, host) || known(host) }
	}
	fetch := guarded.NewClient(guarded.Options{AllowAddresses: f.addresses})
	resolver := &did.Resolver{Keys: book.Keys, Client: fetch, Hosts: beside(book.Hosts)}
	statuses := &trust.Statuses{Client: fetch, Hosts: beside(book.ListHosts), Clock: clock.RealClock{}}
	err = controller.SetupWithManager(mgr, controller.Options{
		Namespace: h.Namespace, Book: book, Keys: resolver, Statuses: statuses, DID: p.did, Seal: keys,
		RotateEvery: f.rotateEvery, Organisation: p.runBy, Measure: p.measure, Recorder: f.recorder,
	})
	return server.Options{
		Hub: everywhere, Live: mgr.GetAPIReader(), Namespace: h.Namespace, DID: p.did, Seal: keys, Book: book, Keys: resolver, Statuses: statuses,
	}, err
}
