package broker

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/secretfile"
)

// Platform is an OSB caller. It has its own space of instance ids and sees the plans that
// are open to it.
type Platform struct {
	// Name is stored with everything that the platform creates, so it must never change.
	Name string
	// DeletedLastOperation is the answer to a poll for a deprovision or unbind that is complete.
	DeletedLastOperation DeletedLastOperation
	// Limits of the platform's objects on the hub.
	Limits Limits
	// Reads are the clusters of which the platform may read what they sell, by the name that it asks for.
	Reads map[string]labels.Selector
}

// DeletedLastOperation is the answer to a poll for a deletion that is complete. The
// specification allows both values; platforms in the field differ.
type DeletedLastOperation string

// Values of DeletedLastOperation.
const (
	// DeletedGone answers 410 Gone.
	DeletedGone DeletedLastOperation = "gone"
	// DeletedSucceeded answers 200 with the state succeeded, also to polls that name no
	// operation.
	DeletedSucceeded DeletedLastOperation = "succeeded"
)

// Platforms authenticates callers by a YAML file:
//
//	platforms:
//	- name: cf-eu                       # never changes
//	  basic:                            # several, so that passwords change without a gap
//	  - {username: cf, password: …}
//	  bearer: […]                       # tokens
//	  clientCertificateNames: [cf.eu]   # common names of verified client certificates
//	  deletedLastOperation: succeeded   # default: gone
//	  limits: {instances: 1000, bytes: 64Mi}  # default: 50000, 512Mi
//	  reads: {fleet: "topology.kubernetes.io/region=eu"}  # default: nothing
//	openid:                             # OpenID Connect issuers, and whom their tokens identify
//	- issuer: https://login.example     # the other fields are those of openid.Listed
//	  audiences: [sluice]
//	  callers:
//	  - {is: "platform:cf-eu", claims: {sub: cf}}
//
// The file is read again when it changes. While it cannot be used, the previous platforms
// stay in force. A file that users other than its owner may read cannot be used, unless it is
// a mounted Secret. Only digests of secrets are kept in memory.
//
// A platform's token (package access) is as good as its credentials, if AcceptTokens was called; so is a token of an
// issuer that identifies it.
type Platforms struct {
	file    *secretfile.File[*roster]
	issuers openid.Connections
	tokens  TokenVerifier
}

// TokenVerifier returns the caller that a token was issued for.
type TokenVerifier interface {
	Verify(ctx context.Context, token string) (access.Caller, error)
}

// roster is the parsed content of the file.
type roster struct {
	credentials []credential
	issuers     *openid.Issuers
	byName      map[string]*Platform
	bearer      bool
	basic       bool
}

// credential is one means by which a platform authenticates.
type credential struct {
	digest   [sha256.Size]byte
	platform *Platform
}

// LoadPlatforms reads the platforms from a file and follows its changes.
func LoadPlatforms(path string) (*Platforms, error) {
	p := &Platforms{}
	var err error
	p.file, err = secretfile.Open("the platforms file", path, func(document []byte) (*roster, error) { return parseRoster(document, &p.issuers) })
	if err != nil {
		return nil, fmt.Errorf("read platforms from %s: %w", path, err)
	}
	return p, nil
}

// AcceptTokens accepts the tokens of platforms too. It is to be called before any request is
// authenticated.
func (p *Platforms) AcceptTokens(tokens TokenVerifier) { p.tokens = tokens }

// CredentialsOf returns digests of all entries of the file that prove a caller; none if there are none.
func (p *Platforms) CredentialsOf(caller access.Caller) [][sha256.Size]byte {
	r := p.file.Current()
	digests := r.issuers.CredentialsOf(caller)
	for _, known := range r.credentials {
		if caller == (access.Caller{Role: access.Platform, Name: known.platform.Name}) {
			digests = append(digests, known.digest)
		}
	}
	return digests
}

// Prove returns the platform that sent a request with its credentials, and the digest of these. Unlike Guarded, it
// accepts no tokens: a token is not renewed by itself.
func (p *Platforms) Prove(r *http.Request) (proven access.Proof, ok bool) {
	platform, sent, ok := p.prove(r)
	if !ok {
		return access.Proof{}, false
	}
	return access.Proof{Caller: access.Caller{Role: access.Platform, Name: platform.Name}, Credential: sent}, true
}

// Identify returns the callers that the token of an OpenID Connect issuer identifies (openid.Issuers).
func (p *Platforms) Identify(ctx context.Context, token string) ([]access.Proof, error) {
	return p.file.Current().issuers.Identify(ctx, token)
}

// Issuers returns the OpenID Connect issuers that are listed now.
func (p *Platforms) Issuers() *openid.Issuers { return p.file.Current().issuers }

// identify returns the platform that sent a request, by its credentials, by a token of this broker, or by a token of an
// issuer, which it may have to ask for its keys, and the digest of the credentials sent. The running time of the first
// depends neither on which credentials are known nor on how many bytes of the sent ones are right. A request with an
// Authorization header is judged by that header alone. The error contains openid.ErrUnavailable if it is not known whether
// the credentials are right, and is never to be shown to who sent them.
func (p *Platforms) identify(r *http.Request) (platform *Platform, sent [sha256.Size]byte, err error) {
	platform, sent, ok := p.prove(r)
	if ok {
		return platform, sent, nil
	}
	token, bears := callers.Bearer(r)
	if !bears {
		return nil, sent, errUnauthorized
	}
	name, err := p.named(r.Context(), token)
	if err != nil {
		return nil, sent, err
	}
	if platform = p.file.Current().byName[name]; platform == nil {
		return nil, sent, errUnauthorized
	}
	return platform, sent, nil
}

// named returns the name of the platform that a token identifies.
func (p *Platforms) named(ctx context.Context, token string) (string, error) {
	ours := errors.New("no tokens of this broker are accepted")
	if p.tokens != nil {
		var caller access.Caller
		if caller, ours = p.tokens.Verify(ctx, token); ours == nil && caller.Role == access.Platform {
			return caller.Name, nil
		}
	}
	proofs, err := p.Identify(ctx, token)
	for _, proven := range proofs {
		if proven.Role == access.Platform {
			return proven.Name, nil
		}
	}
	switch {
	case ours == nil || err == nil:
		return "", errors.New("the token identifies no platform")
	default:
		return "", fmt.Errorf("as a token of an issuer: %w; as one of this broker: %w", err, ours)
	}
}

// prove judges the credentials that a request has, without tokens.
func (p *Platforms) prove(r *http.Request) (platform *Platform, sent [sha256.Size]byte, ok bool) {
	switch token, bears := callers.Bearer(r); {
	case bears:
		sent = credentialDigest("bearer", token)
	case r.Header.Get("Authorization") != "":
		username, password, _ := r.BasicAuth()
		sent = credentialDigest("basic", username, password)
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		sent = credentialDigest("certificate", r.TLS.VerifiedChains[0][0].Subject.CommonName)
	}
	known := p.file.Current().credentials
	found := -1
	for i := range known {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(known[i].digest[:], sent[:]), i, found)
	}
	if found < 0 {
		return nil, sent, false
	}
	return known[found].platform, sent, true
}

// challenges returns the values of WWW-Authenticate (RFC 9110, section 11.6.1).
func (p *Platforms) challenges() []string {
	r := p.file.Current()
	var out []string
	if r.basic || !r.bearer {
		out = append(out, `Basic realm="sluice", charset="UTF-8"`)
	}
	if r.bearer {
		out = append(out, `Bearer realm="sluice"`)
	}
	return out
}

// credentialDigest hashes each part after its length, so that different parts never give
// the same input.
func credentialDigest(kind string, parts ...string) [sha256.Size]byte {
	text := []byte(kind)
	for _, part := range parts {
		text = binary.BigEndian.AppendUint64(text, uint64(len(part)))
		text = append(text, part...)
	}
	return sha256.Sum256(text)
}
