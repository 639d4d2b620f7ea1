package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/selfdescription"
)

func newSDLoginCommand() *cobra.Command {
	f := &sdPresentFlags{}
	cmd := &cobra.Command{
		Use:   "login --to URL",
		Short: "Print a token for the market of a broker",
		Long: `Print a token with which a provider calls the market of a broker, /market/v1, for an hour: ask the broker for a nonce,
sign a presentation without credentials for that broker, that nonce and this one operation, and send it. Keep the
token secret.`,
		Example: `  TOKEN=$(sluice sd login --to https://broker.example)
  curl -H "Authorization: Bearer $TOKEN" https://broker.example/market/v1/offerings`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.login(cmd) },
	}
	f.bindBroker(cmd)
	return cmd
}

// login prints a token.
func (f *sdPresentFlags) login(cmd *cobra.Command) error {
	signer, err := f.dir.signer()
	if err != nil {
		return err
	}
	expected, err := f.ask(cmd.Context(), selfdescription.OperationLogin)
	if err != nil {
		return err
	}
	presentation, err := signer.Presentation(nil, expected, time.Now())
	if err != nil {
		return err
	}
	var answer struct {
		Token string `json:"token"`
		// Description of the error, in an error response.
		Description string `json:"description"`
	}
	status, err := f.post(cmd.Context(), "/market/v1/tokens", selfdescription.MediaTypePresentation, []byte(presentation), &answer)
	if err != nil {
		return err
	}
	if answer.Token == "" {
		return fmt.Errorf("%s gave no token, with status %d: %s", f.to, status, cmp.Or(answer.Description, "it does not say why"))
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), answer.Token)
	return err
}
