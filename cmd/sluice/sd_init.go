package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/draft"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// sdInitFlags are a provider's statements about itself; all of them can be changed in the
// file later.
type sdInitFlags struct {
	dir                              folder
	did, base, algorithm             string
	keysOnly                         bool
	name, country, legalCountry      string
	registration                     map[string]string
	gaiaXTerms                       bool
	datacenter, datacenterCountry    string
	datacenterTitle                  string
	clusters                         []string
	offering                         string
	termsURL, termsFile, termsSHA256 string
	validDays                        int
}

func newSDInitCommand() *cobra.Command {
	f := &sdInitFlags{}
	cmd := &cobra.Command{
		Use:   "init --did DID",
		Short: "Begin a self-description: a file to fill in, a key, and the DID document to publish",
		Long: `Begin a self-description. It creates in --dir

  description.yaml   what you say, with comments; change it by hand as you like
  key.json           the private key that signs (mode 0600); keep it safe, it is you
  did.json           publish it where the DID says: https://HOST/.well-known/did.json
  jwks.json          the same public key, for brokers that are given keys instead of fetching them

For each --cluster it asks the cluster for the uid of its namespace kube-system and takes the digest of the
public key that its API server presents. These two bind the credential to this cluster. Only the right to read
that namespace is needed. Without --cluster the description is one of the organisation alone, as a consumer needs.

Run again, it keeps the key and refuses to overwrite the description.`,
		Example: `  sluice sd init --did did:web:provider.example --name "Provider GmbH" --country DE \
    --registration vatID=DE123456789 --terms-url https://provider.example/terms.pdf --terms-file terms.pdf \
    --cluster eu=eu.kubeconfig --offering "Kubernetes in Frankfurt"
  sluice sd init --did did:web:city.example --name "City" --country DE --registration vatID=DE987654321 --dir city  # a consumer
  sluice sd init --did did:web:certifier.example --keys-only --dir certifier   # for those who sign about others
  sluice sd init --did did:key --keys-only --dir lab                           # a DID that needs no web server`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signer, err := f.key()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "key of %s in %s: keep it safe\n", signer.Issuer(), f.dir.path(keyFile))
			if url, err := did.WebURL(signer.Issuer()); err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "publish %s at %s\n", f.dir.path(didFile), url)
			}
			if f.keysOnly {
				return nil
			}
			return f.describe(cmd, signer.Issuer())
		},
	}
	flags := cmd.Flags()
	f.dir.bind(cmd)
	flags.StringVar(&f.did, "did", "", "DID of the signer: did:web:HOST, or did:key, which is derived from the key itself")
	flags.StringVar(&f.algorithm, "algorithm", "ES256", "algorithm of the key: "+strings.Join(selfdescription.Algorithms(), ", "))
	flags.BoolVar(&f.keysOnly, "keys-only", false, "create no description; for notaries and certification bodies")
	flags.StringVar(&f.base, "base", "", "base URL of the ids of everything described (default: /selfdescription on the DID's host)")
	flags.StringVar(&f.name, "name", "", "legal name of the organisation")
	flags.StringVar(&f.country, "country", "", "country of the headquarters, an ISO 3166-1 code")
	flags.StringVar(&f.legalCountry, "legal-country", "", "country of registration (default: --country)")
	flags.StringToStringVar(&f.registration, "registration", nil, "registration number: vatID=…, leiCode=…, eori=… or euid=…")
	flags.BoolVar(&f.gaiaXTerms, "accept-gaia-x-terms", false, "accept the terms and conditions of Gaia-X")
	flags.StringVar(&f.datacenter, "datacenter", "main", "name of the data centre")
	flags.StringVar(&f.datacenterTitle, "datacenter-title", "", "title of the data centre")
	flags.StringVar(&f.datacenterCountry, "datacenter-country", "", "country of the data centre (default: --country)")
	flags.StringArrayVar(&f.clusters, "cluster", nil, "cluster that is offered, NAME=KUBECONFIG, or NAME alone to fill in by hand (repeatable)")
	flags.StringVar(&f.offering, "offering", "Kubernetes", "title of the service offering")
	flags.StringVar(&f.termsURL, "terms-url", "", "URL of the terms and conditions of the service")
	flags.StringVar(&f.termsFile, "terms-file", "", "file with the terms and conditions, to compute their digest")
	flags.StringVar(&f.termsSHA256, "terms-sha256", "", "SHA-256 digest of the terms and conditions in hexadecimal, instead of the file")
	flags.IntVar(&f.validDays, "valid-days", draft.DefaultValidDays, "how long the credentials are valid, in days")
	_ = cmd.MarkFlagRequired("did")
	return cmd
}

// key creates the folder and the key unless they exist, and writes the files to publish.
func (f *sdInitFlags) key() (*selfdescription.Signer, error) {
	if err := os.MkdirAll(string(f.dir), 0o755); err != nil {
		return nil, err
	}
	if _, err := os.Stat(f.dir.path(keyFile)); errors.Is(err, fs.ErrNotExist) {
		if err := f.newKey(); err != nil {
			return nil, err
		}
	}
	signer, err := f.dir.signer()
	if err != nil {
		return nil, err
	}
	if f.did != "did:key" && signer.Issuer() != f.did {
		return nil, fmt.Errorf("the key in %s is of %s, not of %s", f.dir.path(keyFile), signer.Issuer(), f.did)
	}
	public := []jose.JSONWebKey{signer.Public()}
	if err := writeJSON(f.dir.path(didFile), did.WebDocument(signer.Issuer(), public), 0o644); err != nil {
		return nil, err
	}
	return signer, writeJSON(f.dir.path(jwksFile), jose.JSONWebKeySet{Keys: public}, 0o644)
}

func (f *sdInitFlags) newKey() error {
	key, err := selfdescription.GenerateKey(f.algorithm, f.did+"#key-1")
	if err != nil {
		return err
	}
	if f.did == "did:key" {
		own, err := did.KeyDID(key.Public())
		if err != nil {
			return err
		}
		key.KeyID = own + "#" + strings.TrimPrefix(own, "did:key:") // the only fragment of a did:key
	}
	return writeJSON(f.dir.path(keyFile), key, 0o600)
}

// describe writes the description.
func (f *sdInitFlags) describe(cmd *cobra.Command, issuer string) error {
	path := f.dir.path(descriptionFile)
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s exists: change it by hand, or remove it first", path)
	}
	d, err := f.draft(cmd.Context(), issuer)
	if err != nil {
		return err
	}
	text, err := draft.Write(d)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "description in %s\n", path)
	if _, err := draft.Parse(text); err != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "fill in, before `sluice sd sign`:\n  %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		return nil
	}
	for _, c := range d.Clusters {
		fmt.Fprintf(cmd.OutOrStdout(), "cluster %s is offered as %s\n", c.Name, d.Offering(c.Name))
	}
	return nil
}

// draft returns a description from the flags and the clusters.
func (f *sdInitFlags) draft(ctx context.Context, issuer string) (*draft.Draft, error) {
	terms, err := f.terms()
	if err != nil {
		return nil, err
	}
	d := &draft.Draft{
		DID: issuer, Base: cmp.Or(f.base, baseOf(issuer)), ValidDays: f.validDays,
		Provider: draft.Organisation{
			Name: f.name, HeadquartersCountry: f.country, LegalCountry: cmp.Or(f.legalCountry, f.country), Registration: f.registration,
		},
	}
	if len(f.clusters) > 0 {
		d.Datacenters = []draft.Datacenter{{Name: f.datacenter, Title: f.datacenterTitle, Country: cmp.Or(f.datacenterCountry, f.country)}}
	}
	for flag, country := range map[string]string{"--country": f.country, "--legal-country": f.legalCountry, "--datacenter-country": f.datacenterCountry} {
		if _, ok := shape.Country(country); country != "" && !ok {
			return nil, fmt.Errorf("%s %q: not an ISO 3166-1 code", flag, country)
		}
	}
	if f.gaiaXTerms {
		d.Provider.GaiaXTerms = draft.GaiaXTerms
	}
	for _, text := range f.clusters {
		name, kubeconfig, _ := strings.Cut(text, "=")
		c := draft.Cluster{Name: name, Offering: f.offering, Datacenter: f.datacenter, Terms: terms}
		if kubeconfig != "" {
			if c.UID, c.KeyHash, err = clusterFacts(ctx, kubeconfig); err != nil {
				return nil, fmt.Errorf("--cluster %s: %w", text, err)
			}
		}
		d.Clusters = append(d.Clusters, c)
	}
	return d, nil
}

func (f *sdInitFlags) terms() (draft.Terms, error) {
	terms := draft.Terms{URL: f.termsURL, SHA256: f.termsSHA256}
	if f.termsFile == "" {
		return terms, nil
	}
	data, err := os.ReadFile(f.termsFile)
	if err != nil {
		return terms, fmt.Errorf("--terms-file: %w", err)
	}
	sum := sha256.Sum256(data)
	terms.SHA256 = hex.EncodeToString(sum[:])
	return terms, nil
}

// baseOf is a URL on the host of a did:web; any other DID is its own base.
func baseOf(issuer string) string {
	document, err := did.WebURL(issuer)
	if err != nil {
		return issuer
	}
	return strings.TrimSuffix(strings.TrimSuffix(document, "/did.json"), "/.well-known") + "/selfdescription"
}

// writeJSON writes a file atomically.
func writeJSON(path string, value any, mode fs.FileMode) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, append(data, '\n'), mode); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// clusterTimeout limits requests to a cluster.
const clusterTimeout = 15 * time.Second
