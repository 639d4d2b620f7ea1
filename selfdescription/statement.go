package selfdescription

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Types of statements: JWTs (RFC 7519) that a broker signs about its own business. They are no credentials, which others
// combine, and of types of their own, so that none is taken for the other (RFC 8725, 3.11).
const (
	StatementContract = "sluice-contract+jwt"
	StatementUsage    = "sluice-usage+jwt"
)

var statementMedia = []media{{typ: StatementContract}, {typ: StatementUsage}}

// MaxStatement is the greatest number of bytes of a statement in compact serialisation.
const MaxStatement = 16 << 20

// Statement is the content of a statement.
type Statement struct {
	// Type is one of the types above, Issuer the DID that signed it, at IssuedAt.
	Type, Issuer string
	IssuedAt     time.Time
	// Claims are all of the payload; numbers are json.Number.
	Claims map[string]any
}

// Statement signs claims at a time. It adds iss and iat, and does not change the argument.
func (s *Signer) Statement(kind string, claims map[string]any, now time.Time) (compact string, err error) {
	if !slices.Contains(statementMedia, media{typ: kind}) {
		return "", fmt.Errorf("make a statement: %q is no type of statements", kind)
	}
	payload := map[string]any{"iss": s.issuer, "iat": now.Unix()}
	for name, value := range claims {
		if _, taken := payload[name]; taken {
			return "", fmt.Errorf("make a statement: %q is set by the signer", name)
		}
		payload[name] = value
	}
	return s.sign(payload, media{typ: kind})
}

// IsStatement reports whether a token says that it is a statement. It may be forged.
func IsStatement(compact string) bool {
	_, err := parseToken(compact, MaxStatement, statementMedia)
	return err == nil
}

// Statement verifies a statement. It is nil unless the report is OK. It blocks as long as the KeySource does.
func (v *Verifier) Statement(ctx context.Context, compact string) (*Statement, Report) {
	checks := NewChecks(StepParse, StepAlgorithm, StepKey, StepSignature, StepWindow)
	t, err := parseToken(compact, MaxStatement, statementMedia)
	if err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%s of %s", t.media.typ, t.issuer)
	if !v.authentic(ctx, t, compact, checks) {
		return nil, checks.report
	}
	if state, err := v.window(t.from, t.until); err != nil {
		return nil, checks.Fail(state, err)
	}
	checks.Pass("made at %s", date(t.from))
	return &Statement{Type: t.media.typ, Issuer: t.issuer, IssuedAt: t.from, Claims: t.payload}, checks.report
}

// readStatement reads what the payload of every statement has.
func (t *token) readStatement() error {
	for _, name := range []string{"iss", "iat"} {
		if _, there := t.payload[name]; !there {
			return errors.New("/" + name + ": missing")
		}
	}
	if err := t.isIssuer(t.payload, "iss"); err != nil {
		return err
	}
	return t.readWindow()
}
