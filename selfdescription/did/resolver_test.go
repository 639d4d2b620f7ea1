package did

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/internal/guarded"
)

func TestKeyOfDIDWeb(t *testing.T) {
	net := newInternet(t)
	for name, private := range testKeys(t) {
		t.Run(name, func(t *testing.T) {
			o := net.organisation(t, provider)
			private.KeyID = "key-1"
			net.publish(t, o, WebDocument(o.did, []jose.JSONWebKey{private}))
			key, err := net.resolver().Key(t.Context(), o.did+"#key-1")
			fatal(t, err)
			if !equalKeys(key, private) || key.ID != o.did+"#key-1" || key.JWK.KeyID != key.ID || key.Chain != nil {
				t.Errorf("got %+v", key)
			}
		})
	}
}

func equalKeys(key *Key, private jose.JSONWebKey) bool {
	return key.JWK.Key.(interface{ Equal(crypto.PublicKey) bool }).Equal(private.Public().Key)
}

func TestPathOfDIDWeb(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	unit := organisation{did: o.did + ":units:x%20y", key: o.key}
	unit.key.KeyID = unit.did + "#key-1"
	net.publish(t, &unit, nil)
	net.put(provider+"/units/x%20y/did.json", say(inJSON(t, WebDocument(unit.did, []jose.JSONWebKey{unit.key}))))
	_, err := net.resolver().Key(t.Context(), unit.did+"#key-1")
	fatal(t, err)
}

func TestKeysOfTheOperatorAreNeverFetched(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	other := testKeys(t)["Ed25519"]
	other = other.Public()
	other.CertificatesURL = &url.URL{Scheme: "https", Host: provider, Path: "/chain.pem"}
	resolver := net.resolver()
	configured := &jose.JSONWebKeySet{}
	resolver.Keys = func(did string) (*jose.JSONWebKeySet, bool) { return configured, did == o.did }
	get := func() (*Key, error) { return resolver.Key(t.Context(), o.did+"#key-1") }

	if _, err := get(); !errors.As(err, new(*NotListedError)) {
		t.Errorf("none configured: got %v", err)
	}
	for _, id := range []string{o.did + "#key-1", "#key-1"} {
		other.KeyID = id
		configured.Keys = []jose.JSONWebKey{other}
		key, err := get()
		fatal(t, err)
		if !equalKeys(key, other) || key.JWK.KeyID != o.did+"#key-1" || key.JWK.CertificatesURL != nil {
			t.Errorf("kid %s: got %+v", id, key)
		}
	}
	configured.Keys = append(configured.Keys, o.key.Public())
	if _, err := get(); !errors.As(err, new(*InvalidError)) {
		t.Errorf("two of one id: got %v", err)
	}
	configured.Keys = []jose.JSONWebKey{o.key}
	if _, err := get(); !errors.As(err, new(*InvalidError)) {
		t.Errorf("private key: got %v", err)
	}
	if lookups, _, _ := net.seen(); lookups != 0 {
		t.Errorf("%d lookups", lookups)
	}
}

func TestARemovedKeyStopsCountingAndANewOneCountsAtOnce(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	resolver := net.resolver()
	_, err := resolver.Key(t.Context(), o.did+"#key-1")
	fatal(t, err)

	next := testKeys(t)["Ed25519"]
	next.KeyID = o.did + "#key-2"
	net.publish(t, o, WebDocument(o.did, []jose.JSONWebKey{next}))
	net.pass(retryAfter)
	_, err = resolver.Key(t.Context(), o.did+"#key-2") // makes it look again
	fatal(t, err)
	if _, err = resolver.Key(t.Context(), o.did+"#key-1"); !errors.As(err, new(*NotListedError)) {
		t.Errorf("removed key: got %v", err)
	}

	net.organisation(t, provider) // has key-1 only, another one
	net.pass(freshFor)
	if _, err = resolver.Key(t.Context(), o.did+"#key-2"); !errors.As(err, new(*NotListedError)) {
		t.Errorf("removed key, once the document is no longer fresh: got %v", err)
	}
	if key, err := resolver.Key(t.Context(), o.did+"#key-1"); err != nil || equalKeys(key, o.key) {
		t.Errorf("a new key of an old id: got %v, %v", key, err)
	}
}

func TestAKeyIsKeptWhileItsHostIsDownAndNoLonger(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	resolver := net.resolver()
	get := func() error { _, err := resolver.Key(t.Context(), o.did+"#key-1"); return err }
	fatal(t, get())

	net.put(provider+"/.well-known/did.json", status(http.StatusServiceUnavailable))
	net.pass(freshFor)
	fatal(t, get())
	_, _, before := net.seen()
	fatal(t, get()) // does not ask again so soon
	if _, _, after := net.seen(); after != before {
		t.Errorf("%d requests right after a failure", after-before)
	}
	if _, err := resolver.Key(t.Context(), o.did+"#key-2"); !errors.As(err, new(*UnreachableError)) {
		t.Errorf("a key that the old document does not list may be new: got %v", err)
	}
	net.pass(mostFor - freshFor)
	if err := get(); !errors.As(err, new(*UnreachableError)) {
		t.Errorf("after %s: got %v", mostFor, err)
	}
	net.organisation(t, provider)
	net.pass(retryAfter)
	fatal(t, get())
}

// Only the owner removes keys: by 410, or by a document of the DID without them. Answers of a
// proxy while the host is down remove none, however long that lasts.
func TestOnlyTheOwnersWordTakesKeysAway(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	for name, row := range map[string]struct {
		now   http.HandlerFunc
		takes bool
	}{
		"410":                       {status(http.StatusGone), true},
		"a document without keys":   {say(`{"id":"` + o.did + `"}`), true},
		"a document that is broken": {say(`{"id":"` + o.did + `","assertionMethod":7}`), true},
		"404":                       {status(http.StatusNotFound), false},
		"a page":                    {say("<html>"), false},
		"a page of 65 KiB":          {say("<html>" + strings.Repeat(" ", 65<<10)), false},
		"a compressed page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("<html>"))
		}, false},
		"an empty object":        {say("{}"), false},
		"another DID's document": {say(`{"id":"did:web:other.example"}`), false},
		"redirect":               {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			net.organisation(t, provider)
			resolver := net.resolver()
			get := func() error { _, err := resolver.Key(t.Context(), o.did+"#key-1"); return err }
			fatal(t, get())
			net.put(provider+"/.well-known/did.json", row.now)
			net.pass(freshFor)
			if err := get(); (err != nil) != row.takes {
				t.Errorf("got %v, want the key taken away: %v", err, row.takes)
			}
			net.pass(mostFor)
			if get() == nil {
				t.Errorf("it still counts after %s", mostFor)
			}
		})
	}
}

func TestFailuresAreCachedBriefly(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	resolver := net.resolver()
	for _, failing := range []http.HandlerFunc{status(http.StatusBadGateway), status(http.StatusNotFound)} {
		net.put(provider+"/.well-known/did.json", failing)
		net.pass(retryAfter)
		_, _, before := net.seen()
		for range 3 {
			if _, err := resolver.Key(t.Context(), o.did+"#key-1"); err == nil {
				t.Fatal("accepted")
			}
		}
		if _, _, after := net.seen(); after != before+1 {
			t.Errorf("%d requests", after-before)
		}
	}
	for range 3 {
		if _, err := resolver.Key(t.Context(), o.did+"#none"); err == nil {
			t.Fatal("accepted")
		}
	}
	net.organisation(t, provider)
	net.pass(retryAfter)
	_, err := resolver.Key(t.Context(), o.did+"#key-1")
	fatal(t, err)
}

func TestManyCallersShareOneFetch(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	document := net.pages[provider+"/.well-known/did.json"]
	arrived, release := make(chan struct{}), make(chan struct{})
	net.put(provider+"/.well-known/did.json", func(w http.ResponseWriter, r *http.Request) {
		close(arrived) // a second request panics
		<-release
		document(w, r)
	})
	resolver := net.resolver()
	hasty, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { _, err := resolver.Key(hasty, o.did+"#key-1"); left <- err }()
	<-arrived
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if _, err := resolver.Key(t.Context(), o.did+"#key-1"); err != nil {
				t.Error(err)
			}
		})
	}
	leave() // must not take the others along
	if err := <-left; !errors.As(err, new(*UnreachableError)) {
		t.Errorf("who hangs up: got %v", err)
	}
	close(release)
	callers.Wait()
}

func TestAHostThatIsNoLongerAllowedStopsCountingAtOnce(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	resolver := net.resolver()
	allowed := true
	resolver.Hosts = func(host string) bool { return allowed && host == provider }
	_, err := resolver.Key(t.Context(), o.did+"#key-1")
	fatal(t, err)
	allowed = false
	if _, err := resolver.Key(t.Context(), o.did+"#key-1"); !errors.As(err, new(*InvalidError)) {
		t.Errorf("got %v", err)
	}
}

func TestHostsAreAskedBeforeDNS(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	for name, hosts := range map[string]func(string) bool{"nil": nil, "none": func(string) bool { return false }} {
		resolver := net.resolver()
		resolver.Hosts = hosts
		if _, err := resolver.Key(t.Context(), o.did+"#key-1"); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := Fetch(t.Context(), resolver.Client, hosts, "https://provider.example/status/1", 100); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%s: Fetch: got %v", name, err)
		}
	}
	if lookups, connections, _ := net.seen(); lookups+connections != 0 {
		t.Errorf("%d lookups, %d connections", lookups, connections)
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	for _, id := range []string{"did:jwk:eyJ9#0", "did:ion:x#k", "did:webs:provider.example#k", "did:web:provider.example", "https://provider.example#k", "", "#k"} {
		if _, err := new(Resolver).Key(t.Context(), id); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%q: got %v", id, err)
		}
	}
	did, err := KeyDID(testKeys(t)["Ed25519"])
	fatal(t, err)
	if _, err := new(Resolver).Key(t.Context(), did+"#key-1"); !errors.As(err, new(*NotListedError)) {
		t.Errorf("did:key with another fragment: got %v", err)
	}
}

func TestACacheThatIsFullDropsFailuresFirst(t *testing.T) {
	var c Cache[chain]
	start := time.Now()
	c.put("good", start, chain{}, chain{}.Size(), nil)
	for i := range maxEntries {
		c.put(strconv.Itoa(i), start, chain{}, 0, errors.New("refused"))
	}
	if _, ok := c.entries["good"]; !ok || len(c.entries) != maxEntries {
		t.Errorf("%d entries, the good one kept: %t", len(c.entries), ok)
	}
}

// hangs is a host that does not answer.
type hangs struct{}

func (hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A host can have any number of DIDs, and a document any number of chains.
func TestAHostThatTakesTooLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resolver := &Resolver{Client: &http.Client{Transport: hangs{}, Timeout: guarded.Timeout}, Hosts: func(string) bool { return true }}
		begun := time.Now()
		for n := range 1000 {
			if _, err := resolver.Key(t.Context(), fmt.Sprintf("did:web:rival.example:%d#key-1", n)); !errors.As(err, new(*UnreachableError)) {
				t.Fatalf("got %v", err)
			}
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("1000 documents take %s", took)
		}
		if _, err := resolver.Key(t.Context(), "did:web:provider.example#key-1"); err == nil || !strings.Contains(err.Error(), "deadline") {
			t.Errorf("another host is not asked: %v", err)
		}
	})
}

func BenchmarkKey(b *testing.B) {
	net := newInternet(b)
	o := net.organisation(b, provider)
	o.chained(b, net, inPEM(net.ca.issue(b, o.key.Public().Key, leafFor(provider))))
	bare := net.organisation(b, "bare.example")
	resolver := net.resolver()
	resolver.Now = time.Now
	key, err := KeyDID(o.key)
	fatal(b, err)
	for name, id := range map[string]string{
		"did:web from cache":           bare.did + "#key-1",
		"did:web with x5u from cache":  o.did + "#key-1",
		"did:key P-256 (never cached)": key + "#" + strings.TrimPrefix(key, methodKey),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resolver.Key(b.Context(), id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func inJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	fatal(t, err)
	return string(text)
}
