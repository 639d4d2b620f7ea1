package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/draft"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// sdSignFlags select the statements to sign about others' credentials. Without them, the
// folder's own description is signed.
type sdSignFlags struct {
	dir         folder
	attestation draft.Attestation
	about       []string
	out         string
	validDays   int
}

func newSDSignCommand() *cobra.Command {
	f := &sdSignFlags{}
	cmd := &cobra.Command{
		Use:   "sign",
		Short: "Sign the description, or what you attest about others' credentials",
		Long: `Sign the description: one credential (a VC-JWT, W3C Verifiable Credentials 2.0) for each thing it says, in
credentials/. Each is held against the shape of its type first; nothing is signed that a verifier would refuse.
A credential in that folder that somebody else signed (a notary's in place of your own word, say) is kept.

With --type, attest facts about credentials that others signed (--about, repeatable):

  VatID, LeiCode, EORI, EUID   repeat a registration number that you, a notary, have checked
  Datacenter, LegalPerson …    likewise, any type: you stand for the same facts
  Certification                certify to a --standard; it names the digests of what it is about
  LabelCredential              give a Gaia-X label; it names the digests of what it is about

Each broker's operator decides what your attestations are worth: sluice issuer add --help.`,
		Example: `  sluice sd sign
  sluice sd sign --dir notary --type VatID --about credentials/registration.jwt --out credentials/registration.jwt
  sluice sd sign --dir certifier --type Certification --standard "ISO/IEC 27001" \
    --about credentials/datacenter-main.jwt --about credentials/offering-eu.jwt --out credentials/certification.jwt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signer, err := f.dir.signer()
			if err != nil {
				return err
			}
			if f.attestation.Type != "" {
				return f.attest(cmd.OutOrStdout(), signer, time.Now())
			}
			if len(f.about) > 0 || f.out != "" {
				return errors.New("--about and --out go with --type")
			}
			return signDescription(cmd.OutOrStdout(), f.dir, signer, time.Now())
		},
	}
	f.dir.bind(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.attestation.Type, "type", "", "type of the credential to attest, for instance Certification")
	flags.StringArrayVar(&f.about, "about", nil, "file with a credential that the attestation is about (repeatable)")
	flags.StringVar(&f.out, "out", "", "file to write (default: standard output)")
	flags.StringVar(&f.attestation.ID, "id", "", "id of the credential, a URL (default: below the DID's host)")
	flags.StringVar(&f.attestation.Standard, "standard", "", "standard of a Certification, for instance \"ISO/IEC 27001\"")
	flags.StringVar(&f.attestation.Level, "level", "", "level of a LabelCredential: SC, L1, L2 or L3")
	flags.StringVar(&f.attestation.Rules, "rules", "CD25.10", "version of the rules by which a LabelCredential was given")
	flags.StringVar(&f.attestation.Engine, "engine", "sluice", "version of the program that checked the criteria")
	flags.StringArrayVar(&f.attestation.Criteria, "criterion", nil, "criterion that a LabelCredential found fulfilled (repeatable)")
	flags.IntVar(&f.validDays, "valid-days", draft.DefaultValidDays, "how long an attestation is valid, in days")
	return cmd
}

// signDescription signs everything that the description states.
func signDescription(w io.Writer, dir folder, signer *selfdescription.Signer, now time.Time) error {
	data, err := os.ReadFile(dir.path(descriptionFile))
	if err != nil {
		return err
	}
	description, err := draft.Parse(data)
	if err != nil {
		return fmt.Errorf("%s:\n%w", dir.path(descriptionFile), err)
	}
	if description.DID != signer.Issuer() {
		return fmt.Errorf("%s: did %s, but the key is of %s", dir.path(descriptionFile), description.DID, signer.Issuer())
	}
	documents := description.Documents(now)
	var refused []error
	for _, d := range documents {
		refused = append(refused, checkShape(d.Name, d.Subject))
	}
	if err := errors.Join(refused...); err != nil {
		return err
	}
	if err := os.MkdirAll(dir.path(credentialsDir), 0o755); err != nil {
		return err
	}
	for _, d := range documents {
		file := dir.path(credentialsDir + "/" + d.Name + credentialExt)
		if other, err := readCredential(file); err == nil && other.Issuer != signer.Issuer() {
			fmt.Fprintf(w, "%s: kept, signed by %s\n", file, other.Issuer)
			continue
		}
		if err := signTo(w, file, signer, d.Document); err != nil {
			return err
		}
	}
	return nil
}

// attest signs a statement about the credentials of others.
func (f *sdSignFlags) attest(w io.Writer, signer *selfdescription.Signer, now time.Time) error {
	a := f.attestation
	for _, path := range f.about {
		credential, err := readCredential(path)
		if err != nil {
			return err
		}
		a.About = append(a.About, credential)
	}
	a.ValidFrom = now.UTC().Truncate(time.Second)
	a.ValidUntil = a.ValidFrom.AddDate(0, 0, f.validDays)
	if a.ID == "" && len(a.About) > 0 {
		a.ID = baseOf(signer.Issuer()) + "/" + strings.ToLower(a.Type) + "-" + a.About[0].Digest.String()[:16]
	}
	document, err := a.Document()
	if err != nil {
		return err
	}
	if err := checkShape(a.Type, document.Subject); err != nil {
		return err
	}
	if f.out == "" {
		compact, err := signer.Credential(document)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, compact)
		return err
	}
	return signTo(w, f.out, signer, document)
}

func signTo(w io.Writer, file string, signer *selfdescription.Signer, document selfdescription.Document) error {
	compact, err := signer.Credential(document)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(compact+"\n"), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s: %s, valid until %s\n", file, document.Subject["type"], document.ValidUntil.Format(time.DateOnly))
	return err
}

// checkShape returns one error with everything that a subject lacks of its type's shape.
func checkShape(name string, subject map[string]any) error {
	text, err := json.Marshal(subject) // the shapes describe JSON
	if err != nil {
		return err
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return err
	}
	var lines []string
	for _, v := range shape.Check(decoded) {
		lines = append(lines, fmt.Sprintf("  %s: %s, got %q", v.Path, v.Rule, v.Value))
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("%s does not have the shape of a %s:\n%s", name, subject["type"], strings.Join(lines, "\n"))
}
