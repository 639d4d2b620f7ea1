// Package openidtest runs a real OpenID Connect provider for tests: that of github.com/zitadel/oidc, over HTTPS, whose
// keys the test has too.
package openidtest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/sluice-dev/sluice/internal/openid"
)

// Audience of the tokens, which is the client of the provider too.
const Audience = "sluice"

// Issuer is a provider that runs.
type Issuer struct {
	testing.TB
	// URL is the issuer's, and CABundle its certificate.
	URL, CABundle string
	// KeyFetches counts requests for the keys.
	KeyFetches atomic.Int64

	server   *httptest.Server
	provider *op.Provider
	storage  *stored
	clients  map[string]*storage.Client
	instead  atomic.Pointer[http.HandlerFunc]
}

// Start runs a provider, with one RSA key, until the test ends. Its users are whoever is asked for.
func Start(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{TB: t, server: httptest.NewUnstartedServer(nil)}
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.Config.Handler = http.HandlerFunc(i.serve)
	i.URL = "https://" + i.server.Listener.Addr().String()
	i.clients = map[string]*storage.Client{}
	i.Register(redirect)
	i.storage = &stored{Storage: storage.NewStorageWithClients(users{}, i.clients)}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	i.must(err)
	i.storage.keys = []Key{{Name: "first", Algorithm: jose.RS256, Private: private}}
	config := &op.Config{CryptoKey: [32]byte{1}, CodeMethodS256: true}
	i.provider, err = op.NewProvider(config, i.storage, op.StaticIssuer(i.URL), op.WithLogger(slog.New(slog.DiscardHandler)))
	i.must(err)
	i.server.StartTLS()
	t.Cleanup(func() {
		i.server.CloseClientConnections()
		i.server.Close()
	})
	i.CABundle = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
	return i
}

// Listed returns the issuer as an operator lists it.
func (i *Issuer) Listed(callers ...openid.ListedCaller) openid.Listed {
	return openid.Listed{Issuer: i.URL, Audiences: []string{Audience}, CABundle: i.CABundle, Addresses: []string{"127.0.0.0/8", "::1/128"}, Callers: callers}
}

// Register makes the URL to which people come back another one, before anybody signs in.
func (i *Issuer) Register(redirect string) {
	i.clients[Audience] = storage.WebClient(Audience, ClientSecret, redirect)
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/keys" {
		i.KeyFetches.Add(1)
	}
	if instead := i.instead.Load(); instead != nil {
		(*instead)(w, r)
		return
	}
	if r.URL.Path == "/login/username" {
		i.login(w, r)
		return
	}
	i.provider.ServeHTTP(w, r)
}

// Instead answers all requests with a handler, or with the provider again if it is nil.
func (i *Issuer) Instead(handler http.HandlerFunc) {
	if handler == nil {
		i.instead.Store(nil)
		return
	}
	i.instead.Store(&handler)
}

// Provider answers a request as the provider does.
func (i *Issuer) Provider(w http.ResponseWriter, r *http.Request) { i.provider.ServeHTTP(w, r) }

// Rotate replaces the key by another one, of ES256. It returns the one before.
func (i *Issuer) Rotate() (before Key) {
	i.Helper()
	before = i.Key()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i.must(err)
	i.storage.mu.Lock()
	defer i.storage.mu.Unlock()
	i.storage.keys = []Key{{Name: rand.Text(), Algorithm: jose.ES256, Private: private}}
	return before
}

// Key returns the key that signs now.
func (i *Issuer) Key() Key { return i.storage.published()[0] }

// PublicKey returns the public half of the key that signs now.
func (i *Issuer) PublicKey() any { return publicKey{i.Key()}.Key() }

// Claims returns claims of a token that holds for five minutes, changed by others; nil removes one.
func (i *Issuer) Claims(changes map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{"iss": i.URL, "aud": Audience, "sub": "somebody", "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Token returns a token that the provider's key has signed, with these changes of its claims.
func (i *Issuer) Token(changes map[string]any) string {
	i.Helper()
	return i.Signed(i.Key(), nil, i.Claims(changes))
}

// Signed returns a token with headers and claims.
func (i *Issuer) Signed(key Key, headers map[jose.HeaderKey]any, claims any) string {
	i.Helper()
	options := (&jose.SignerOptions{}).WithHeader("kid", key.Name)
	for name, value := range headers {
		options = options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: key.Algorithm, Key: key.Private}, options)
	i.must(err)
	payload, err := json.Marshal(claims)
	i.must(err)
	signed, err := signer.Sign(payload)
	i.must(err)
	token, err := signed.CompactSerialize()
	i.must(err)
	return token
}

func (i *Issuer) must(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

// Key is a private key of a provider.
type Key struct {
	Name      string
	Algorithm jose.SignatureAlgorithm
	Private   any
}

// signingKey is a key as the provider signs with it, and publicKey as it publishes it.
type (
	signingKey struct{ of Key }
	publicKey  struct{ of Key }
)

func (k signingKey) ID() string                                  { return k.of.Name }
func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return k.of.Algorithm }
func (k signingKey) Key() any                                    { return k.of.Private }

func (k publicKey) ID() string                         { return k.of.Name }
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return k.of.Algorithm }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return k.of.Private.(crypto.Signer).Public() }

// stored is the provider's memory, with keys that change.
type stored struct {
	*storage.Storage
	mu   sync.Mutex
	keys []Key
}

func (s *stored) published() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

func (s *stored) SigningKey(context.Context) (op.SigningKey, error) {
	return signingKey{s.published()[0]}, nil
}

func (s *stored) SignatureAlgorithms(context.Context) (all []jose.SignatureAlgorithm, err error) {
	for _, key := range s.published() {
		all = append(all, key.Algorithm)
	}
	return all, nil
}

func (s *stored) KeySet(context.Context) (all []op.Key, err error) {
	for _, key := range s.published() {
		all = append(all, publicKey{key})
	}
	return all, nil
}

// users are everybody, by a name that is their subject too.
type users struct{}

func (users) GetUserByID(name string) *storage.User { return users{}.GetUserByUsername(name) }
func (users) GetUserByUsername(name string) *storage.User {
	return &storage.User{ID: name, Username: name, Password: password}
}
func (users) ExampleClientID() string { return "none" }
