package openid

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
)

const (
	// freshFor is how long keys serve before they are fetched again, while they go on serving.
	freshFor = 10 * time.Minute
	// usableFor is how long keys serve while their issuer does not answer.
	usableFor = 24 * time.Hour
	// askEvery is the least time between two fetches, also after a failure.
	askEvery = 10 * time.Second
	// fetchTimeout limits each of the two requests of a fetch.
	fetchTimeout = 5 * time.Second
	// maxDocument is the longest answer of an issuer, in bytes.
	maxDocument = 256 << 10
	// maxReason is the longest text of an error that is logged; some quote the issuer's answer.
	maxReason = 300
)

// keys of one issuer, as it published them last.
type keys struct {
	issuer string
	client *http.Client
	clock  clock.PassiveClock
	flight singleflight.Group

	mu      sync.Mutex
	known   []jose.JSONWebKey
	at      oauth2.Endpoint
	fetched time.Time // as of when both are known
	asked   time.Time // of the last fetch, which may have failed
	failed  error
}

// verify returns the payload of a token that one of the keys has signed. The error contains access.ErrRefused or
// ErrUnavailable.
func (k *keys) verify(ctx context.Context, token string) ([]byte, error) {
	parsed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, refuse("it is not a JWT in compact serialisation")
	}
	payload, age, ok := k.check(parsed)
	if ok && age < usableFor {
		if age >= freshFor {
			k.fetch()
		}
		return payload, nil
	}
	if err := k.await(ctx); err != nil {
		return nil, err
	}
	if payload, _, ok = k.check(parsed); !ok {
		return nil, refuse("no key of its issuer has signed it")
	}
	return payload, nil
}

// endpoint returns where people sign in. The error contains ErrUnavailable.
func (k *keys) endpoint(ctx context.Context) (oauth2.Endpoint, error) {
	k.mu.Lock()
	at := k.at
	k.mu.Unlock()
	if at == (oauth2.Endpoint{}) {
		if err := k.await(ctx); err != nil {
			return at, err
		}
		k.mu.Lock()
		at = k.at
		k.mu.Unlock()
	}
	for _, one := range []string{at.AuthURL, at.TokenURL} {
		if parsed, err := url.Parse(one); err != nil || parsed.Scheme != "https" {
			return at, fmt.Errorf("%w: %s: authorization_endpoint and token_endpoint: want https URLs, got %q", ErrUnavailable, k.issuer, one)
		}
	}
	return at, nil
}

// await waits for a fetch. The error contains ErrUnavailable.
func (k *keys) await(ctx context.Context) error {
	select {
	case done := <-k.fetch():
		if done.Err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, done.Err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// check returns the payload if one of the keys that are known has signed it, and the age of what is known.
func (k *keys) check(token *jose.JSONWebSignature) (payload []byte, age time.Duration, ok bool) {
	k.mu.Lock()
	known, age := k.known, k.clock.Since(k.fetched)
	k.mu.Unlock()
	header := token.Signatures[0].Header
	for _, key := range known {
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := token.Verify(&key); err == nil {
			return payload, age, true
		}
	}
	return nil, age, false
}

// fetch fetches the keys, unless that was done just now, and sends the result of the last time. All that ask at once
// wait for the same.
func (k *keys) fetch() <-chan singleflight.Result {
	return k.flight.DoChan("", func() (any, error) {
		k.mu.Lock()
		recent, err := k.clock.Since(k.asked) < askEvery, k.failed
		k.mu.Unlock()
		if recent {
			return nil, err
		}
		known, at, err := k.ask()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.asked, k.failed = k.clock.Now(), err
		if err == nil {
			k.known, k.at, k.fetched = known, at, k.asked
		}
		return nil, err
	})
}

// ask asks the issuer for its keys: its discovery document (OpenID Connect Discovery 1.0, section 4) says at which URL
// they are, and where people sign in.
func (k *keys) ask() (known []jose.JSONWebKey, at oauth2.Endpoint, err error) {
	ctx := oidc.ClientContext(context.Background(), k.client) // which has a timeout
	provider, err := oidc.NewProvider(ctx, k.issuer)
	var published struct {
		Keys string `json:"jwks_uri"`
	}
	if err == nil {
		err = provider.Claims(&published)
	}
	if err == nil {
		known, err = k.read(ctx, published.Keys)
	}
	if err != nil {
		text := err.Error()
		err = fmt.Errorf("fetch the keys of %s: %s", k.issuer, text[:min(len(text), maxReason)])
		slog.Warn("an OpenID Connect issuer cannot be used; keys that it published before serve for a day", "issuer", k.issuer, "error", err)
		return nil, at, err
	}
	return known, provider.Endpoint(), nil
}

// read returns the keys for signatures at a URL (RFC 7517, section 5).
func (k *keys) read(ctx context.Context, at string) (known []jose.JSONWebKey, err error) {
	if parsed, err := url.Parse(at); err != nil || parsed.Scheme != "https" {
		return nil, fmt.Errorf("jwks_uri: want an https URL, got %q", at)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", at, err)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", at, response.Status)
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		// Keys of kinds that are not known are for others (RFC 7517, section 5).
		if key.UnmarshalJSON(raw) == nil && key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			known = append(known, key)
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("%s has no public key for signatures", at)
	}
	return known, nil
}
