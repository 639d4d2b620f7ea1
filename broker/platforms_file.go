package broker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// PlatformsFile is the content of the file, with its secrets in clear text.
type PlatformsFile struct {
	Platforms []ListedPlatform `json:"platforms"`
	OpenID    []openid.Listed  `json:"openid,omitempty"`
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

// ReadPlatforms parses such a document. It checks only the schema.
func ReadPlatforms(document []byte) (file PlatformsFile, err error) {
	err = strictjson.DecodeYAML(document, &file)
	return file, err
}

var platformName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// parseRoster parses and checks the file's content. Its errors name platforms, never
// secrets.
func parseRoster(document []byte, issuers *openid.Connections) (*roster, error) {
	file, err := ReadPlatforms(document)
	if err != nil {
		return nil, err
	}
	if len(file.Platforms) == 0 {
		return nil, errors.New("no platform is listed")
	}
	r := &roster{byName: map[string]*Platform{}}
	if r.issuers, err = issuers.Read(file.OpenID); err != nil {
		return nil, err
	}
	owners := map[[sha256.Size]byte]string{}
	for _, entry := range file.Platforms {
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
	for _, caller := range r.issuers.Callers() {
		if caller.Role == access.Platform && r.byName[caller.Name] == nil {
			return nil, fmt.Errorf("openid: a caller is %s, and no platform of that name is listed", caller)
		}
		r.bearer = r.bearer || caller.Role == access.Platform
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
	if len(errs) == 0 && len(r.issuers.CredentialsOf(access.Caller{Role: access.Platform, Name: entry.Name})) == 0 {
		return fmt.Errorf("platform %s has no credentials, and no caller of openid is it", entry.Name)
	}
	return errors.Join(errs...)
}
