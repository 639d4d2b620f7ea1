package legacy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// Importer verifies documents with a proof of type JsonWebSignature2020. Do not change its
// fields once it is used; Import is safe for concurrent use.
type Importer struct {
	Keys selfdescription.KeySource
	// Issuers reports which issuer may issue which types; nil means any issuer any type, with
	// the assurance Self.
	Issuers selfdescription.Issuers
	// KeyID is the DID URL of the key to use instead of the verificationMethod of the proof;
	// empty means the latter. Documents of 2022 name a DID there and no key. The key must be
	// the issuer's in both cases.
	KeyID string
	// Now is the time; nil means time.Now.
	Now func() time.Time
}

// Import verifies a document and returns its signed content as a credential. The credential is
// nil unless the report is OK. Import blocks as long as its KeySource does, and takes at most
// some ten milliseconds besides.
//
// Compact is the document as it was given. Claims are in the terms of the current Gaia-X
// context. Names of other vocabularies are full IRIs, and so is a Type of one, in which case
// the shape is not checked. A credential with a status is refused, because its list is of an
// obsolete kind. Clocks may differ by selfdescription.DefaultSkew.
func (i *Importer) Import(ctx context.Context, text string) (*selfdescription.Credential, Report) {
	checks := newChecks()
	d, err := read(text)
	if err != nil {
		return nil, checks.reject(err)
	}
	c := d.credential(text, i.KeyID)
	checks.Pass("a credential by %s", d.issuer)
	if !i.authentic(ctx, d, c, checks) || !i.timely(d, checks) {
		return nil, checks.report()
	}
	if d.hasStatus {
		return nil, checks.reject(errors.New("/credentialStatus: the status of imported credentials cannot be followed"))
	}
	checks.Skip("no credentialStatus")
	if err := describe(c, d.subject); err != nil {
		return nil, checks.reject(err)
	}
	if err := checkShape(c, checks); err != nil {
		return nil, checks.reject(err)
	}
	assurance, ok := selfdescription.Self, true
	if i.Issuers != nil {
		assurance, ok = i.Issuers(c.Issuer, c.Type)
	}
	if !ok {
		return nil, checks.reject(fmt.Errorf("/issuer: %s may not issue %s", c.Issuer, c.Type))
	}
	checks.Pass("%s may issue %s: %s", c.Issuer, c.Type, assurance)
	return c, checks.report()
}

// credential returns the content of a document without its claims about the subject. text is the document as it was given.
func (d *document) credential(text, keyID string) *selfdescription.Credential {
	return &selfdescription.Credential{
		Compact: text, Digest: selfdescription.DigestOf(text), ID: d.id, Issuer: d.issuer,
		ValidFrom: d.from, ValidUntil: d.until, KeyID: cmp.Or(keyID, d.proof.verificationMethod), Algorithm: d.proof.algorithm,
	}
}

// SignedOf returns what Parse gives as Signed, without the claims. It verifies nothing.
func SignedOf(text string) (selfdescription.Digest, error) {
	d, err := read(text)
	if err != nil {
		return selfdescription.Digest{}, err
	}
	return d.sum()
}

// Parse reads a document without verifying it: its content may be forged. keyID is as in Importer. Parse needs no keys and no
// clock, and takes at most some ten milliseconds. Use it for documents that were verified before, and to show those that an
// Importer refused.
func Parse(text, keyID string) (*selfdescription.Credential, error) {
	d, err := read(text)
	if err != nil {
		return nil, err
	}
	c := d.credential(text, keyID)
	if c.Signed, err = d.sum(); err != nil {
		return nil, err
	}
	if err := describe(c, d.subject); err != nil {
		return nil, err
	}
	return c, nil
}

// describe fills in the claims about the subject.
func describe(c *selfdescription.Credential, subject map[string]any) error {
	compacted, err := compact(subject)
	if err != nil {
		return fmt.Errorf("/credentialSubject: %w", err)
	}
	raw, err := json.Marshal(compacted)
	if err != nil {
		return fmt.Errorf("/credentialSubject: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // as in the claims of other credentials
	if err := decoder.Decode(&c.Claims); err != nil {
		return fmt.Errorf("/credentialSubject: %w", err)
	}
	c.Type, _ = c.Claims["type"].(string)
	c.Subject, _ = c.Claims["id"].(string)
	return nil
}

// authentic does the steps algorithm to signature.
func (i *Importer) authentic(ctx context.Context, d *document, c *selfdescription.Credential, checks *checks) bool {
	if !slices.Contains(selfdescription.Algorithms(), c.Algorithm) {
		checks.reject(fmt.Errorf("/proof/jws: algorithm %.40q is none of %s", c.Algorithm, strings.Join(selfdescription.Algorithms(), ", ")))
		return false
	}
	checks.Pass("%s", c.Algorithm)
	if owner, fragment, ok := strings.Cut(c.KeyID, "#"); !ok || fragment == "" || owner != c.Issuer {
		checks.reject(fmt.Errorf("/proof/verificationMethod: want a key of the issuer %s, got %.120q", c.Issuer, c.KeyID))
		return false
	}
	key, err := i.Keys.Key(ctx, c.KeyID)
	if err == nil {
		err = did.Fits(c.Algorithm, &key.JWK)
	}
	if err != nil {
		checks.FailFor(fmt.Errorf("key %s: %w", c.KeyID, err))
		return false
	}
	checks.Pass("%s", c.KeyID)
	if c.Signed, err = d.sum(); err != nil {
		checks.reject(err)
		return false
	}
	payloads, err := d.payloads(c.Signed)
	if err != nil {
		checks.reject(err)
		return false
	}
	for _, p := range payloads {
		if d.proof.verify(p.bytes, &key.JWK) {
			checks.signed(p.form, c, d)
			return true
		}
	}
	checks.reject(fmt.Errorf("not what %s signed, in any form", c.KeyID))
	return false
}

// timely does the step window.
func (i *Importer) timely(d *document, checks *checks) bool {
	now := time.Now
	if i.Now != nil {
		now = i.Now
	}
	const skew = selfdescription.DefaultSkew
	switch at := now(); {
	case at.Add(skew).Before(d.from):
		checks.reject(fmt.Errorf("/issuanceDate: not before %s", d.from.UTC().Format(time.RFC3339)))
	case at.Add(skew).Before(d.proof.created):
		checks.reject(fmt.Errorf("/proof/created: %s is not yet", d.proof.created.UTC().Format(time.RFC3339)))
	case !d.until.IsZero() && !at.Before(d.until.Add(skew)):
		checks.Fail(selfdescription.Expired, fmt.Errorf("/expirationDate: ended at %s", d.until.UTC().Format(time.RFC3339)))
	default:
		checks.Pass("valid from %s", d.from.UTC().Format(time.RFC3339))
		return true
	}
	return false
}

// checkShape does the step shape. It records a pass or a skip; an error is left to the caller
// to record. Types outside the current Gaia-X vocabulary are IRIs here.
func checkShape(c *selfdescription.Credential, checks *checks) error {
	if c.Type == "" {
		return errors.New("/credentialSubject/type: want one type")
	}
	if strings.Contains(c.Type, ":") {
		checks.Skip("%s is not of Gaia-X %s", c.Type, shape.Release)
		return nil
	}
	if err := shape.Error(shape.Check(c.Claims)); err != nil {
		return err
	}
	checks.Pass("%s of Gaia-X %s", c.Type, shape.Release)
	return nil
}
