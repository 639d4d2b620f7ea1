package selfdescription

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// KeySource finds the public key that a DID URL names.
type KeySource interface {
	// Key returns the key if the DID itself lists it for assertions. It may block until ctx
	// ends. An error is temporary if it has a method Temporary() that returns true; all others
	// are final.
	Key(ctx context.Context, id string) (*did.Key, error)
}

// Tolerated difference between clocks.
const (
	DefaultSkew = time.Minute
	MaxSkew     = 5 * time.Minute
)

// Verifier verifies credentials and presentations. Do not change its fields once it is used;
// its methods are safe for concurrent use.
type Verifier struct {
	Keys KeySource
	// Statuses returns status lists. If nil, a credential that is on a list is rejected.
	Statuses StatusSource
	// Issuers reports which issuer may issue which types; nil means any issuer any type, with
	// the assurance Self.
	Issuers Issuers
	// Now is the time; nil means time.Now.
	Now func() time.Time
	// Skew is how far clocks may differ: 0 means DefaultSkew, a negative value none; more than
	// MaxSkew means MaxSkew.
	Skew time.Duration
}

// Credential verifies a VC-JWT. The credential is nil unless the report is OK. It blocks as
// long as its KeySource and StatusSource do. Status lists are asked for last, and only if the
// credential holds apart from them.
func (v *Verifier) Credential(ctx context.Context, compact string) (*Credential, Report) {
	checks := NewChecks(StepParse, StepAlgorithm, StepKey, StepSignature, StepWindow, StepStatus, StepShape, StepIssuer)
	c, report := v.signed(ctx, compact, MaxCredential, checks)
	if c == nil {
		return nil, report
	}
	violations := shape.Check(c.raw)
	assurance, trusted := v.issuer(c.Issuer, c.Type)
	switch {
	case len(c.Status) == 0:
		checks.Skip("no credentialStatus")
	case !trusted: // anybody can name any list
		checks.Skip("not asked for: the issuer is not trusted")
	case len(violations) > 0:
		checks.Skip("not asked for: the credential is refused by its shape")
	default:
		if state, err := v.checkStatus(ctx, c, checks); err != nil {
			checks.report.Temporary = isTemporary(err)
			return nil, checks.Fail(state, err)
		}
	}
	if len(violations) > 0 {
		return nil, checks.Fail(Rejected, shape.Error(violations))
	}
	checks.Pass("%s of Gaia-X %s", c.Type, shape.Release)
	if !trusted {
		return nil, checks.Fail(Rejected, fmt.Errorf("/issuer: %s may not issue %s", c.Issuer, c.Type))
	}
	checks.Pass("%s may issue %s: %s", c.Issuer, c.Type, assurance)
	return c, checks.report
}

// checkStatus does the step status of a credential that is on a list. If there is an error, the
// step is still to be recorded, and the state is that of the credential.
func (v *Verifier) checkStatus(ctx context.Context, c *Credential, checks *Checks) (State, error) {
	found, looked, state, err := v.status(ctx, c)
	switch {
	case err != nil:
		return state, err
	case looked:
		checks.Pass("%s", found)
	default:
		checks.Skip("%s", found)
	}
	return Verified, nil
}

// signed does the steps that are the same for credentials of every type: parse to window. The
// credential is nil if one fails.
func (v *Verifier) signed(ctx context.Context, compact string, limit int, checks *Checks) (*Credential, Report) {
	t, c, err := parseCredential(compact, limit)
	if err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%s, %s of %s", t.media.typ, c.Type, c.Subject)
	if !v.authentic(ctx, t, compact, checks) {
		return nil, checks.report
	}
	if state, err := v.window(c.ValidFrom, c.ValidUntil); err != nil {
		return nil, checks.Fail(state, err)
	}
	checks.Pass("valid %s", window(c.ValidFrom, c.ValidUntil))
	return c, checks.report
}

// authentic does the steps algorithm to signature.
func (v *Verifier) authentic(ctx context.Context, t *token, compact string, checks *Checks) bool {
	algorithm := jose.SignatureAlgorithm(t.algorithm)
	if !slices.Contains(algorithms, algorithm) {
		checks.Fail(Rejected, fmt.Errorf("/alg: want one of %s, got %s", strings.Join(Algorithms(), ", "), brief(t.algorithm)))
		return false
	}
	checks.Pass("%s", t.algorithm)
	key, err := v.Keys.Key(ctx, t.keyID)
	if err != nil {
		checks.FailFor(fmt.Errorf("key %s: %w", t.keyID, err))
		return false
	}
	if err := did.Fits(t.algorithm, &key.JWK); err != nil {
		checks.Fail(Rejected, fmt.Errorf("key %s: %w", t.keyID, err))
		return false
	}
	checks.Pass("%s", t.keyID)
	object, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{algorithm})
	if err == nil {
		_, err = object.Verify(key.JWK.Key)
	}
	if err != nil {
		checks.Fail(Rejected, fmt.Errorf("not what %s signed: %w", t.keyID, err))
		return false
	}
	checks.Pass("by %s", t.issuer)
	return true
}

// window compares a validity with the time.
func (v *Verifier) window(from, until time.Time) (State, error) {
	now, skew := v.now(), v.skew()
	switch {
	case now.Add(skew).Before(from):
		return Rejected, fmt.Errorf("/validFrom: not before %s, it is %s", date(from), date(now))
	case !until.IsZero() && !now.Before(until.Add(skew)):
		return Expired, fmt.Errorf("/validUntil: ended at %s, it is %s", date(until), date(now))
	}
	return Verified, nil
}

func (v *Verifier) now() time.Time {
	if v.Now == nil {
		return time.Now()
	}
	return v.Now()
}

func (v *Verifier) skew() time.Duration {
	if v.Skew == 0 {
		return DefaultSkew
	}
	return min(max(v.Skew, 0), MaxSkew)
}

func (v *Verifier) issuer(issuer, subjectType string) (Assurance, bool) {
	if v.Issuers == nil {
		return Self, true
	}
	return v.Issuers(issuer, subjectType)
}

// isTemporary reports whether an error came from the network.
func isTemporary(err error) bool {
	var e interface{ Temporary() bool }
	return errors.As(err, &e) && e.Temporary()
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func window(from, until time.Time) string {
	s := "always"
	if !from.IsZero() {
		s = "from " + date(from)
	}
	if !until.IsZero() {
		s += " until " + date(until)
	}
	return s
}
