package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

func newSDVerifyCommand() *cobra.Command {
	var dir folder
	var keys, hosts []string
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "verify [FILE|FOLDER ...]",
		Short: "Verify credentials and show every step; works without a network",
		Long: `Verify credentials: those of files, of folders (*.jwt), or else of the folder --dir. It prints what was checked, step by
step, and fails if anything did not pass. It verifies the statements of brokers, too: contracts and usage.

Keys come from --keys (did.json or jwks.json files, each of which gives the keys of one DID) and, with no --keys, from
the folder --dir. The keys of a did:key are in its name. Nothing is fetched, unless --fetch names the hosts that may be
asked for the did.json of a did:web.

It then checks them together: whether each bound offering leads to its provider and its data centre. It cannot know
which notaries and certification bodies a broker's operator trusts, nor whether the cluster is the one that a
ClusterBinding names. "sluice sd present" reports both.`,
		Example: `  sluice sd verify
  sluice sd verify credentials/certification.jwt --keys certifier-jwks.json
  sluice sd verify offering.jwt --fetch provider.example`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{dir.path(credentialsDir)}
			}
			if len(keys) == 0 && len(hosts) == 0 {
				keys = []string{dir.path(jwksFile)}
			}
			tokens, err := readTokens(args...)
			if err != nil {
				return err
			}
			known, err := readKeys(cmd.ErrOrStderr(), keys)
			if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("keys") {
				return fmt.Errorf("no keys of issuers: name files with --keys, or hosts with --fetch: %w", err)
			}
			if err != nil {
				return err
			}
			verifier := &selfdescription.Verifier{Keys: &did.Resolver{
				Keys:  func(name string) (*jose.JSONWebKeySet, bool) { set, ok := known[name]; return set, ok },
				Hosts: func(host string) bool { return slices.Contains(hosts, host) },
			}}
			return verifyTokens(cmd, verifier, tokens, &output)
		},
	}
	dir.bind(cmd)
	output.bind(cmd)
	cmd.Flags().StringArrayVar(&keys, "keys", nil, "did.json or jwks.json with keys of issuers (repeatable)")
	cmd.Flags().StringSliceVar(&hosts, "fetch", nil, "hosts from which keys of a did:web may be fetched")
	return cmd
}

// verified is the result for one credential, as --output json prints it.
type verified struct {
	File   string                 `json:"file"`
	Type   string                 `json:"type,omitempty"`
	Issuer string                 `json:"issuer,omitempty"`
	Digest string                 `json:"digest"`
	Report selfdescription.Report `json:"report"`
}

func verifyTokens(cmd *cobra.Command, verifier *selfdescription.Verifier, tokens []token, output *outputFlag) error {
	var all []verified
	var set []*selfdescription.Credential
	failed := 0
	for _, t := range tokens {
		v := verified{File: t.file, Digest: selfdescription.DigestOf(t.compact).SRI()}
		if c := v.verify(cmd.Context(), verifier, t.compact); c != nil {
			set = append(set, c)
		} else if !v.Report.OK() {
			failed++
		}
		all = append(all, v)
		if output.forPeople() {
			printVerified(cmd.OutOrStdout(), v)
		}
	}
	if !output.forPeople() {
		if err := output.print(cmd.OutOrStdout(), all, table{}); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d credentials did not pass", failed, len(all))
	}
	if output.forPeople() {
		return verifySet(cmd.OutOrStdout(), set)
	}
	return nil
}

// verify verifies a credential, which it returns, or a statement of a broker.
func (v *verified) verify(ctx context.Context, verifier *selfdescription.Verifier, compact string) *selfdescription.Credential {
	if selfdescription.IsStatement(compact) {
		statement, report := verifier.Statement(ctx, compact)
		if v.Report = report; statement != nil {
			v.Type, v.Issuer = statement.Type, statement.Issuer
		}
		return nil
	}
	if credential, err := selfdescription.Parse(compact); err == nil {
		v.Type, v.Issuer = credential.Type, credential.Issuer
	}
	credential, report := verifier.Credential(ctx, compact)
	v.Report = report
	return credential
}

// verifySet shows, for each cluster that a credential binds, what the credentials prove
// together. It trusts no issuer except the provider itself.
func verifySet(w io.Writer, set []*selfdescription.Credential) error {
	refused := 0
	for _, c := range set {
		if c.Type != selfdescription.TypeClusterBinding {
			continue
		}
		reference, _ := c.Claims["offering"].(map[string]any)
		offering, _ := reference["id"].(string)
		uid, _ := c.Claims["clusterUID"].(string)
		keyHash, _ := c.Claims["apiServerKeyHash"].(string)
		claims, report := selfdescription.Admit(set, offering, selfdescription.ClusterFacts{UID: uid, KeyHash: keyHash},
			selfdescription.Requirements{Provider: c.Issuer}, nil, time.Now())
		fmt.Fprintf(w, "%s\n  together, for cluster %s\n", offering, uid)
		printSteps(w, report.Steps)
		for _, claim := range claims {
			fmt.Fprintf(w, "    %s = %s\n", claim.Name, claim.Value)
		}
		if !report.OK() {
			refused++
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d bindings refer to credentials that do not fit together", refused)
	}
	return nil
}

func printVerified(w io.Writer, v verified) {
	fmt.Fprintf(w, "%s\n  %s of %s, %s\n", v.File, cmp.Or(v.Type, "a credential"), cmp.Or(v.Issuer, "nobody known"), v.Digest)
	printSteps(w, v.Report.Steps)
}

// printSteps prints a report with a mark for each step.
func printSteps(w io.Writer, steps []selfdescription.Step) {
	for _, s := range steps {
		fmt.Fprintf(w, "  %s %-10s %s\n", mark(s.Result), s.Name, s.Message)
	}
}

func mark(result selfdescription.Result) string {
	switch result {
	case selfdescription.Passed:
		return "✓"
	case selfdescription.Failed:
		return "✗"
	}
	return "·"
}

// readKeys reads public keys from DID documents and JSON Web Key Sets, by DID. It reports
// the keys that it omits.
func readKeys(tell io.Writer, files []string) (map[string]*jose.JSONWebKeySet, error) {
	known, from := map[string]*jose.JSONWebKeySet{}, map[string]string{}
	for _, file := range files {
		published, err := readKeySet(tell, file)
		if err != nil {
			return nil, err
		}
		if other, twice := from[published.DID]; twice {
			return nil, fmt.Errorf("%s and %s both give keys of %s: want one file for each DID", other, file, published.DID)
		}
		from[published.DID] = file
		known[published.DID] = &jose.JSONWebKeySet{Keys: published.Keys}
	}
	return known, nil
}

// readKeySet reads a DID document, or else a JSON Web Key Set. The error names the file.
func readKeySet(tell io.Writer, file string) (*did.Published, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	read := did.ReadKeySet
	for _, member := range []string{"id", "verificationMethod", "assertionMethod"} {
		if members[member] != nil {
			read = did.ReadDocument
		}
	}
	published, err := read(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(published.Keys) == 0 {
		return nil, errors.New(strings.Join(append([]string{file + ": no key in it that can be used: want a JSON Web Key Set or a DID document"}, published.Skipped...), "; "))
	}
	for _, why := range published.Skipped {
		fmt.Fprintf(tell, "%s: left out: %s\n", file, why)
	}
	return published, nil
}
