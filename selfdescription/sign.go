package selfdescription

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/selfdescription/did"
)

// Signer issues credentials and presentations in the name of one DID. It is safe for concurrent
// use.
type Signer struct {
	issuer string
	key    jose.JSONWebKey
}

// NewSigner returns a signer with a private key of the form that GenerateKey returns: its KeyID
// is a DID URL, whose DID is the issuer, and its Algorithm is one of Algorithms.
func NewSigner(key jose.JSONWebKey) (*Signer, error) {
	issuer, _, err := did.Split(key.KeyID)
	if err != nil {
		return nil, fmt.Errorf("sign with key %q: its id is not a DID URL: %w", key.KeyID, err)
	}
	if key.IsPublic() || !key.Valid() {
		return nil, fmt.Errorf("sign with key %s: not a private key", key.KeyID)
	}
	public := key.Public()
	if err := did.Fits(key.Algorithm, &public); err != nil {
		return nil, fmt.Errorf("sign with key %s: %w", key.KeyID, err)
	}
	return &Signer{issuer: issuer, key: key}, nil
}

// Issuer returns the DID that issues.
func (s *Signer) Issuer() string { return s.issuer }

// KeyID returns the DID URL of the key.
func (s *Signer) KeyID() string { return s.key.KeyID }

// Public returns the key that verifies the signatures of s.
func (s *Signer) Public() jose.JSONWebKey { return s.key.Public() }

// Document is a credential to issue.
type Document struct {
	// ID of the credential, a URL; empty leaves it out.
	ID string
	// Subject is the credentialSubject; it has an id and a type without prefix.
	Subject map[string]any
	// ValidFrom and ValidUntil bound the validity, to the second. Without ValidUntil
	// it never ends.
	ValidFrom, ValidUntil time.Time
	// Status has an entry for each status list that the credential is on.
	Status []StatusEntry
}

// Credential issues a credential (VC-JOSE-COSE, 3.1.1). If the algorithm signs with randomness,
// the same document gives a different token on each call.
func (s *Signer) Credential(doc Document) (compact string, err error) {
	id, _ := doc.Subject["id"].(string)
	subjectType, _ := doc.Subject["type"].(string)
	switch {
	case id == "" || subjectType == "":
		return "", errors.New("issue a credential: its subject has no id or no type")
	case doc.ValidFrom.IsZero():
		return "", fmt.Errorf("issue a credential of %s: it has no ValidFrom", id)
	case !doc.ValidUntil.IsZero() && !doc.ValidFrom.Before(doc.ValidUntil):
		return "", fmt.Errorf("issue a credential of %s: it ends before it begins", id)
	}
	context := []string{ContextCredentials}
	if more := contextOf(subjectType); more != "" {
		context = append(context, more)
	}
	credentialType := subjectType
	if subjectType == TypeStatusList {
		credentialType = typeStatusListCredential
	}
	payload := map[string]any{
		"@context":          context,
		"type":              []string{typeVerifiableCredential, credentialType},
		"issuer":            s.issuer,
		"validFrom":         doc.ValidFrom.UTC().Format(time.RFC3339),
		"credentialSubject": doc.Subject,
		"iss":               s.issuer,
		"iat":               doc.ValidFrom.Unix(),
	}
	if doc.ID != "" {
		payload["id"] = doc.ID
	}
	if !doc.ValidUntil.IsZero() {
		payload["validUntil"] = doc.ValidUntil.UTC().Format(time.RFC3339)
		payload["exp"] = doc.ValidUntil.Unix()
	}
	if len(doc.Status) > 0 {
		var entries []map[string]string
		for _, e := range doc.Status {
			entries = append(entries, map[string]string{
				"type":                 typeStatusListEntry,
				"statusPurpose":        string(e.Purpose),
				"statusListIndex":      strconv.Itoa(e.Index),
				"statusListCredential": e.List,
			})
		}
		payload["credentialStatus"] = entries
	}
	return s.sign(payload, credentialMedia[0])
}

// PresentationLifetime is how long a presentation made by Sluice may be used.
const PresentationLifetime = 5 * time.Minute

// Presentation wraps credentials, in compact serialisation, for one audience, its nonce, and
// one operation (VC-JOSE-COSE, 3.1.2). It may be used for PresentationLifetime.
func (s *Signer) Presentation(credentials []string, to Expect, now time.Time) (compact string, err error) {
	if to.Audience == "" || to.Nonce == "" {
		return "", errors.New("make a presentation: no audience or no nonce")
	}
	if len(credentials) > MaxCredentials {
		return "", fmt.Errorf("make a presentation: %d credentials, at most %d fit", len(credentials), MaxCredentials)
	}
	enveloped := make([]map[string]any, 0, len(credentials))
	for _, c := range credentials {
		enveloped = append(enveloped, map[string]any{
			"@context": ContextCredentials,
			"type":     typeEnvelopedCredential,
			"id":       "data:" + MediaTypeCredential + "," + c,
		})
	}
	payload := map[string]any{
		"@context":             []string{ContextCredentials},
		"type":                 []string{typeVerifiablePresentation},
		"holder":               s.issuer,
		"verifiableCredential": enveloped,
		"iss":                  s.issuer,
		"aud":                  to.Audience,
		"nonce":                to.Nonce,
		"iat":                  now.Unix(),
		"exp":                  now.Add(PresentationLifetime).Unix(),
	}
	if to.Operation != "" {
		payload["operation"] = string(to.Operation)
	}
	return s.sign(payload, presentationMedia[0])
}

// sign writes the issuer into the header too: first-generation Gaia-X verifiers require it, and
// RFC 7519, 5.3 allows it.
func (s *Signer) sign(payload map[string]any, m media) (string, error) {
	raw, err := json.Marshal(payload)
	if err != nil {
		return "", fmt.Errorf("encode a token: %w", err)
	}
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(m.typ)).WithHeader("iss", s.issuer)
	if m.cty != "" {
		options = options.WithContentType(jose.ContentType(m.cty))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(s.key.Algorithm), Key: s.key}, options)
	if err != nil {
		return "", fmt.Errorf("sign with key %s: %w", s.key.KeyID, err)
	}
	object, err := signer.Sign(raw)
	if err != nil {
		return "", fmt.Errorf("sign with key %s: %w", s.key.KeyID, err)
	}
	return object.CompactSerialize()
}
