package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/selfdescription"
)

// sdPresentFlags select the broker and the credentials.
type sdPresentFlags struct {
	dir      folder
	to       string
	audience string
	dryRun   bool
}

func newSDPresentCommand() *cobra.Command {
	f := &sdPresentFlags{}
	cmd := &cobra.Command{
		Use:   "present --to URL",
		Short: "Present all credentials of the folder to a broker",
		Long: `Present all credentials of the folder to a broker: ask it for a nonce, sign a presentation (a VP-JWT) for that
broker, that nonce and this one operation, valid once and for five minutes, send it, and print the broker's findings.

A presentation is valid only for the broker that it names: by default did:web of the host in --to. If the broker is
reached under another name than its own, --audience names it.`,
		Example: `  sluice sd present --to https://broker.example
  sluice sd present --to http://127.0.0.1:8080 --audience did:web:broker.example --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.present(cmd)
		},
	}
	f.bindBroker(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "verify only; the broker stores nothing")
	return cmd
}

// bindBroker binds the flags that select the broker and the folder of the keys.
func (f *sdPresentFlags) bindBroker(cmd *cobra.Command) {
	f.dir.bind(cmd)
	cmd.Flags().StringVar(&f.to, "to", "", "URL of the broker")
	cmd.Flags().StringVar(&f.audience, "audience", "", "DID of the broker (default: did:web of the host in --to)")
	_ = cmd.MarkFlagRequired("to")
}

// brokerHTTP is the client for requests to brokers.
var brokerHTTP = &http.Client{Timeout: time.Minute}

// challenge is a broker's response to POST /selfdescriptions/challenges.
type challenge struct {
	Nonce    string `json:"nonce"`
	Audience string `json:"audience"`
	// Description of the error, in an error response.
	Description string `json:"description"`
}

// present asks for a nonce, signs a presentation for that nonce and operation, and sends
// it.
func (f *sdPresentFlags) present(cmd *cobra.Command) error {
	signer, err := f.dir.signer()
	if err != nil {
		return err
	}
	tokens, err := readTokens(f.dir.path(credentialsDir))
	if err != nil {
		return err
	}
	operation, path := selfdescription.OperationPresent, "/selfdescriptions"
	if f.dryRun {
		operation, path = selfdescription.OperationVerify, path+"/verify"
	}
	expected, err := f.ask(cmd.Context(), operation)
	if err != nil {
		return err
	}
	compact, files := make([]string, len(tokens)), map[string]string{}
	for i, t := range tokens {
		compact[i] = t.compact
		files[selfdescription.DigestOf(t.compact).SRI()] = t.file
	}
	presentation, err := signer.Presentation(compact, expected, time.Now())
	if err != nil {
		return err
	}
	var answer presented
	status, err := f.post(cmd.Context(), path, selfdescription.MediaTypePresentation, []byte(presentation), &answer)
	if err != nil {
		return err
	}
	if err := answer.print(cmd.OutOrStdout(), files); err != nil || status < 300 {
		return err
	}
	return fmt.Errorf("%s refused the presentation with status %d: %s", f.to, status, cmp.Or(answer.Description, "it does not say why"))
}

// ask asks the broker for a nonce for an operation, and returns what a presentation for it has to contain.
func (f *sdPresentFlags) ask(ctx context.Context, operation selfdescription.Operation) (expected selfdescription.Expect, err error) {
	audience, err := f.expectedAudience()
	if err != nil {
		return expected, err
	}
	var asked challenge
	if _, err := f.post(ctx, "/selfdescriptions/challenges?operation="+string(operation), "", nil, &asked); err != nil {
		return expected, err
	}
	if asked.Nonce == "" {
		return expected, fmt.Errorf("%s accepts no presentations: %s", f.to, cmp.Or(asked.Description, "it gave no nonce"))
	}
	if asked.Audience != audience {
		return expected, fmt.Errorf("%s calls itself %s, want %s: if it is the broker that you mean, name it with --audience", f.to, asked.Audience, audience)
	}
	return selfdescription.Expect{Audience: audience, Nonce: asked.Nonce, Operation: operation}, nil
}

// expectedAudience returns the DID of the broker that the user means.
func (f *sdPresentFlags) expectedAudience() (string, error) {
	to, err := url.Parse(f.to)
	if err != nil || to.Host == "" || (to.Scheme != "https" && to.Scheme != "http") {
		return "", fmt.Errorf("--to %q: want an https URL", f.to)
	}
	if f.audience != "" {
		return f.audience, nil
	}
	return "did:web:" + strings.ReplaceAll(to.Host, ":", "%3A"), nil
}

// presented is a broker's response to a presentation.
type presented struct {
	// Report of the presentation itself.
	Report selfdescription.Report `json:"report"`
	// Credentials of the presentation, in its order.
	Credentials []presentedCredential `json:"credentials"`
	// Description of the error, in an error response.
	Description string `json:"description"`
}

type presentedCredential struct {
	Digest string                 `json:"digest"`
	Type   string                 `json:"type"`
	State  string                 `json:"state"`
	Report selfdescription.Report `json:"report"`
}

// print shows the response, and fails if the broker refused the presentation or a
// credential.
func (p *presented) print(w io.Writer, files map[string]string) error {
	if failed := p.Report.Failed(); failed != nil {
		fmt.Fprintln(w, "presentation")
		printSteps(w, p.Report.Steps)
		return fmt.Errorf("the presentation was refused at step %s: %s", failed.Name, failed.Message)
	}
	refused := 0
	for _, c := range p.Credentials {
		result := selfdescription.Passed
		if c.Report.Failed() != nil {
			result = selfdescription.Failed
		}
		fmt.Fprintf(w, "%s %s: %s, %s\n", mark(result), cmp.Or(files[c.Digest], c.Digest), c.Type, c.State)
		if result == selfdescription.Failed {
			printSteps(w, c.Report.Steps)
			refused++
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d credentials were refused", refused, len(p.Credentials))
	}
	return nil
}

// post sends one request to the broker and decodes its JSON response.
func (f *sdPresentFlags) post(ctx context.Context, path, contentType string, body []byte, answer any) (status int, err error) {
	target := strings.TrimSuffix(f.to, "/") + path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := brokerHTTP.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("POST %s: %w", target, err)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return 0, fmt.Errorf("POST %s: %s, which is not the answer of a broker with self-descriptions", target, response.Status)
	}
	return response.StatusCode, nil
}

// maxAnswer limits the bytes that are read of a response.
const maxAnswer = 4 << 20
