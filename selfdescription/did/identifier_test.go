package did

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhereTheDocumentOfADIDWebIs(t *testing.T) {
	for did, want := range map[string]string{
		"did:web:w3c-ccg.github.io":                         "https://w3c-ccg.github.io/.well-known/did.json",
		"did:web:w3c-ccg.github.io:user:alice":              "https://w3c-ccg.github.io/user/alice/did.json",
		"did:web:example.com%3A3000":                        "https://example.com:3000/.well-known/did.json",
		"did:web:example.com%3a3000:user:alice":             "https://example.com:3000/user/alice/did.json",
		"did:web:Example.COM:User":                          "https://example.com/User/did.json",
		"did:web:xn--bcher-kva.example":                     "https://xn--bcher-kva.example/.well-known/did.json",
		"did:web:localhost":                                 "https://localhost/.well-known/did.json",
		"did:web:example.com:a%20b":                         "https://example.com/a%20b/did.json",
		"did:web:example.com:...:a.b":                       "https://example.com/.../a.b/did.json",
		"did:web:127.0.0.1.example":                         "https://127.0.0.1.example/.well-known/did.json",
		"did:web:" + strings.Repeat("a", 63) + ".x.example": "https://" + strings.Repeat("a", 63) + ".x.example/.well-known/did.json",
	} {
		if got, err := WebURL(did); err != nil || got != want {
			t.Errorf("%s: got %s, %v", did, got, err)
		}
	}
}

func TestDIDsThatLeadElsewhereAreRefused(t *testing.T) {
	for _, did := range []string{
		"", "did:web", "did:web:", "did:WEB:example.com", "DID:web:example.com", "did:key:z6Mk", "https://example.com",
		// IP literals
		"did:web:127.0.0.1", "did:web:127.0.0.1%3A443", "did:web:2130706433", "did:web:0x7f.1", "did:web:0x", "did:web:127.1", "did:web:example.1",
		"did:web:%5B%3A%3A1%5D", "did:web:[::1]", "did:web:fe80%3A%3A1",
		// credentials, and other parts of a URL
		"did:web:user%40example.com", "did:web:user@example.com", "did:web:example.com%2Fx", "did:web:example.com/x", "did:web:example.com%3Fx", "did:web:example.com?x",
		"did:web:example.com%23x", "did:web:example.com#x", "did:web:example.com%5Cx", "did:web:example.com%00", "did:web:example.com%0d%0a", "did:web:example%20.com",
		// ports
		"did:web:example.com%3A", "did:web:example.com%3A0", "did:web:example.com%3A65536", "did:web:example.com%3A+443", "did:web:example.com%3A044", "did:web:example.com%3Ahttps", "did:web:example.com%3A443%3A443", "did:web:example.com%253A443",
		// dot segments
		"did:web:example.com:..", "did:web:example.com:.:x", "did:web:example.com:a:..:..:b", "did:web:example.com:%2e%2e:x", "did:web:example.com:%2E.:x", "did:web:example.com:%252e%252e:x",
		"did:web:example.com:a%2fb", "did:web:example.com:a%2F..%2Fb", "did:web:example.com:a%5cb", "did:web:example.com:a%3Fb", "did:web:example.com:a%23b", "did:web:example.com:a%00", "did:web:example.com:%ff",
		"did:web:example.com::x", "did:web:example.com:x::y", "did:web:example.com:", "did:web:example.com:x:",
		// names that are none
		"did:web:.example.com", "did:web:example..com", "did:web:example.com.", "did:web:-example.com", "did:web:example-.com", "did:web:exa_mple.com", "did:web:exämple.com", "did:web:%65xample.com%zz", "did:web:example.com%", "did:web:example.com%4",
		"did:web:" + strings.Repeat("a", 64) + ".example", "did:web:" + strings.Repeat("a.", 126) + "example", "did:web:example.com:" + strings.Repeat("a", maxDID),
	} {
		if got, err := WebURL(did); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%q: got %s, %v", did, got, err)
		}
		if got, err := WebHost(did); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%q: got host %s, %v", did, got, err)
		}
	}
}

func TestDIDURLsThatNameNoKeyAreRefused(t *testing.T) {
	for _, id := range []string{
		"", "#", "#key-1", "did:web:example.com", "did:web:example.com#", "did:web:example.com#a#b", "did:web:example.com/path#key-1", "did:web:example.com?versionId=1#key-1",
		"did:web:example.com;x=y#key-1", "did:web:example.com#a b", "did:web:example.com#\x00", "did:web:example.com#é", "did:web:example.com\n#key-1", "did:web:example.com#" + strings.Repeat("a", maxDID+1),
	} {
		if _, _, err := Split(id); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

func TestErrorsRepeatOnlyALittleAndOnlyWhatCanBePrinted(t *testing.T) {
	for _, id := range []string{strings.Repeat("a", 5000), "did:web:example.com\n\x1b[31m#key-1", "did:web:\xff#k"} {
		_, _, err := Split(id)
		if err == nil || len(err.Error()) > 300 || !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("got %q", err)
		}
	}
}

// FuzzWebURL looks for a DID that leads to anything but a document of the host that
// it names, or that another reader of the URL sees differently.
func FuzzWebURL(f *testing.F) {
	for _, seed := range []string{"did:web:example.com", "did:web:example.com%3A8443:a:b%20c", "did:web:127.0.0.1", "did:web:example.com:%2e%2e", "did:web:a%40b", "did:web:example.com%2F@x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, did string) {
		where, err := WebURL(did)
		if err != nil {
			if !errors.As(err, new(*InvalidError)) {
				t.Fatalf("%q: %T", did, err)
			}
			return
		}
		u, err := url.Parse(where)
		if err != nil {
			t.Fatalf("%q: %s: %v", did, where, err)
		}
		if checkURL(u) != nil || u.RawQuery != "" || u.ForceQuery || u.JoinPath().String() != where || !strings.HasSuffix(u.Path, "/did.json") {
			t.Fatalf("%q: %s", did, where)
		}
		host, _, _ := strings.Cut(strings.TrimPrefix(did, methodWeb), ":")
		if host, err = url.PathUnescape(host); err != nil || !strings.EqualFold(host, u.Host) {
			t.Fatalf("%q: host %s", did, u.Host)
		}
	})
}

// FuzzSplit looks for DID URLs that are not put together again from their parts.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{"did:web:example.com#key-1", "did:key:z6Mk#z6Mk", "did:web:a%3A1#a#b", "#"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		did, fragment, err := Split(id)
		if err == nil && (did+"#"+fragment != id || checkDID(did) != nil) {
			t.Fatalf("%q: %q and %q", id, did, fragment)
		}
	})
}
