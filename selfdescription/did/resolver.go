package did

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// How long fetched documents are used. A key that its owner removes is refused after freshFor
// while the host answers, and after mostFor if it does not.
const (
	freshFor   = 10 * time.Minute
	mostFor    = 24 * time.Hour
	retryAfter = 30 * time.Second // after a failure, or for a key that a document does not list
)

// Resolver finds the key that a DID URL names, if the owner of the DID lists it as an
// assertionMethod. It caches fetched documents in memory. It is safe for concurrent use and
// must not be copied after first use; its zero value resolves did:key only.
type Resolver struct {
	// Keys returns the keys that the operator configured for a DID; "kid" of each is its DID
	// URL, or "#" and its fragment. For such a DID neither keys nor chains are fetched.
	Keys func(did string) (keys *jose.JSONWebKeySet, ok bool)
	// Client that fetches; nil means guarded.NewClient(guarded.Options{}).
	Client *http.Client
	// Hosts reports whether a host, in lower case and without port, may be asked; nil allows
	// none. It is called on every Key, so that a host that is no longer allowed is refused at
	// once.
	Hosts func(host string) bool
	// Roots that chains must end at; nil means the system's.
	Roots *x509.CertPool
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	once          sync.Once
	defaultClient *http.Client
	documents     Cache[assertions]
	chains        Cache[chain]
}

// Key returns the key that a DID URL names: one that the operator configured, the key encoded
// in a did:key, or one that a did:web lists for assertions. For did:web it blocks while it
// fetches, at most some 20 s, unless the answer is cached. Calls that need the same document
// share one fetch.
//
// The error is a *NotListedError, an *InvalidError or, if a later retry may help, an
// *UnreachableError.
func (r *Resolver) Key(ctx context.Context, id string) (*Key, error) {
	did, fragment, err := Split(id)
	if err != nil {
		return nil, err
	}
	if r.Keys != nil {
		if keys, ok := r.Keys(did); ok {
			return configuredKey(id, did, keys)
		}
	}
	switch {
	case strings.HasPrefix(did, methodWeb):
		return r.webKey(ctx, id, did)
	case strings.HasPrefix(did, methodKey):
		if fragment != strings.TrimPrefix(did, methodKey) {
			return nil, &NotListedError{ID: clip(id)}
		}
		jwk, err := keyOfDID(did)
		if err != nil {
			return nil, &InvalidError{ID: clip(id), Err: err}
		}
		jwk.KeyID = id
		return &Key{ID: id, JWK: *jwk}, nil
	}
	return nil, invalid(clip(id), "its DID method is neither web nor key")
}

// configuredKey finds a key in the operator's set.
func configuredKey(id, did string, keys *jose.JSONWebKeySet) (*Key, error) {
	var found *jose.JSONWebKey
	for i := range keys.Keys {
		if absolute(did, keys.Keys[i].KeyID) != id {
			continue
		}
		if found != nil {
			return nil, invalid(clip(id), "the operator configured two keys of this id")
		}
		found = &keys.Keys[i]
	}
	if found == nil {
		return nil, &NotListedError{ID: clip(id)}
	}
	if err := checkJWK(found); err != nil {
		return nil, &InvalidError{ID: clip(id), Err: err}
	}
	jwk := *found
	jwk.KeyID, jwk.Certificates, jwk.CertificatesURL = id, nil, nil
	return &Key{ID: id, JWK: jwk}, nil
}

func (r *Resolver) webKey(ctx context.Context, id, did string) (*Key, error) {
	where, err := webURL(did)
	if err != nil {
		return nil, &InvalidError{ID: clip(did), Err: err}
	}
	host := where.Hostname()
	if r.Hosts == nil || !r.Hosts(host) {
		return nil, invalid(clip(did), "host %s is not among those that may be asked", host)
	}
	key, err := r.assertion(ctx, id, did, where)
	if err != nil {
		return nil, err
	}
	if key.err != nil {
		return nil, &InvalidError{ID: clip(id), Err: key.err}
	}
	resolved := &Key{ID: id, JWK: key.jwk}
	if key.jwk.CertificatesURL != nil {
		if resolved.Chain, err = r.chain(ctx, id, host, key); err != nil {
			return nil, err
		}
	}
	return resolved, nil
}

// assertion finds a key in the DID's document. A missing key may be new: unless the document is
// quite recent, it is fetched again before the key is refused.
func (r *Resolver) assertion(ctx context.Context, id, did string, where *url.URL) (assertion, error) {
	load := func(ctx context.Context) (assertions, error) {
		data, err := fetch(ctx, r.client(), r.Hosts, where, maxDocument)
		if err != nil {
			return nil, err
		}
		found, err := decodeDocument(did, data)
		if err != nil && !isDocument(did, data) {
			return nil, &UnreachableError{ID: clip(did), Err: err}
		}
		if err != nil {
			return nil, &InvalidError{ID: clip(did), Err: err}
		}
		return found, nil
	}
	host := where.Hostname()
	for _, want := range []Wanted{{did, host, freshFor, mostFor}, {did, host, retryAfter, retryAfter}} {
		document, err := r.documents.Get(ctx, want, r.now(), load)
		if err != nil {
			return assertion{}, err
		}
		if key, ok := document[id]; ok {
			return key, nil
		}
	}
	return assertion{}, &NotListedError{ID: clip(id)}
}

// chain returns the verified chain of a key. A chain that has ended since it was fetched is
// fetched again, because certificates are renewed.
func (r *Resolver) chain(ctx context.Context, id, host string, key assertion) ([]*x509.Certificate, error) {
	load := func(ctx context.Context) (chain, error) {
		verified, err := r.fetchChain(ctx, host, &key.jwk, r.now())
		var unreachable *UnreachableError
		var refused *InvalidError
		if err != nil && !errors.As(err, &unreachable) && !errors.As(err, &refused) {
			err = &InvalidError{ID: clip(id), Err: err}
		}
		return verified, err
	}
	// The same id may later mean another key or another chain.
	name := strings.Join([]string{id, key.jwk.CertificatesURL.String(), key.thumbprint}, " ")
	for _, want := range []Wanted{{name, host, freshFor, mostFor}, {name, host, retryAfter, retryAfter}} {
		verified, err := r.chains.Get(ctx, want, r.now(), load)
		if err != nil {
			return nil, err
		}
		if !r.now().After(verified.until) {
			return verified.path, nil
		}
	}
	return nil, invalid(clip(id), "the chain at x5u has expired")
}

func (r *Resolver) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

func (r *Resolver) client() *http.Client {
	if r.Client != nil {
		return r.Client
	}
	r.once.Do(func() { r.defaultClient = guarded.NewClient(guarded.Options{}) })
	return r.defaultClient
}
