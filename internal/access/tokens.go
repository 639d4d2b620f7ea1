package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/identity"
	"github.com/sluice-dev/sluice/internal/seal"
)

const (
	// MaxLifetime is the longest that a token may be valid.
	MaxLifetime = 12 * time.Hour
	// TicketLifetime is how long a ticket is valid.
	TicketLifetime = time.Minute
	// InvitationLifetime is how long an invitation of a cluster is valid.
	InvitationLifetime = time.Hour

	// algorithm of the broker's keys; no other is accepted.
	algorithm = jose.ES256
	// typeToken, typeTicket and typeInvitation are the header "typ" (RFC 8725, section 3.11), so that none is taken
	// for another, nor for a credential that the same keys sign.
	typeToken      = "sluice-access+jwt"
	typeTicket     = "sluice-ticket+jwt"
	typeInvitation = "sluice-invitation+jwt"
	// maxBytes is the longest token that is read.
	maxBytes = 4 << 10
	// skew is how far ahead the clock of who signed may be.
	skew = time.Minute
)

// Platforms knows the platforms file.
type Platforms interface {
	// CredentialsOf returns digests of all entries of the file that prove a caller; none if there are none.
	CredentialsOf(caller Caller) [][sha256.Size]byte
}

// Tokens issues and verifies tokens and tickets. It is safe for concurrent use, and keeps nothing in memory.
type Tokens struct {
	// Hub reads the Identity and the Providers; it may cache.
	Hub client.Reader
	// Live reads from the hub itself, and Writer writes there; only Redeem needs them.
	Live   client.Reader
	Writer client.StatusClient
	// Namespace of the hub that holds the resources.
	Namespace string
	// Seal unseals the key that signs, and marks what platforms' tokens are issued for.
	Seal *seal.Keyset
	// Platforms knows the platforms file; nil if tokens are neither issued nor verified by it.
	Platforms Platforms
	// Clock is for tests; nil means the real clock.
	Clock clock.PassiveClock
}

// claims of a token or a ticket (RFC 7519, section 4.1).
type claims struct {
	Issuer   string           `json:"iss"`
	Audience jwt.Audience     `json:"aud"`
	Subject  string           `json:"sub"`
	ID       string           `json:"jti"`
	IssuedAt *jwt.NumericDate `json:"iat"`
	Expiry   *jwt.NumericDate `json:"exp"`
	// Grounds identify what it was issued for. It ends with them.
	Grounds string `json:"grounds"`
}

// Issue returns a token for a caller, valid for ttl. A platform's is issued for the first of its credentials. It fails
// for a caller that is not known, and if ttl is not positive or more than MaxLifetime.
func (t *Tokens) Issue(ctx context.Context, caller Caller, ttl time.Duration) (string, error) {
	grounds, err := t.grounds(ctx, caller)
	if err != nil {
		return "", fmt.Errorf("issue a token for %s: %w", caller, err)
	}
	return t.issue(ctx, caller, grounds, ttl)
}

// beforeMark separates the grounds of a token from the mark of the entry that it was issued for.
const beforeMark = "#"

// IssueFor returns a token for a caller that an entry of the platforms file has proven. It ends with the entry too. It
// fails as Issue does.
func (t *Tokens) IssueFor(ctx context.Context, proven Proof, ttl time.Duration) (string, error) {
	standing := ""
	if proven.Role != Platform {
		var err error
		if standing, err = t.grounds(ctx, proven.Caller); err != nil {
			return "", fmt.Errorf("issue a token for %s: %w", proven.Caller, err)
		}
	}
	return t.issue(ctx, proven.Caller, standing+t.mark(proven.Caller, proven.Credential), ttl)
}

func (t *Tokens) issue(ctx context.Context, caller Caller, grounds string, ttl time.Duration) (string, error) {
	if ttl <= 0 || ttl > MaxLifetime {
		return "", fmt.Errorf("issue a token for %s: valid for %s, want at most %s", caller, ttl, MaxLifetime)
	}
	id, err := t.identity(ctx, t.Hub)
	if err != nil {
		return "", err
	}
	return t.sign(id, typeToken, rand.Text(), caller, grounds, ttl)
}

// sign signs with the newest key.
func (t *Tokens) sign(id *v1alpha1.Identity, kind, jti string, caller Caller, grounds string, ttl time.Duration) (string, error) {
	if err := caller.check(); err != nil {
		return "", err
	}
	key, err := identity.SigningKey(id, t.Seal)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(kind))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		return "", fmt.Errorf("sign with the broker's key: %w", err)
	}
	now := t.now()
	return jwt.Signed(signer).Claims(claims{
		Issuer: name(id), Audience: jwt.Audience{name(id)}, Subject: caller.String(), ID: jti,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(ttl)), Grounds: grounds,
	}).Serialize()
}

// identity reads the broker's Identity.
func (t *Tokens) identity(ctx context.Context, from client.Reader) (*v1alpha1.Identity, error) {
	id := &v1alpha1.Identity{}
	err := from.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: v1alpha1.IdentityName}, id)
	if apierrors.IsNotFound(err) {
		return nil, identity.ErrNoKey
	}
	if err != nil {
		return nil, fmt.Errorf("read the broker's identity: %w", err)
	}
	return id, nil
}

// name returns issuer and audience of what an Identity signs: its DID, or else its own UID.
func name(id *v1alpha1.Identity) string {
	if id.Spec.DID != "" {
		return id.Spec.DID
	}
	return "urn:uuid:" + string(v1alpha1.UIDOf(id))
}

// ErrUnknown is in the error of a caller that the hub and the platforms file do not have.
var ErrUnknown = errors.New("is not known")

// grounds returns what a token for a caller is issued for now.
func (t *Tokens) grounds(ctx context.Context, caller Caller) (string, error) {
	switch caller.Role {
	case Platform:
		if t.Platforms != nil {
			for _, credential := range t.Platforms.CredentialsOf(caller) {
				return t.mark(caller, credential), nil
			}
		}
		return "", fmt.Errorf("platform %s %w: it is not in the platforms file", caller.Name, ErrUnknown)
	case Provider:
		p := &v1alpha1.Provider{}
		err := t.Hub.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: caller.Name}, p)
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("provider %s %w; `sluice provider list` shows them all", caller.Name, ErrUnknown)
		}
		if err != nil {
			return "", fmt.Errorf("read provider %s: %w", caller.Name, err)
		}
		// The hub counts the generation up with every change of the spec, and of nothing else.
		return string(v1alpha1.UIDOf(p)) + "/" + strconv.FormatInt(p.Generation+v1alpha1.GenerationsBefore(p), 10), nil
	case Operator:
		id, err := t.identity(ctx, t.Hub)
		if err != nil {
			return "", err
		}
		return operators(id), nil
	}
	return "", caller.check()
}

// operators returns the grounds of operators' tokens, and of tickets.
func operators(id *v1alpha1.Identity) string {
	return string(v1alpha1.UIDOf(id)) + "/" + strconv.FormatInt(id.Spec.TokensRevoked, 10)
}

// marked is the text of which a platform's token has a mark. Everybody who has a token can read its claims; from the
// mark nobody without the keyset can tell a guessed password.
func marked(caller Caller, credential [sha256.Size]byte) []byte {
	return append([]byte("token of "+caller.String()+"\x00"), credential[:]...)
}

func (t *Tokens) mark(caller Caller, credential [sha256.Size]byte) string {
	return beforeMark + base64.RawURLEncoding.EncodeToString(t.Seal.Mark(marked(caller, credential)))
}

func (t *Tokens) now() time.Time {
	if t.Clock == nil {
		return time.Now()
	}
	return t.Clock.Now()
}
