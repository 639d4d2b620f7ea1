package selfdescription

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxPresentationLifetime is the longest that a presentation may be used.
const MaxPresentationLifetime = 10 * time.Minute

// Expect holds the values that a presentation must contain. Audience and nonce are required: a
// presentation that was not requested proves nothing.
type Expect struct {
	// Audience is the DID or the URL of the verifier.
	Audience string
	// Nonce that the verifier issued.
	Nonce string
	// Operation that the presentation was made for, which its holder signs as the claim
	// "operation": a presentation for another operation is refused. Empty is for verifiers that
	// do not use operations.
	Operation Operation
}

// Operation is the purpose of a presentation.
type Operation string

// Operations that Sluice knows.
const (
	OperationPresent Operation = "present" // to have the credentials stored
	OperationVerify  Operation = "verify"  // to have the credentials checked, and nothing stored
	OperationRevoke  Operation = "revoke"  // to withdraw the one credential in it
	OperationLogin   Operation = "login"   // to get a token for the market; no credentials need be in it
)

// Presentation verifies a VP-JWT with enveloped credentials (VC-JOSE-COSE, 3.1.2), with the
// steps from parse to window. The credentials in it are extracted but not verified. The
// presentation is nil unless the report is OK. It blocks as long as the KeySource does.
func (v *Verifier) Presentation(ctx context.Context, compact string, expect Expect) (*Presentation, Report) {
	checks := NewChecks(StepParse, StepAlgorithm, StepKey, StepSignature, StepWindow)
	t, p, err := parsePresentation(compact)
	if err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%s with %d credentials of %s", t.media.typ, len(p.Credentials), p.Holder)
	if !v.authentic(ctx, t, compact, checks) {
		return nil, checks.report
	}
	if state, err := v.window(p.IssuedAt, p.ExpiresAt); err != nil {
		return nil, checks.Fail(state, err)
	}
	if err := expect.check(t.payload); err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("for %s, with its nonce, %s", expect.Audience, window(p.IssuedAt, p.ExpiresAt))
	return p, checks.report
}

// check compares audience, operation and nonce. Its errors contain neither the expected nonce
// nor the received one.
func (e Expect) check(payload map[string]any) error {
	if e.Audience == "" || e.Nonce == "" {
		return errors.New("nothing was asked for: no audience or no nonce to expect")
	}
	audience := payload["aud"]
	if list, ok := audience.([]any); ok && len(list) == 1 {
		audience = list[0]
	}
	if audience != e.Audience {
		return fmt.Errorf("/aud: want %s alone, got %s", brief(e.Audience), brief(audience))
	}
	if operation, there := payload["operation"]; there != (e.Operation != "") || there && operation != string(e.Operation) {
		return fmt.Errorf("/operation: want %s, got %s", orNothing(string(e.Operation)), brief(operation))
	}
	nonce, err := text(payload, "nonce")
	if err != nil || subtle.ConstantTimeCompare([]byte(nonce), []byte(e.Nonce)) != 1 {
		return errors.New("/nonce: not the one that was given out")
	}
	return nil
}

func orNothing(s string) string {
	if s == "" {
		return "none"
	}
	return brief(s)
}

func parsePresentation(compact string) (*token, *Presentation, error) {
	t, err := parseToken(compact, MaxPresentation, presentationMedia)
	if err != nil {
		return nil, nil, err
	}
	p := &Presentation{Holder: t.issuer, IssuedAt: t.from, ExpiresAt: t.until}
	if err := p.readDocument(t); err != nil {
		return nil, nil, fmt.Errorf("payload: %w", err)
	}
	return t, p, nil
}

func (p *Presentation) readDocument(t *token) error {
	if !hasType(t.payload["type"], typeVerifiablePresentation) {
		return fmt.Errorf("/type: want %s to be one of them", typeVerifiablePresentation)
	}
	for _, name := range []string{"holder", "issuer"} {
		if err := t.isIssuer(t.payload, name); err != nil {
			return err
		}
	}
	if t.from.IsZero() {
		return errors.New("/iat: want the time of signature")
	}
	if p.ExpiresAt.IsZero() {
		p.ExpiresAt = p.IssuedAt.Add(MaxPresentationLifetime)
	}
	if lifetime := p.ExpiresAt.Sub(p.IssuedAt); lifetime > MaxPresentationLifetime {
		return fmt.Errorf("/exp: may be used for %s, want %s at most", lifetime, MaxPresentationLifetime)
	}
	list, ok := t.payload["verifiableCredential"].([]any)
	if !ok {
		list = []any{t.payload["verifiableCredential"]}
	}
	if len(list) > MaxCredentials {
		return fmt.Errorf("/verifiableCredential: %d credentials, want %d at most", len(list), MaxCredentials)
	}
	for i, element := range list {
		compact, err := unwrap(element)
		if err != nil {
			return fmt.Errorf("/verifiableCredential/%d%w", i, err)
		}
		p.Credentials = append(p.Credentials, compact)
	}
	return nil
}

// envelopes are the beginnings of the data URLs of credentials, by generation. Gaia-X ICAM
// 24.07 has a semicolon before the token.
var envelopes = []string{
	"data:application/vc+jwt,", "data:application/vc+jwt;",
	"data:application/vc+ld+json+jwt,", "data:application/vc+ld+json+jwt;",
	"data:application/vc+ld+jwt,", "data:application/vc+ld+jwt;",
}

// unwrap extracts the token of an EnvelopedVerifiableCredential (VCDM 2.0, 4.13).
func unwrap(value any) (string, error) {
	object, ok := value.(map[string]any)
	if !ok || !hasType(object["type"], typeEnvelopedCredential) {
		return "", fmt.Errorf("/type: want %s", typeEnvelopedCredential)
	}
	if context, there := object["@context"]; there {
		if err := checkContexts(context); err != nil {
			return "", err
		}
	}
	url, _ := object["id"].(string)
	for _, prefix := range envelopes {
		if compact, ok := strings.CutPrefix(url, prefix); ok {
			return compact, nil
		}
	}
	return "", fmt.Errorf("/id: want a data URL of %s, got %s", MediaTypeCredential, brief(object["id"]))
}
