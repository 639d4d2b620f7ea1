package market

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/identity/identitytest"
	"github.com/sluice-dev/sluice/internal/jsonschema"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// passwords of platforms, by user, which is the platform's name.
type passwords map[string]string

func (p passwords) Prove(r *http.Request) (access.Proof, bool) {
	name, password, _ := r.BasicAuth()
	return access.Proof{Caller: access.Caller{Role: access.Platform, Name: name}, Credential: sha256.Sum256([]byte(password))}, p[name] != "" && p[name] == password
}

func (p passwords) CredentialsOf(caller access.Caller) (all [][sha256.Size]byte) {
	if password, ok := p[caller.Name]; ok && caller.Role == access.Platform {
		all = append(all, sha256.Sum256([]byte(password)))
	}
	return all
}

func (p passwords) Identify(ctx context.Context, token string) ([]access.Proof, error) {
	return new(openid.Issuers).Identify(ctx, token)
}

// listed are passwords of platforms, and issuers.
type listed struct {
	passwords
	issuers *openid.Issuers
}

func (l listed) CredentialsOf(caller access.Caller) [][sha256.Size]byte {
	return append(l.passwords.CredentialsOf(caller), l.issuers.CredentialsOf(caller)...)
}

func (l listed) Identify(ctx context.Context, token string) ([]access.Proof, error) {
	return l.issuers.Identify(ctx, token)
}

// trust makes the platforms file list these issuers.
func (w *world) trust(issuers ...openid.Listed) {
	w.Helper()
	read, err := w.issuers.Read(issuers)
	must(w.T, err)
	w.options.Platforms = listed{w.platforms, read}
	w.options.Tokens.Platforms = listed{w.platforms, read}
	w.start()
}

// world is a market on a hub.
type world struct {
	*testing.T
	client.Client
	namespace string
	platforms passwords
	issuers   openid.Connections
	catalog   *catalog.Catalog
	rooms     *fakeInventory
	reached   reached
	judged    *judged
	clock     *clocktesting.FakePassiveClock
	options   Options
	handler   *Market
	described *description
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	w := &world{T: t, namespace: hubtest.Namespace(t), platforms: passwords{"cf": "right", "korifi": "right"}, catalog: &catalog.Catalog{}, rooms: newFakeInventory(), reached: reached{}, judged: &judged{}, described: describe(t)}
	w.clock = clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))
	var err error
	w.Client, err = client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	must(t, err)
	keys, err := seal.Open(t.TempDir() + "/keyset.json")
	must(t, err)
	tokens := &access.Tokens{Hub: w.Client, Live: w.Client, Writer: w.Client, Namespace: w.namespace, Seal: keys, Platforms: w.platforms, Clock: w.clock}
	identitytest.Rotate(t, w.Client, w.namespace, keys, "", "1")
	for _, name := range []string{"acme", "rival"} {
		must(t, w.Create(t.Context(), &v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			Spec: v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: "did:web:" + name + ".example"}}}))
	}
	w.options = Options{Hub: w.Client, Live: w.Client, Namespace: w.namespace, Catalog: w.catalog, Inventory: w.rooms, Tokens: tokens, Platforms: w.platforms, Clock: w.clock, Login: func(_ context.Context, presentation string) (string, error) {
		if provider, ok := strings.CutPrefix(presentation, "presentation of "); ok {
			return provider, nil
		}
		return "", &Error{Status: http.StatusUnprocessableEntity, Code: "PresentationRefused", Description: "The presentation was refused."}
	}, Connect: w.reached.connect, Policies: w.judged, Manifest: func() ([]byte, error) { return []byte("kind: Namespace\n"), nil }, Moves: func(_ context.Context, cluster string, lost bool) ([]Move, int, error) {
		return []Move{{Instance: "si-0", To: []string{"beside-" + cluster}}, {Instance: "si-1", Why: fmt.Sprint("lost: ", lost)}}, 7, nil
	}}
	w.start()
	return w
}

// reached is the clusters that answer: their UIDs by server.
type reached map[string]string

// connect stands for the connection to a cluster, which TestProvidersSellByThemselves of cmd/sluice makes.
func (r reached) connect(_ context.Context, cluster *v1alpha1.MemberCluster, given Access) (string, error) {
	uid, there := r[given.Server]
	if !there {
		return "", &Error{Status: http.StatusUnprocessableEntity, Code: "ClusterRefused", Description: "server: does not answer."}
	}
	cluster.Spec.Access.SealedKubeconfig = []byte("sealed " + given.Token)
	return uid, nil
}

// start makes the handler anew, from the options.
func (w *world) start() {
	w.handler = New(w.options, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) }))
}

// as returns a token of a caller: operator, platform:NAME or provider:NAME.
func (w *world) as(caller string) string {
	w.Helper()
	role, name, _ := strings.Cut(caller, ":")
	token, err := w.options.Tokens.Issue(w.Context(), access.Caller{Role: access.Role(role), Name: name}, time.Hour)
	must(w.T, err)
	return token
}

// request is a request to the market; with is its token.
type request struct {
	method, path, with, body string
	header                   map[string]string
}

// send sends a request, checks that the answer is one that the description has, and so is the request if it is accepted,
// and decodes the answer.
func (w *world) send(q request, into any) *http.Response {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), q.method, q.path, strings.NewReader(q.body))
	if q.with != "" {
		r.Header.Set("Authorization", "Bearer "+q.with)
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	answer := recorder.Result()
	body, err := io.ReadAll(answer.Body)
	must(w.T, err)
	if why := w.described.judge(q.method, r.URL.Path, answer, body); why != "" {
		w.Errorf("%s %s is answered %d, %s: %s", q.method, q.path, answer.StatusCode, body, why)
	}
	if why := w.described.accepts(r, q.body); why != "" && answer.StatusCode < http.StatusBadRequest {
		w.Errorf("%s %s with %s is accepted: %s", q.method, q.path, q.body, why)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			w.Fatalf("%s %s is answered %d, %s: %v", q.method, q.path, answer.StatusCode, body, err)
		}
	}
	return answer
}

// refused sends a request that is to be refused with a status, and for a reason.
func (w *world) refused(q request, status int, why string) *http.Response {
	w.Helper()
	var got errorBody
	answer := w.send(q, &got)
	if answer.StatusCode != status || !strings.Contains(got.Description, why) {
		w.Errorf("%s %s is answered %d, %+v; want %d, %q", q.method, q.path, answer.StatusCode, got, status, why)
	}
	return answer
}

// parameter of an operation.
type parameter struct {
	Name string `json:"name"`
	In   string `json:"in"`
}

// description is the OpenAPI document. The schemas of OpenAPI 3.1 are JSON Schemas (OAS 3.1.0, 4.8.24), so the checker
// of the product's own schemas checks answers too.
type description struct {
	Paths map[string]map[string]struct {
		Security   []map[string][]string `json:"security"`
		Parameters []parameter           `json:"parameters"`
		Body       struct {
			Content map[string]struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"content"`
		} `json:"requestBody"`
		Responses map[string]struct {
			Content map[string]struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components json.RawMessage `json:"components"`
}

func describe(t *testing.T) *description {
	t.Helper()
	d := &description{}
	must(t, json.Unmarshal(openAPI, d))
	return d
}

// template returns the path of the description that a path is one of; "" if there is none.
func (d *description) template(path string) string {
	parts := strings.Split(path, "/")
	for template := range d.Paths {
		names := strings.Split(template, "/")
		if len(names) == len(parts) && !slices.ContainsFunc(names, func(n string) bool {
			i := slices.Index(names, n)
			return !strings.HasPrefix(n, "{") && n != parts[i]
		}) {
			return template
		}
	}
	return ""
}

// judge returns why an answer is none of those that are described, or "".
func (d *description) judge(method, path string, answer *http.Response, body []byte) string {
	template := d.template(path)
	if template == "" {
		return map[bool]string{false: "the path is not described"}[answer.StatusCode == http.StatusNotFound]
	}
	operation, there := d.Paths[template][strings.ToLower(method)]
	if !there {
		return map[bool]string{false: "the method is not described"}[answer.StatusCode == http.StatusMethodNotAllowed]
	}
	response, there := operation.Responses[fmt.Sprint(answer.StatusCode)]
	if !there {
		return "the status is not described"
	}
	if len(response.Content) == 0 {
		return map[bool]string{false: "a body is not described"}[len(body) == 0]
	}
	content, there := response.Content[answer.Header.Get("Content-Type")]
	if !there {
		return "the media type " + answer.Header.Get("Content-Type") + " is not described"
	}
	if answer.Header.Get("Content-Type") != "application/json" {
		return ""
	}
	return d.check(content.Schema, body)
}

// accepts returns why a request that was accepted is not as it is described, or "".
func (d *description) accepts(r *http.Request, body string) string {
	operation := d.Paths[d.template(r.URL.Path)][strings.ToLower(r.Method)]
	for name := range r.URL.Query() {
		if !slices.ContainsFunc(operation.Parameters, func(p parameter) bool { return p.In == "query" && p.Name == name }) {
			return "the parameter " + name + " is not described"
		}
	}
	if content, there := operation.Body.Content["application/json"]; there {
		return d.check(content.Schema, []byte(body))
	}
	return ""
}

// check returns why a body does not have a schema, or "".
func (d *description) check(schema json.RawMessage, body []byte) string {
	compiled, err := jsonschema.Compile(fmt.Appendf(nil, `{"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [%s], "components": %s}`, schema, d.Components))
	if err != nil {
		return err.Error()
	}
	value, err := jsonschema.Decode(body)
	if err != nil {
		return err.Error()
	}
	if violation := compiled.Validate(value); violation != nil {
		return violation.Path + ": " + violation.Message
	}
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
