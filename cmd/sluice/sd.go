package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/selfdescription"
)

func newSDCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sd",
		Short: "Create, sign, verify and present self-descriptions",
		Long: `Create, sign, verify and present self-descriptions: signed statements about a provider and its clusters.

A provider writes down what it is, where its data centres stand and what its clusters offer; signs it; and
presents it to a broker, which places instances by what it could verify. Five commands, in one folder:

  sluice sd init --did did:web:provider.example --name "Provider GmbH" --country DE \
    --registration vatID=DE123456789 --terms-url https://provider.example/terms.pdf --terms-file terms.pdf \
    --cluster eu=eu.kubeconfig
                                 a description to fill in, a key, and the did.json to publish
  sluice sd sign                 one signed credential for each thing said, in credentials/
  sluice sd verify               what a broker will check, step by step, without a network
  sluice sd present --to https://broker.example
                                 present them
  sluice sd show credentials/offering-eu.jwt
                                 what a credential says, in plain JSON

Notaries, compliance services and certification bodies sign with the same tool:

  sluice sd init --did did:web:certifier.example --keys-only --dir certifier
  sluice sd sign --dir certifier --type Certification --standard "ISO/IEC 27001" \
    --about credentials/offering-eu.jwt --about credentials/datacenter-main.jwt --out credentials/certification.jwt

docs/trust.md says what is proven to whom.`,
	}
	cmd.AddCommand(newSDInitCommand(), newSDSignCommand(), newSDVerifyCommand(), newSDPresentCommand(), newSDLoginCommand(), newSDShowCommand(hub), newSDImportCommand(hub), newSDRevokeCommand(hub))
	return cmd
}

// folder holds a provider's description, keys and signed credentials.
type folder string

func (f *folder) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(f), "dir", "selfdescription", "folder with the description, the key and the credentials")
}

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

// Files of the folder.
const (
	descriptionFile = "description.yaml"
	keyFile         = "key.json" // the private key
	didFile         = "did.json"
	jwksFile        = "jwks.json"
	credentialsDir  = "credentials"
	credentialExt   = ".jwt"
)

// signer reads the private key.
func (f folder) signer() (*selfdescription.Signer, error) {
	data, err := os.ReadFile(f.path(keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no key in %s: `sluice sd init` creates one", f)
	}
	if err != nil {
		return nil, err
	}
	var key jose.JSONWebKey
	if err := key.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("%s: not a JSON Web Key: %w", f.path(keyFile), err)
	}
	signer, err := selfdescription.NewSigner(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path(keyFile), err)
	}
	return signer, nil
}

// token is a credential or a presentation in compact serialisation, and the file it was read from.
type token struct{ file, compact string }

// readTokens reads files, and all .jwt files of folders, sorted by name.
func readTokens(paths ...string) ([]token, error) {
	var tokens []token
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*"+credentialExt)); err != nil {
				return nil, err
			}
			if len(files) == 0 {
				return nil, fmt.Errorf("no credential (*%s) in %s", credentialExt, path)
			}
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, token{file, strings.TrimSpace(string(data))})
		}
	}
	return tokens, nil
}

// readCredential reads one credential without verifying it.
func readCredential(path string) (*selfdescription.Credential, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	credential, err := selfdescription.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return credential, nil
}
