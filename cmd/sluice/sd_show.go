package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

func newSDShowCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show FILE|URL|DIGEST",
		Short: "Show what a credential says, decoded",
		Long: `Show what a credential or a presentation says: its header and its payload, decoded and not verified. It takes
a file ("-" is standard input), an http or https URL, or the digest of a credential that the hub holds
("sha256-…", or in hexadecimal), of which it also shows how the hub verified it.`,
		Example: `  sluice sd show credentials/offering-eu.jwt
  sluice sd show https://broker.example/selfdescriptions/3f1c9a…
  sluice sd show sha256-PxzN…`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if digest, ok := parseDigest(args[0]); ok {
				return showStored(cmd, hub, digest)
			}
			compact, err := fetchToken(cmd, args[0])
			if err != nil {
				return err
			}
			return showToken(cmd.OutOrStdout(), compact)
		},
	}
	hub.bind(cmd)
	return cmd
}

// parseDigest parses a digest as Subresource Integrity or in hexadecimal.
func parseDigest(text string) (selfdescription.Digest, bool) {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == len(selfdescription.Digest{}) {
		return selfdescription.Digest(raw), true
	}
	digest, err := selfdescription.ParseSRI(text)
	return digest, err == nil
}

// fetchToken reads a token from a file, standard input or a URL that the user named.
func fetchToken(cmd *cobra.Command, from string) (string, error) {
	var data []byte
	var err error
	if strings.HasPrefix(from, "https://") || strings.HasPrefix(from, "http://") {
		data, err = download(cmd, from)
	} else {
		data, err = readInput(cmd, from)
	}
	return string(bytes.TrimSpace(data)), err
}

func download(cmd *cobra.Command, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", selfdescription.MediaTypeCredential)
	response, err := brokerHTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, selfdescription.MaxPresentation))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return data, nil
}

// showToken prints header and payload of a JWT without verifying it.
func showToken(w io.Writer, compact string) error {
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return fmt.Errorf("not a token: %d parts where a JWT has 3", len(parts))
	}
	for i, title := range []string{"header", "payload, not verified"} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, data, "", "  "); err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
		fmt.Fprintf(w, "# %s\n%s\n", title, pretty.Bytes())
	}
	_, err := fmt.Fprintf(w, "# digest\n%s\n", selfdescription.DigestOf(compact).SRI())
	return err
}

// findStored reads a credential from the hub.
func findStored(ctx context.Context, hub *hubFlags, c client.Client, digest selfdescription.Digest) (*v1alpha1.SelfDescription, error) {
	stored := &v1alpha1.SelfDescription{}
	key := client.ObjectKey{Namespace: hub.namespace, Name: v1alpha1.SelfDescriptionName(digest)}
	if err := c.Get(ctx, key, stored); err != nil {
		return nil, fmt.Errorf("credential %s: %w", digest.SRI(), err)
	}
	return stored, nil
}

// showStored prints a credential from the hub, and its report.
func showStored(cmd *cobra.Command, hub *hubFlags, digest selfdescription.Digest) error {
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	stored, err := findStored(cmd.Context(), hub, c, digest)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if stored.Spec.Legacy {
		fmt.Fprintln(w, stored.Spec.Credential)
	} else if err := showToken(w, stored.Spec.Credential); err != nil {
		return err
	}
	fmt.Fprintf(w, "# state\n%s", cmp.Or(string(stored.Status.State), "pending"))
	if at := stored.Status.VerifiedAt; at != nil {
		fmt.Fprintf(w, ", verified %s", at.UTC().Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	printReport(w, stored.Status.Report)
	return nil
}

// printReport prints the steps of a verification by the hub.
func printReport(w io.Writer, report []v1alpha1.VerificationStep) {
	for _, s := range report {
		fmt.Fprintf(w, "  %s %-10s %s\n", mark(selfdescription.Result(s.Result)), s.Step, s.Message)
	}
}
