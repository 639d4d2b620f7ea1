//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

const (
	audience = "did:web:broker.example"
	nonce    = "a-nonce-of-the-broker"
)

// said is one thing that is said in the test: the subject of a credential.
type said struct {
	Type    string         `json:"type"`
	Subject map[string]any `json:"subject"`
}

// subjects of testdata, in the name of an issuer.
func subjects(t *testing.T, issuer string) []said {
	t.Helper()
	text, err := os.ReadFile("testdata/subjects.json")
	must(t, err)
	var all []said
	must(t, json.Unmarshal(bytes.ReplaceAll(text, []byte(`"ISSUER"`), []byte(`"`+issuer+`"`)), &all))
	return all
}

// node runs a script of this folder, JSON in and JSON out.
func node(t *testing.T, script string, in, out any) {
	t.Helper()
	request, err := json.Marshal(in)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "node", script)
	cmd.Stdin = bytes.NewReader(request)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	answer, err := cmd.Output()
	if err != nil {
		t.Fatalf("node %s: %v\n%s", script, err, stderr.String())
	}
	must(t, json.Unmarshal(answer, out))
}

// TestInterop: an implementation from npm verifies everything that Sluice issues, and the other way round.
func TestInterop(t *testing.T) {
	t.Run("npm verifies what Sluice issues", npmVerifies)
	t.Run("Sluice verifies what npm issues", sluiceVerifies)
}

// presented is a presentation with what its signers publish, as verify.mjs takes it.
type presented struct {
	name      string
	why       string         // it is to be refused
	Token     string         `json:"token"`
	Audience  string         `json:"audience"`
	Nonce     string         `json:"nonce"`
	Documents map[string]any `json:"documents"`
	KeySets   map[string]any `json:"keySets"`
	// Lists are status list credentials, by URL.
	Lists map[string]string `json:"lists"`
}

// found is the output of verify.mjs for a presentation.
type found struct {
	Error       string `json:"error"`
	Holder      string `json:"holder"`
	Algorithm   string `json:"algorithm"`
	Credentials []struct {
		Issuer    string         `json:"issuer"`
		Type      string         `json:"type"`
		Algorithm string         `json:"algorithm"`
		Subject   map[string]any `json:"subject"`
	} `json:"credentials"`
	Violations []string `json:"violations"`
}

func npmVerifies(t *testing.T) {
	var good []presented
	for _, algorithm := range selfdescription.Algorithms() {
		issuer := newIssuer(t, algorithm)
		good = append(good, issuer.present(t, algorithm, subjects(t, issuer.signer.Issuer())))
	}
	bad := refused(t)
	answers := npmVerify(t, append(good, bad...))
	for i, p := range good {
		t.Run(p.name, func(t *testing.T) {
			answer := answers[i]
			if answer.Error != "" || len(answer.Violations) > 0 {
				t.Fatalf("refused: %s; violations of the shapes: %v", answer.Error, answer.Violations)
			}
			if answer.Algorithm != p.name {
				t.Errorf("signed with %s, want %s", answer.Algorithm, p.name)
			}
			want := subjects(t, answer.Holder)
			if len(answer.Credentials) != len(want) {
				t.Fatalf("%d credentials, want %d", len(answer.Credentials), len(want))
			}
			for j, c := range answer.Credentials {
				if diff := cmp.Diff(want[j].Subject, c.Subject); diff != "" {
					t.Errorf("%s is not what was said (-want +got):\n%s", c.Type, diff)
				}
			}
		})
	}
	// The same tools refuse what they ought to, so that their consent means something.
	for i, p := range bad {
		t.Run(p.name, func(t *testing.T) {
			answer := answers[len(good)+i]
			if said := answer.Error + strings.Join(answer.Violations, "; "); !strings.Contains(said, p.why) {
				t.Errorf("it says %q, want that to be about %q", said, p.why)
			}
		})
	}
}

func npmVerify(t *testing.T, presentations []presented) []found {
	t.Helper()
	contexts := map[string]json.RawMessage{}
	for _, c := range selfdescription.Contexts() {
		if c.Document != nil {
			contexts[c.URL] = c.Document
		}
	}
	var answers []found
	node(t, "verify.mjs", map[string]any{"contexts": contexts, "presentations": presentations}, &answers)
	if len(answers) != len(presentations) {
		t.Fatalf("%d answers for %d presentations", len(answers), len(presentations))
	}
	return answers
}

// issuer is a DID of Sluice's making.
type issuer struct{ signer *selfdescription.Signer }

func newIssuer(t *testing.T, algorithm string) issuer {
	t.Helper()
	key, err := selfdescription.GenerateKey(algorithm, "did:web:"+strings.ToLower(algorithm)+".example#key-1")
	must(t, err)
	signer, err := selfdescription.NewSigner(key)
	must(t, err)
	return issuer{signer}
}

// present signs a credential for each subject and a presentation of them all. They
// are on one status list, by their order; those whose bits are given are revoked.
func (i issuer) present(t *testing.T, name string, all []said, revoked ...int) presented {
	t.Helper()
	const url = "https://broker.example/status/1"
	now := time.Now()
	sign := func(document selfdescription.Document) string {
		document.ValidFrom, document.ValidUntil = now.Add(-time.Minute), now.Add(time.Hour)
		token, err := i.signer.Credential(document)
		must(t, err)
		return token
	}
	list := selfdescription.NewStatusList(len(all))
	for _, index := range revoked {
		must(t, list.Set(index, true))
	}
	var credentials []string
	for index, s := range all {
		credentials = append(credentials, sign(selfdescription.Document{
			ID: s.Subject["id"].(string) + "-credential", Subject: s.Subject,
			Status: []selfdescription.StatusEntry{{Purpose: selfdescription.PurposeRevocation, Index: index, List: url}},
		}))
	}
	token, err := i.signer.Presentation(credentials, selfdescription.Expect{Audience: audience, Nonce: nonce}, now)
	must(t, err)
	keys := []jose.JSONWebKey{i.signer.Public()}
	return presented{
		name: name, Token: token, Audience: audience, Nonce: nonce,
		Documents: map[string]any{i.signer.Issuer(): did.WebDocument(i.signer.Issuer(), keys)},
		KeySets:   map[string]any{i.signer.Issuer(): jose.JSONWebKeySet{Keys: keys}},
		Lists:     map[string]string{url: sign(list.Document(url, selfdescription.PurposeRevocation))},
	}
}

// refused are presentations that no verifier may accept.
func refused(t *testing.T) []presented {
	t.Helper()
	one, other := newIssuer(t, "ES256"), newIssuer(t, "ES256")
	all := subjects(t, one.signer.Issuer())
	without := func(attribute string) []said {
		changed := subjects(t, one.signer.Issuer())
		delete(changed[0].Subject, attribute)
		return changed
	}
	with := func(attribute string, value any) []said {
		changed := subjects(t, one.signer.Issuer())
		changed[0].Subject[attribute] = value
		return changed
	}
	because := func(why string, p presented) presented {
		p.why = why
		return p
	}
	otherKey := one.present(t, "another key of the same name", all)
	otherKey.Documents = other.present(t, "", all).Documents
	otherNonce := one.present(t, "another nonce", all)
	otherNonce.Nonce = "another"
	otherAudience := one.present(t, "another audience", all)
	otherAudience.Audience = "did:web:another.example"
	return []presented{
		because("signature verification failed", otherKey),
		because("nonce", otherNonce),
		because(`"aud"`, otherAudience),
		because("revocation bit 3 is set", one.present(t, "a revoked credential", all, 3)),
		because("legalAddress MinCount", one.present(t, "a required attribute is missing", without("legalAddress"))),
		because("award Closed", one.present(t, "a foreign claim in a closed shape", with("award", "best cloud"))),
		because("countryCode Or", one.present(t, "a country that does not exist", with("legalAddress", map[string]any{"type": "Address", "countryCode": "XX"}))),
	}
}

// form is a pair of media types in the header of a token.
type form struct {
	Typ string `json:"typ"`
	Cty string `json:"cty"`
}

// forms are the three generations of headers.
var forms = []map[string]form{
	{"credential": {"vc+jwt", "vc"}, "presentation": {"vp+jwt", "vp"}},
	{"credential": {"vc+ld+jwt", "vc+ld"}, "presentation": {"vp+ld+jwt", "vp+ld"}},
	{"credential": {"vc+ld+json+jwt", "vc+ld+json"}, "presentation": {"vp+ld+json+jwt", "vp+ld+json"}},
}

// issued is the output of issue.mjs.
type issued struct {
	Algorithm    string          `json:"algorithm"`
	Form         map[string]form `json:"form"`
	DID          string          `json:"did"`
	Document     json.RawMessage `json:"document"`
	Presentation string          `json:"presentation"`
	List         string          `json:"list"`
	ListToken    string          `json:"listToken"`
}

// StatusList makes the list that npm issued the source of its status.
func (i issued) StatusList(_ context.Context, _, url string) (string, error) {
	if url != i.List {
		return "", errors.New("no such list")
	}
	return i.ListToken, nil
}

func sluiceVerifies(t *testing.T) {
	host := newHost(t)
	var all []issued
	node(t, "issue.mjs", map[string]any{
		"did": host.did, "algorithms": selfdescription.Algorithms(), "forms": forms,
		"documents": withContexts(t), "audience": audience, "nonce": nonce,
	}, &all)
	if want := len(selfdescription.Algorithms()) * len(forms); len(all) != want {
		t.Fatalf("%d presentations, want %d", len(all), want)
	}
	keys := host.resolver()
	for _, i := range all {
		host.publish(i.DID, i.Document)
		verifier := &selfdescription.Verifier{Keys: keys, Statuses: i}
		t.Run(i.Algorithm+" "+i.Form["credential"].Typ, func(t *testing.T) {
			presentation, report := verifier.Presentation(t.Context(), i.Presentation, selfdescription.Expect{Audience: audience, Nonce: nonce})
			if !report.OK() {
				t.Fatalf("the presentation is refused:\n%s", report.String())
			}
			want := subjects(t, i.DID)
			if len(presentation.Credentials) != len(want) {
				t.Fatalf("%d credentials, want %d", len(presentation.Credentials), len(want))
			}
			for j, token := range presentation.Credentials {
				credential, report := verifier.Credential(t.Context(), token)
				if j == len(want)-1 {
					if report.State != selfdescription.Revoked {
						t.Errorf("the last one is revoked by its status list; report:\n%s", report.String())
					}
					continue
				}
				if !report.OK() {
					t.Errorf("%s is refused:\n%s", want[j].Type, report.String())
					continue
				}
				if credential.Type != want[j].Type || credential.Issuer != i.DID || credential.Algorithm != i.Algorithm {
					t.Errorf("%s of %s, signed with %s; want %s of %s with %s",
						credential.Type, credential.Issuer, credential.Algorithm, want[j].Type, i.DID, i.Algorithm)
				}
			}
			if _, report := verifier.Presentation(t.Context(), i.Presentation, selfdescription.Expect{Audience: audience, Nonce: "another"}); report.OK() {
				t.Error("the presentation is accepted with another nonce")
			}
		})
	}
}

// withContexts are the subjects, each with the contexts that define its terms.
func withContexts(t *testing.T) []map[string]any {
	t.Helper()
	own := map[string]bool{selfdescription.TypeClusterBinding: true, selfdescription.TypeClusterMeasurement: true, selfdescription.TypeCertification: true}
	var all []map[string]any
	for _, s := range subjects(t, "ISSUER") {
		context := selfdescription.ContextGaiaX
		if own[s.Type] {
			context = selfdescription.ContextSluice
		}
		all = append(all, map[string]any{"context": []string{selfdescription.ContextCredentials, context}, "type": s.Type, "subject": s.Subject})
	}
	return all
}

// host publishes DID documents over HTTPS, as the web server of an issuer does.
type host struct {
	did       string // of the host; issuers have paths below it
	client    *http.Client
	documents sync.Map // by path
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{did: "did:web:example.com"}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, ok := h.documents.Load(r.URL.Path)
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(document.(json.RawMessage))
	}))
	t.Cleanup(server.Close)
	h.client = server.Client() // which takes the server for example.com
	return h
}

func (h *host) publish(issuer string, document json.RawMessage) {
	path := strings.ReplaceAll(strings.TrimPrefix(issuer, h.did), ":", "/")
	h.documents.Store(path+"/did.json", document)
}

func (h *host) resolver() *did.Resolver {
	return &did.Resolver{Client: h.client, Hosts: func(host string) bool { return host == "example.com" }}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
