package did

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// chained publishes a chain and names it in the key.
func (o *organisation) chained(t testing.TB, net *internet, chain string) {
	t.Helper()
	host, err := WebHost(o.did)
	fatal(t, err)
	net.put(host+"/.well-known/chain.pem", say(chain))
	o.key.CertificatesURL = &url.URL{Scheme: "https", Host: host + ":" + net.port, Path: "/.well-known/chain.pem"}
	net.publish(t, o, WebDocument(o.did, []jose.JSONWebKey{o.key}))
}

func TestChainOfEveryKindOfKey(t *testing.T) {
	net := newInternet(t)
	intermediate := newAuthority(t, "Intermediate", &net.ca)
	for name, private := range testKeys(t) {
		t.Run(name, func(t *testing.T) {
			o := net.organisation(t, provider)
			private.KeyID = o.key.KeyID
			o.key = private
			leaf := intermediate.issue(t, private.Public().Key, leafFor(provider))
			for _, withRoot := range []bool{false, true} {
				chain := []*x509.Certificate{leaf, intermediate.certificate}
				if withRoot {
					chain = append(chain, net.ca.certificate)
				}
				o.chained(t, net, inPEM(chain...))
				key, err := net.resolver().Key(t.Context(), o.did+"#key-1")
				fatal(t, err)
				if len(key.Chain) != 2 || !key.Chain[0].Equal(leaf) || !key.Chain[1].Equal(intermediate.certificate) {
					t.Errorf("got a chain of %d", len(key.Chain))
				}
			}
		})
	}
}

func TestChainsThatAreRefused(t *testing.T) {
	net := newInternet(t)
	intermediate := newAuthority(t, "Intermediate", &net.ca)
	rogue := newAuthority(t, "Rogue Root", nil)
	noAuthority := authority{key: net.organisation(t, provider).key.Key.(*ecdsa.PrivateKey)}
	noAuthority.certificate = net.ca.issue(t, noAuthority.key.Public(), leafFor("mallory.example"))
	other := net.organisation(t, "other.example").key

	for _, row := range []struct {
		name  string
		chain func(key any) string
		says  string
	}{
		{"root that the owner brings along is no root", func(key any) string {
			return inPEM(rogue.issue(t, key, leafFor(provider)), rogue.certificate)
		}, "unknown authority"},
		{"self-signed leaf", func(any) string { return inPEM(rogue.certificate) }, "another key"},
		{"intermediate missing", func(key any) string { return inPEM(intermediate.issue(t, key, leafFor(provider))) }, "unknown authority"},
		{"issued by a certificate that is no authority", func(key any) string {
			return inPEM(noAuthority.issue(t, key, leafFor(provider)), noAuthority.certificate)
		}, "unknown authority"},
		{"leaf is of another host", func(key any) string { return inPEM(net.ca.issue(t, key, leafFor("other.example"))) }, "other.example"},
		{"leaf is of a subdomain", func(key any) string { return inPEM(net.ca.issue(t, key, leafFor("www."+provider))) }, provider},
		{"leaf is of the same name under another top-level domain", func(key any) string {
			return inPEM(net.ca.issue(t, key, leafFor("provider.test")))
		}, "provider.test"},
		{"leaf has the host only as common name", func(key any) string {
			leaf := leafFor(provider)
			leaf.DNSNames = nil
			return inPEM(net.ca.issue(t, key, leaf))
		}, "Common Name"},
		{"leaf is of another key", func(any) string { return inPEM(net.ca.issue(t, other.Public().Key, leafFor(provider))) }, "another key"},
		{"leaf is not first", func(key any) string {
			return inPEM(intermediate.certificate, intermediate.issue(t, key, leafFor(provider)))
		}, "another key"},
		{"leaf has expired", func(key any) string {
			leaf := leafFor(provider)
			leaf.NotBefore, leaf.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
			return inPEM(net.ca.issue(t, key, leaf))
		}, "expired"},
		{"leaf is not valid yet", func(key any) string {
			leaf := leafFor(provider)
			leaf.NotBefore, leaf.NotAfter = time.Now().Add(time.Hour), time.Now().Add(48*time.Hour)
			return inPEM(net.ca.issue(t, key, leaf))
		}, "not yet valid"},
		{"leaf is for key agreement", func(key any) string {
			leaf := leafFor(provider)
			leaf.KeyUsage = x509.KeyUsageKeyAgreement
			return inPEM(net.ca.issue(t, key, leaf))
		}, "not for signatures"},
		{"no certificates", func(any) string { return "" }, "empty"},
		{"not PEM", func(any) string { return "hello" }, "not certificates"},
		{"private key among them", func(key any) string {
			return inPEM(net.ca.issue(t, key, leafFor(provider))) + "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"
		}, "not certificates"},
		{"garbage in PEM", func(any) string { return "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" }, "parse certificate 1"},
		{"many certificates", func(key any) string {
			return inPEM(net.ca.issue(t, key, leafFor(provider))) + strings.Repeat(inPEM(intermediate.certificate), maxCertificates)
		}, "more than 8"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := net.organisation(t, provider)
			o.chained(t, net, row.chain(o.key.Public().Key))
			_, err := net.resolver().Key(t.Context(), o.did+"#key-1")
			if !errors.As(err, new(*InvalidError)) || !strings.Contains(err.Error(), row.says) {
				t.Errorf("got %v, want it to say %q", err, row.says)
			}
		})
	}
}

// A proxy may send a long page while the host is down.
func TestAChainThatIsTooLongIsNotItsOwnersWord(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	o.chained(t, net, inPEM(net.ca.issue(t, o.key.Public().Key, leafFor(provider)))+strings.Repeat("\n", maxChain))
	_, err := net.resolver().Key(t.Context(), o.did+"#key-1")
	if !errors.As(err, new(*UnreachableError)) || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
}

func TestChainsAreFetchedLikeDocuments(t *testing.T) {
	net := newInternet(t)
	for where, says := range map[string]string{
		"http://provider.example/chain.pem":           "https",
		"https://127.0.0.1/chain.pem":                 "IP address",
		"https://user@provider.example/chain.pem":     "credentials",
		"https://provider.example/a/../chain.pem":     "dot segment",
		"https://forbidden.example/chain.pem":         "not among those",
		"file:///etc/passwd":                          "https",
		"/chain.pem":                                  "https",
		"https://provider.example/%2e%2e/chain.pem":   "dot segment",
		"https://provider.example:99999/chain.pem":    "port",
		"https://provider.example/chain.pem#fragment": "fragment",
	} {
		t.Run(where, func(t *testing.T) {
			o := net.organisation(t, provider)
			var err error
			o.key.CertificatesURL, err = url.Parse(where)
			fatal(t, err)
			net.publish(t, o, WebDocument(o.did, []jose.JSONWebKey{o.key}))
			resolver := net.resolver()
			resolver.Hosts = func(host string) bool { return host == provider }
			_, err = resolver.Key(t.Context(), o.did+"#key-1")
			if !errors.As(err, new(*InvalidError)) || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want it to say %q", err, says)
			}
		})
	}
}

func TestAChainThatEndsIsFetchedAgain(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	short := leafFor(provider)
	short.NotBefore, short.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Minute)
	o.chained(t, net, inPEM(net.ca.issue(t, o.key.Public().Key, short)))
	resolver := net.resolver()
	get := func() error { _, err := resolver.Key(t.Context(), o.did+"#key-1"); return err }
	fatal(t, get())
	net.pass(2 * time.Minute)
	if err := get(); !errors.As(err, new(*InvalidError)) {
		t.Errorf("expired: got %v", err)
	}
	o.chained(t, net, inPEM(net.ca.issue(t, o.key.Public().Key, leafFor(provider))))
	net.pass(retryAfter)
	fatal(t, get())
}

func TestAChainIsKeptWhileItsHostIsDown(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	o.chained(t, net, inPEM(net.ca.issue(t, o.key.Public().Key, leafFor(provider))))
	resolver := net.resolver()
	get := func() error { _, err := resolver.Key(t.Context(), o.did+"#key-1"); return err }
	fatal(t, get())
	net.put(provider+"/.well-known/chain.pem", status(http.StatusServiceUnavailable))
	net.pass(freshFor)
	fatal(t, get())
	net.pass(mostFor)
	if err := get(); !errors.As(err, new(*UnreachableError)) {
		t.Errorf("got %v", err)
	}
}

func TestAChainIsOfOneKeyOnly(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	chain := inPEM(net.ca.issue(t, o.key.Public().Key, leafFor(provider)))
	o.chained(t, net, chain)
	resolver := net.resolver()
	_, err := resolver.Key(t.Context(), o.did+"#key-1")
	fatal(t, err)
	o = net.organisation(t, provider) // the same id, another key
	o.chained(t, net, chain)
	net.pass(retryAfter)
	if _, err = resolver.Key(t.Context(), o.did+"#new"); !errors.As(err, new(*NotListedError)) { // the document is fetched again, the chain is not
		t.Errorf("got %v", err)
	}
	if _, err = resolver.Key(t.Context(), o.did+"#key-1"); !errors.As(err, new(*InvalidError)) {
		t.Errorf("got %v", err)
	}
}

func TestCertificatesInsideAKeyDoNotCount(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	o.key.Certificates = []*x509.Certificate{newAuthority(t, "Rogue Root", nil).issue(t, o.key.Public().Key, leafFor(provider))}
	net.publish(t, o, WebDocument(o.did, []jose.JSONWebKey{o.key}))
	key, err := net.resolver().Key(t.Context(), o.did+"#key-1")
	fatal(t, err)
	if key.Chain != nil || key.JWK.Certificates != nil {
		t.Error("they are passed on")
	}
}
