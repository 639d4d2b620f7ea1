package legacy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// Importer verifies documents with a proof of type JsonWebSignature2020. Do not change its
// fields once it is used; Import is safe for concurrent use.
type Importer struct {
	Keys selfdescription.KeySource
	// Issuers reports which issuer may issue which types; nil means any issuer any type, with
	// the assurance Self.
	Issuers selfdescription.Issuers
	// Compliance reports whether an issuer is a compliance service, whose credentials may be of
	// FormCompliance; nil means none is.
	Compliance func(issuer string) bool
	// KeyID is the DID URL of the key to use instead of the verificationMethod of the proof;
	// empty means the latter. Documents of 2022 name a DID there and no key. The key must be
	// the issuer's in both cases.
	KeyID string
	// Contexts that documents may use beside those of the function Contexts, such as those of
	// earlier releases. They cannot replace the documents of the function Contexts.
	Contexts []selfdescription.Context
	// Now is the time; nil means time.Now.
	Now func() time.Time
	// Skew is how far clocks may differ: 0 means selfdescription.DefaultSkew, a negative value
	// none; more than selfdescription.MaxSkew means selfdescription.MaxSkew.
	Skew time.Duration
}

// Import verifies a document and returns its signed content as a credential. The credential is
// nil unless the report is OK. Import blocks as long as its KeySource does, and takes at most
// some ten milliseconds besides.
//
// Compact is the document as it was given. Claims are in the terms of the current Gaia-X
// context. Names of other vocabularies are full IRIs, and so is a Type of one, in which case
// the shape is not checked. A credential with a status is refused, because its list is of an
// obsolete kind. A credential of FormCompliance has only Issuer, KeyID, Algorithm, the dates,
// and in Claims the hash.
func (i *Importer) Import(ctx context.Context, text string) (*selfdescription.Credential, Report) {
	contexts := append(loader(Contexts()), i.Contexts...)
	checks := newChecks()
	d, err := contexts.read(text)
	if err != nil {
		return nil, checks.fail(selfdescription.Rejected, err)
	}
	c := &selfdescription.Credential{
		Compact: text, Digest: selfdescription.DigestOf(text), ID: d.id, Issuer: d.issuer,
		ValidFrom: d.from, ValidUntil: d.until, KeyID: cmp.Or(i.KeyID, d.proof.verificationMethod), Algorithm: d.proof.algorithm,
	}
	checks.pass("a credential by %s", d.issuer)
	if !i.authentic(ctx, d, c, contexts, checks) || !i.timely(d, checks) {
		return nil, checks.report
	}
	if d.hasStatus {
		return nil, checks.fail(selfdescription.Rejected, errors.New("/credentialStatus: the status of imported credentials cannot be followed"))
	}
	checks.skip("no credentialStatus")
	if checks.report.Form == FormCompliance {
		c.Claims = map[string]any{"hash": d.hash}
		checks.skip("nothing but a hash is signed")
		checks.pass("%s is a compliance service", c.Issuer)
		return c, checks.report
	}
	if err := contexts.describe(c, d.subject); err != nil {
		return nil, checks.fail(selfdescription.Rejected, err)
	}
	if err := checkShape(c, checks); err != nil {
		return nil, checks.fail(selfdescription.Rejected, err)
	}
	assurance, ok := selfdescription.Self, true
	if i.Issuers != nil {
		assurance, ok = i.Issuers(c.Issuer, c.Type)
	}
	if !ok {
		return nil, checks.fail(selfdescription.Rejected, fmt.Errorf("/issuer: %s may not issue %s", c.Issuer, c.Type))
	}
	checks.pass("%s may issue %s: %s", c.Issuer, c.Type, assurance)
	return c, checks.report
}

// describe fills in the claims about the subject.
func (l loader) describe(c *selfdescription.Credential, subject map[string]any) error {
	compacted, err := l.compact(subject)
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
func (i *Importer) authentic(ctx context.Context, d *document, c *selfdescription.Credential, contexts loader, checks *checks) bool {
	if !slices.Contains(selfdescription.Algorithms(), c.Algorithm) {
		checks.fail(selfdescription.Rejected, fmt.Errorf("/proof/jws: algorithm %.40q is none of %s", c.Algorithm, strings.Join(selfdescription.Algorithms(), ", ")))
		return false
	}
	checks.pass("%s", c.Algorithm)
	if did, fragment, ok := strings.Cut(c.KeyID, "#"); !ok || fragment == "" || did != c.Issuer {
		checks.fail(selfdescription.Rejected, fmt.Errorf("/proof/verificationMethod: want a key of the issuer %s, got %.120q", c.Issuer, c.KeyID))
		return false
	}
	key, err := i.Keys.Key(ctx, c.KeyID)
	if err == nil {
		err = checkKey(c.Algorithm, &key.JWK)
	}
	if err != nil {
		var temporary interface{ Temporary() bool }
		checks.report.Temporary = errors.As(err, &temporary) && temporary.Temporary()
		checks.fail(selfdescription.Rejected, fmt.Errorf("key %s: %w", c.KeyID, err))
		return false
	}
	checks.pass("%s", c.KeyID)
	payloads, err := d.payloads(contexts)
	if err != nil {
		checks.fail(selfdescription.Rejected, err)
		return false
	}
	for _, p := range payloads {
		if p.form == FormCompliance && (i.Compliance == nil || !i.Compliance(c.Issuer)) {
			continue
		}
		if d.proof.verify(p.bytes, &key.JWK) {
			c.Signed = sha256.Sum256(p.bytes)
			checks.signed(p.form, c, d)
			return true
		}
	}
	checks.fail(selfdescription.Rejected, fmt.Errorf("not what %s signed, in any form", c.KeyID))
	return false
}

// timely does the step window.
func (i *Importer) timely(d *document, checks *checks) bool {
	now := time.Now
	if i.Now != nil {
		now = i.Now
	}
	skew := min(max(i.Skew, 0), selfdescription.MaxSkew)
	if i.Skew == 0 {
		skew = selfdescription.DefaultSkew
	}
	switch at := now(); {
	case at.Add(skew).Before(d.from):
		checks.fail(selfdescription.Rejected, fmt.Errorf("/issuanceDate: not before %s", d.from.UTC().Format(time.RFC3339)))
	case at.Add(skew).Before(d.proof.created):
		checks.fail(selfdescription.Rejected, fmt.Errorf("/proof/created: %s is not yet", d.proof.created.UTC().Format(time.RFC3339)))
	case !d.until.IsZero() && !at.Before(d.until.Add(skew)):
		checks.fail(selfdescription.Expired, fmt.Errorf("/expirationDate: ended at %s", d.until.UTC().Format(time.RFC3339)))
	default:
		checks.pass("valid from %s", d.from.UTC().Format(time.RFC3339))
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
		checks.skip("%s is not of Gaia-X %s", c.Type, shape.Release)
		return nil
	}
	violations := shape.Check(c.Claims)
	if len(violations) == 0 {
		checks.pass("%s of Gaia-X %s", c.Type, shape.Release)
		return nil
	}
	var lines []string
	for _, violation := range violations[:min(5, len(violations))] {
		lines = append(lines, "/credentialSubject"+violation.String())
	}
	return errors.New(strings.Join(lines, "; "))
}
