package openid

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// Listed is an issuer as the operator lists it.
type Listed struct {
	// Issuer is its URL, exactly as in the claim iss of its tokens (OpenID Connect Core 1.0, section 2).
	Issuer string `json:"issuer"`
	// Audiences are the values of the claim aud of which a token must have one.
	Audiences []string `json:"audiences"`
	// CABundle is PEM that the issuer's certificate is checked against; empty means the system's roots.
	CABundle string `json:"caBundle,omitempty"`
	// Addresses, as CIDRs, at which the issuer may be reached though they are not public.
	Addresses []string `json:"addresses,omitempty"`
	// SignIn lets people sign in to the console there; nil if they do not.
	SignIn *ListedSignIn `json:"signIn,omitempty"`
	// Callers that its tokens identify.
	Callers []ListedCaller `json:"callers"`
}

// ListedCaller is a caller, and the claims of tokens that identify it.
type ListedCaller struct {
	// Is the caller: operator, platform:NAME or provider:NAME.
	Is string `json:"is"`
	// Claims that a token must all have: with this value, or with a list that contains it.
	Claims map[string]string `json:"claims"`
}

// Connections are the issuers that were read, with their keys, so that a change of the list fetches none again. The
// zero value is ready to use.
type Connections struct {
	// Clock is for tests; nil means the real clock.
	Clock clock.PassiveClock

	mu     sync.Mutex
	opened map[string]*keys
}

// Read checks a list of issuers. It asks none of them yet.
func (c *Connections) Read(listed []Listed) (*Issuers, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	all := &Issuers{byURL: map[string]*issuer{}}
	for i, entry := range listed {
		if all.byURL[entry.Issuer] != nil {
			return nil, fmt.Errorf("openid[%d].issuer: %s is listed twice", i, entry.Issuer)
		}
		read, err := c.read(entry)
		if err != nil {
			return nil, fmt.Errorf("openid[%d].%w", i, err)
		}
		all.byURL[entry.Issuer], all.listed = read, append(all.listed, entry.Issuer)
		all.rules = append(all.rules, read.rules...)
	}
	return all, nil
}

func (c *Connections) read(entry Listed) (*issuer, error) {
	at, err := url.Parse(entry.Issuer)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return nil, errors.New("issuer: want an https URL without user, query and fragment")
	}
	if len(entry.Audiences) == 0 || slices.Contains(entry.Audiences, "") {
		return nil, errors.New("audiences: want at least one, none of them empty")
	}
	if len(entry.Callers) == 0 {
		return nil, errors.New("callers: want at least one")
	}
	if entry.SignIn != nil && entry.SignIn.ClientID == "" {
		return nil, errors.New("signIn.clientID: is empty")
	}
	read := &issuer{audiences: entry.Audiences, signIn: entry.SignIn, clock: c.Clock}
	for i, listed := range entry.Callers {
		r, err := readRule(entry.Issuer, listed)
		if err != nil {
			return nil, fmt.Errorf("callers[%d].%w", i, err)
		}
		read.rules = append(read.rules, r)
	}
	read.keys, err = c.open(entry)
	return read, err
}

// open returns the keys of an issuer that is reached in this way.
func (c *Connections) open(entry Listed) (*keys, error) {
	roots, err := guarded.ParseRoots([]byte(entry.CABundle))
	if err != nil {
		return nil, err
	}
	addresses, err := guarded.ParseAddresses(entry.Addresses)
	if err != nil {
		return nil, err
	}
	way, err := json.Marshal([]any{entry.Issuer, entry.CABundle, entry.Addresses})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened[string(way)] == nil {
		client := guarded.NewClient(guarded.Options{Roots: roots, AllowAddresses: addresses, Timeout: fetchTimeout, MaxBytes: maxDocument})
		if c.opened == nil {
			c.opened = map[string]*keys{}
		}
		c.opened[string(way)] = &keys{issuer: entry.Issuer, client: client, clock: c.Clock}
	}
	return c.opened[string(way)], nil
}

// rule is a caller of an issuer.
type rule struct {
	access.Proof
	claims map[string]string
}

func readRule(issuer string, listed ListedCaller) (rule, error) {
	caller, err := access.ParseCaller(listed.Is)
	if err != nil {
		return rule{}, fmt.Errorf("is: %w", err)
	}
	if len(listed.Claims) == 0 {
		return rule{}, errors.New("claims: want at least one; without any, every token of the issuer would be this caller's")
	}
	for name, value := range listed.Claims {
		if name == "" || value == "" {
			return rule{}, errors.New("claims: a name or a value is empty")
		}
	}
	what, err := json.Marshal([]any{"openid", issuer, listed}) // the keys of a map are sorted
	return rule{access.Proof{Caller: caller, Credential: sha256.Sum256(what)}, listed.Claims}, err
}

// matches reports whether claims are the caller's.
func (r rule) matches(claims map[string]any) bool {
	for name, want := range r.claims {
		if !has(claims[name], want) {
			return false
		}
	}
	return true
}

// has reports whether a claim has a value.
func has(claim any, want string) bool {
	switch claim := claim.(type) {
	case string:
		return claim == want
	case bool, json.Number:
		return fmt.Sprint(claim) == want
	case []any:
		return slices.ContainsFunc(claim, func(one any) bool { text, ok := one.(string); return ok && text == want })
	}
	return false
}

// Callers returns the callers of all issuers, as listed.
func (i *Issuers) Callers() (all []access.Caller) {
	for _, r := range i.rules {
		all = append(all, r.Caller)
	}
	return all
}

// CredentialsOf returns digests of the entries by which a caller is identified; none if there are none.
func (i *Issuers) CredentialsOf(caller access.Caller) (digests [][sha256.Size]byte) {
	for _, r := range i.rules {
		if r.Caller == caller {
			digests = append(digests, r.Credential)
		}
	}
	return digests
}
