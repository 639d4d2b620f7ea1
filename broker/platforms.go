package broker

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/secretfile"
	"github.com/sluice-dev/sluice/internal/strictjson"
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
//
// The file is read again when it changes. While it cannot be used, the previous platforms
// stay in force. A file that users other than its owner may read cannot be used, unless it is
// a mounted Secret. Only digests of secrets are kept in memory.
//
// A platform's token (package access) is as good as its credentials, if AcceptTokens was called.
type Platforms struct {
	file   *secretfile.File[*roster]
	tokens TokenVerifier
}

// TokenVerifier returns the caller that a token was issued for.
type TokenVerifier interface {
	Verify(ctx context.Context, token string) (access.Caller, error)
}

// roster is the parsed content of the file.
type roster struct {
	credentials []credential
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
	file, err := secretfile.Open("the platforms file", path, parseRoster)
	if err != nil {
		return nil, fmt.Errorf("read platforms from %s: %w", path, err)
	}
	return &Platforms{file: file}, nil
}

// AcceptTokens makes Authenticate accept the tokens of platforms too. It is to be called before any request is
// authenticated.
func (p *Platforms) AcceptTokens(tokens TokenVerifier) { p.tokens = tokens }

// CredentialsOf returns digests of all credentials of a platform; none if it is not listed.
func (p *Platforms) CredentialsOf(name string) (digests [][sha256.Size]byte) {
	for _, known := range p.file.Current().credentials {
		if known.platform.Name == name {
			digests = append(digests, known.digest)
		}
	}
	return digests
}

// Prove returns the name of the platform that sent a request, and the digest of its credentials. Unlike Authenticate,
// it accepts no tokens: a token is not renewed by itself.
func (p *Platforms) Prove(r *http.Request) (name string, credential [sha256.Size]byte, ok bool) {
	platform, sent, ok := p.prove(r)
	if !ok {
		return "", sent, false
	}
	return platform.Name, sent, true
}

// Authenticate returns the platform that sent a request, by its credentials or by a token. Its running
// time depends neither on which credentials are known nor on how many bytes of the sent ones are right. A
// request with an Authorization header is judged by that header alone.
func (p *Platforms) Authenticate(r *http.Request) (*Platform, bool) {
	platform, _, ok := p.identify(r)
	return platform, ok
}

// identify does what Authenticate does, and also returns the digest of the credentials
// sent.
func (p *Platforms) identify(r *http.Request) (platform *Platform, sent [sha256.Size]byte, ok bool) {
	if platform, sent, ok = p.prove(r); ok || p.tokens == nil {
		return platform, sent, ok
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, sent, false
	}
	caller, err := p.tokens.Verify(r.Context(), strings.TrimSpace(token))
	if err != nil || caller.Role != access.Platform {
		return nil, sent, false
	}
	platform, ok = p.file.Current().byName[caller.Name]
	return platform, sent, ok
}

// prove judges the credentials that a request has, without tokens.
func (p *Platforms) prove(r *http.Request) (platform *Platform, sent [sha256.Size]byte, ok bool) {
	authorization := r.Header.Get("Authorization")
	switch scheme, token, _ := strings.Cut(authorization, " "); {
	case strings.EqualFold(scheme, "Bearer"):
		sent = credentialDigest("bearer", strings.TrimSpace(token))
	case authorization != "":
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

// platformFile is the schema of the file.
type platformFile struct {
	Platforms []ListedPlatform `json:"platforms"`
}

// ListedPlatform is one platform of the file, with its secrets in clear text.
type ListedPlatform struct {
	Name                   string               `json:"name"`
	Basic                  []BasicCredential    `json:"basic,omitempty"`
	Bearer                 []string             `json:"bearer,omitempty"`
	ClientCertificateNames []string             `json:"clientCertificateNames,omitempty"`
	DeletedLastOperation   DeletedLastOperation `json:"deletedLastOperation,omitempty"`
	Limits                 *ListedLimits        `json:"limits,omitempty"`
	// Reads are label selectors of member clusters, by the name by which the platform reads what they sell.
	Reads map[string]string `json:"reads,omitempty"`
}

// ListedLimits are a platform's limits; absent ones have the default.
type ListedLimits struct {
	Instances *int64             `json:"instances,omitempty"`
	Bytes     *resource.Quantity `json:"bytes,omitempty"`
}

// limits returns a platform's limits with the defaults filled in.
func (l *ListedLimits) limits() Limits {
	limits := Limits{Instances: defaultInstances, Bytes: defaultHeldBytes}
	if l != nil && l.Instances != nil {
		limits.Instances = *l.Instances
	}
	if l != nil && l.Bytes != nil {
		limits.Bytes = l.Bytes.Value()
	}
	return limits
}

// BasicCredential is a username and a password (RFC 7617).
type BasicCredential struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// ListPlatforms parses such a document. It checks only the schema.
func ListPlatforms(document []byte) ([]ListedPlatform, error) {
	var file platformFile
	if err := strictjson.DecodeYAML(document, &file); err != nil {
		return nil, err
	}
	return file.Platforms, nil
}

var platformName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// parseRoster parses and checks the file's content. Its errors name platforms, never
// secrets.
func parseRoster(document []byte) (*roster, error) {
	listed, err := ListPlatforms(document)
	if err != nil {
		return nil, err
	}
	if len(listed) == 0 {
		return nil, errors.New("no platform is listed")
	}
	r := &roster{byName: map[string]*Platform{}}
	owners := map[[sha256.Size]byte]string{}
	for _, entry := range listed {
		platform, err := newPlatform(entry)
		if err != nil {
			return nil, err
		}
		if r.byName[entry.Name] != nil {
			return nil, fmt.Errorf("platform %s is listed twice", entry.Name)
		}
		r.byName[entry.Name] = platform
		if err := r.addCredentials(entry, platform, owners); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// newPlatform checks everything of a platform except its credentials.
func newPlatform(entry ListedPlatform) (*Platform, error) {
	if !platformName.MatchString(entry.Name) {
		return nil, fmt.Errorf("platform %q: a name has up to 63 lower-case letters, digits, dots and dashes", entry.Name)
	}
	if entry.Name == v1alpha1.PlatformSelf {
		return nil, fmt.Errorf("platform %q: the name is reserved for Sluice's own instances", entry.Name)
	}
	platform := &Platform{Name: entry.Name, DeletedLastOperation: entry.DeletedLastOperation, Limits: entry.Limits.limits()}
	if platform.Limits.Instances < 0 || platform.Limits.Bytes < 0 {
		return nil, fmt.Errorf("platform %s: limits: want zero or more", entry.Name)
	}
	switch platform.DeletedLastOperation {
	case "":
		platform.DeletedLastOperation = DeletedGone
	case DeletedGone, DeletedSucceeded:
	default:
		return nil, fmt.Errorf("platform %s: deletedLastOperation: want gone or succeeded", entry.Name)
	}
	for name, clusters := range entry.Reads {
		selector, err := labels.Parse(clusters)
		if err != nil {
			return nil, fmt.Errorf("platform %s: reads: %s: want a label selector of member clusters, \"\" for all: %w", entry.Name, name, err)
		}
		if platform.Reads == nil {
			platform.Reads = map[string]labels.Selector{}
		}
		platform.Reads[name] = selector
	}
	return platform, nil
}

// addCredentials adds those of a platform. Owners are the platforms of all credentials so far: no two platforms
// share one.
func (r *roster) addCredentials(entry ListedPlatform, platform *Platform, owners map[[sha256.Size]byte]string) error {
	add := func(kind string, parts ...string) error {
		if slices.Contains(parts, "") {
			return fmt.Errorf("platform %s: an empty %s credential", entry.Name, kind)
		}
		digest := credentialDigest(kind, parts...)
		if owner, taken := owners[digest]; taken && owner != entry.Name {
			return fmt.Errorf("platforms %s and %s share a %s credential", owner, entry.Name, kind)
		}
		owners[digest] = entry.Name
		r.credentials = append(r.credentials, credential{digest: digest, platform: platform})
		return nil
	}
	var errs []error
	for _, user := range entry.Basic {
		r.basic = true
		if strings.Contains(user.Username, ":") {
			errs = append(errs, fmt.Errorf("platform %s: a username cannot contain a colon (RFC 7617)", entry.Name))
		}
		errs = append(errs, add("basic", user.Username, user.Password))
	}
	for _, token := range entry.Bearer {
		r.bearer = true
		errs = append(errs, add("bearer", token))
	}
	for _, name := range entry.ClientCertificateNames {
		errs = append(errs, add("certificate", name))
	}
	if len(errs) == 0 {
		return fmt.Errorf("platform %s has no credentials", entry.Name)
	}
	return errors.Join(errs...)
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
