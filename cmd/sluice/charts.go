package main

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// chartFlags configure the source of the Helm charts of cluster plans' add-ons.
type chartFlags struct {
	folder      string
	registries  []string
	addresses   ranges
	credentials string
}

func (f *chartFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.folder, "charts", "", "folder with Helm charts of cluster plans' add-ons; charts from registries are kept there, too (docs/clusters.md)")
	flags.StringSliceVar(&f.registries, "chart-registry", nil, "host (HOST or HOST:PORT) from which charts may be downloaded; name the hosts to which a registry sends its clients for tokens and content, too (default: none)")
	flags.Var(&f.addresses, "chart-registry-addresses", "private address ranges (CIDR) in which chart registries may be (default: public addresses only)")
	flags.StringVar(&f.credentials, "chart-registry-credentials", "", "file with the users and passwords of chart registries, as helm registry login writes it; read again before each download")
}

// open returns the charts; nil without --charts.
func (f *chartFlags) open() (*store.Store, error) {
	if f.folder == "" {
		if len(f.registries) > 0 {
			return nil, fmt.Errorf("--chart-registry: --charts is needed, the folder in which what is fetched is kept")
		}
		return nil, nil
	}
	for _, host := range f.registries {
		u, err := url.Parse("https://" + host)
		if err != nil || u.Host != host || u.Hostname() == "" || strings.ToLower(host) != host {
			return nil, fmt.Errorf("--chart-registry %q: want HOST or HOST:PORT, in lower case", host)
		}
	}
	if f.credentials != "" {
		if _, err := os.Stat(f.credentials); err != nil {
			return nil, fmt.Errorf("--chart-registry-credentials: %w", err)
		}
	}
	return &store.Store{
		Folder: f.folder, Registries: f.registries, Credentials: f.credentials, Client: guarded.NewClient(guarded.Options{AllowAddresses: f.addresses}),
	}, nil
}
