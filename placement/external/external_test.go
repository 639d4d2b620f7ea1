package external

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/jsonschema"
	"github.com/sluice-dev/sluice/placement"
)

// scorerServer is a fake scorer outside Sluice.
func scorerServer(t *testing.T, answer http.HandlerFunc) *Scorer {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	scorer, err := NewScorer(Options{URL: server.URL, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return scorer
}

func scoredRequest(id string) placement.Request {
	return placement.Request{ID: id, Resources: placement.Resources{"cpu": 1000}, Weights: v1alpha1.ScoreWeights{Balance: 1, External: 9}}
}

func TestAnExternalClientSeesWhatFitsAndDecides(t *testing.T) {
	inventory := stockOf([]*placement.Cluster{
		{Name: "empty", Ready: true, AccessVerified: true, Allocatable: placement.Resources{"cpu": 8000}},
		{Name: "fuller", Ready: true, AccessVerified: true, Allocatable: placement.Resources{"cpu": 8000}, ForeignUse: placement.Resources{"cpu": 4000}},
		{Name: "full", Ready: true, AccessVerified: true, Allocatable: placement.Resources{"cpu": 500}},
	})
	var asked placement.ScorerQuestion
	scorer := scorerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(placement.ScorerAnswer{Scores: map[string]int32{"fuller": 400, "empty": -3}})
	})
	r := scoredRequest("si-a")
	var err error
	if r.External, err = scorer.Score(t.Context(), r, inventory.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if len(asked.Clusters) != 2 || asked.Clusters[0].Name != "empty" || asked.Clusters[1].Free["cpu"] != 4000 || asked.Request.Resources["cpu"] != 1000 {
		t.Errorf("asked about %+v", asked)
	}
	d, err := placement.Place(r, inventory.Snapshot())
	if err != nil || d.Placements[0].Cluster != "fuller" || d.Placements[0].Score > 100 {
		t.Errorf("decided %+v, %v", d.Placements, err)
	}
}

func TestAScorerThatFailsIsLeftAloneForAWhileAndCountsForNothing(t *testing.T) {
	inventory := stockOf([]*placement.Cluster{
		{Name: "empty", Ready: true, AccessVerified: true, Allocatable: placement.Resources{"cpu": 8000}},
		{Name: "fuller", Ready: true, AccessVerified: true, Allocatable: placement.Resources{"cpu": 8000}, ForeignUse: placement.Resources{"cpu": 4000}},
	})
	for name, answer := range map[string]http.HandlerFunc{
		"it answers with an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"it answers nonsense":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) },
		"it answers without scores": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{}"))
		},
		"it sends elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost/", http.StatusFound)
		},
		"it hangs": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // until then, nobody notices that the client has gone
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			scorer := scorerServer(t, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				answer(w, r)
			})
			r := scoredRequest("si-a")
			for range 20 {
				var err error
				if r.External, err = scorer.Score(t.Context(), r, inventory.Snapshot()); err == nil || r.External != nil {
					t.Fatalf("scores %v, error %v", r.External, err)
				}
			}
			if calls.Load() != 5 {
				t.Errorf("it was asked %d times, want 5", calls.Load())
			}
			d, err := placement.Place(r, inventory.Snapshot())
			if err != nil || d.Placements[0].Cluster != "empty" || d.Placements[0].Score != 87 {
				t.Errorf("decided %+v, %v", d.Placements, err)
			}
		})
	}
}

// The scorer authenticates Sluice by a token, which may be replaced while Sluice runs. Sluice
// authenticates the scorer by its certificate.
func TestAScorerAndSluiceKnowEachOther(t *testing.T) {
	var authorization atomic.Value
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization.Store(r.Header.Get("Authorization"))
		_ = json.NewEncoder(w).Encode(placement.ScorerAnswer{Scores: map[string]int32{}})
	}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	folder := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	token := write("token", "first\n")
	authority := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	ask := func(o Options) error {
		o.URL, o.Timeout = server.URL, 5*time.Second
		scorer, err := NewScorer(o)
		if err != nil {
			return err
		}
		if _, err := scorer.Score(t.Context(), scoredRequest("si-a"), placement.NewInventory().Snapshot()); err != nil {
			return err
		}
		write("token", "second")
		_, err = scorer.Score(t.Context(), scoredRequest("si-a"), placement.NewInventory().Snapshot())
		return err
	}
	if err := ask(Options{TokenFile: token, CAFile: authority}); err != nil {
		t.Fatal(err)
	}
	if got := authorization.Load(); got != "Bearer second" {
		t.Errorf("it is sent %q, want the token as it is now", got)
	}
	authorization.Store("")
	if err := ask(Options{TokenFile: token}); err == nil || authorization.Load() != "" {
		t.Errorf("a scorer whose certificate nobody has signed was sent %q: %v", authorization.Load(), err)
	}
}

func TestAScorerElsewhereIsReachedSafelyOrNotAtAll(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		options Options
		want    string // of the error; empty where it is taken
	}{
		"https with a token":         {Options{URL: "https://scorer.example/score", TokenFile: token}, ""},
		"http on the same machine":   {Options{URL: "http://127.0.0.1:8080/"}, ""},
		"http on localhost":          {Options{URL: "http://localhost:8080/"}, ""},
		"http on IPv6":               {Options{URL: "http://[::1]:8080/"}, ""},
		"http elsewhere":             {Options{URL: "http://scorer.example/", TokenFile: token}, "needs https"},
		"http on another address":    {Options{URL: "http://10.0.0.1/", TokenFile: token}, "needs https"},
		"https without a token":      {Options{URL: "https://scorer.example/"}, "needs a token file"},
		"a token that is not there":  {Options{URL: "https://scorer.example/", TokenFile: token + "-"}, "no such file"},
		"an authority without PEM":   {Options{URL: "https://scorer.example/", TokenFile: token, CAFile: token}, "contains no PEM certificate"},
		"credentials in the URL":     {Options{URL: "https://me:secret@scorer.example/", TokenFile: token}, "credentials"},
		"no URL":                     {Options{URL: "scorer.example"}, "want https://"},
		"another scheme":             {Options{URL: "ftp://scorer.example/", TokenFile: token}, "want https://"},
		"a name like localhost only": {Options{URL: "http://localhost.example/", TokenFile: token}, "needs https"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewScorer(row.options)
			if (err == nil) != (row.want == "") || err != nil && (!strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "me:secret")) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

// stockOf returns an inventory of the given clusters.
func stockOf(fleet []*placement.Cluster) *placement.Inventory {
	inventory := placement.NewInventory()
	for _, c := range fleet {
		inventory.UpsertCluster(c)
	}
	return inventory
}

// Each component is asked about, and goes where the scorer wants it. Questions and answers are as described.
func TestComponentsAreScoredOneByOne(t *testing.T) {
	inventory := stockOf([]*placement.Cluster{
		{Name: "a", Ready: true, AccessVerified: true, Labels: map[string]string{"zone": "1"}, Allocatable: placement.Resources{"cpu": 8000}},
		{Name: "b", Ready: true, AccessVerified: true, Provider: "acme", Region: "eu", Allocatable: placement.Resources{"cpu": 4000}},
	})
	described := schemas(t)
	scorer := scorerServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		described("Question", body)
		var asked placement.ScorerQuestion
		if err := json.Unmarshal(body, &asked); err != nil {
			t.Error(err)
		}
		wants := map[string]string{"web": "b", "worker": "a", "": "b"}
		answer, _ := json.Marshal(placement.ScorerAnswer{Scores: map[string]int32{wants[asked.Request.Component]: int32(asked.Request.Resources["cpu"] / 10)}})
		described("Scores", answer)
		_, _ = w.Write(answer)
	})
	for name, row := range map[string]struct {
		components []placement.Component
		want       string
	}{
		"components": {[]placement.Component{{Name: "web", Resources: placement.Resources{"cpu": 1000}}, {Name: "worker", Resources: placement.Resources{"cpu": 2000}}}, "a [worker] b [web] "},
		"a whole":    {nil, "b [] "},
	} {
		t.Run(name, func(t *testing.T) {
			r := scoredRequest("si-a")
			r.Weights, r.Components = v1alpha1.ScoreWeights{External: 1}, row.components
			var scores []map[string]int32
			for _, part := range r.Parts() {
				one, err := scorer.Score(t.Context(), part, inventory.Snapshot())
				if err != nil {
					t.Fatal(err)
				}
				scores = append(scores, one)
			}
			d, err := placement.Place(r.Scored(scores), inventory.Snapshot())
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(d.Placements, func(a, b placement.Placement) int { return strings.Compare(a.Cluster, b.Cluster) })
			got := ""
			for _, p := range d.Placements {
				got += fmt.Sprintf("%s %v ", p.Cluster, p.Components)
			}
			if got != row.want {
				t.Errorf("placed %s, want %s", got, row.want)
			}
			if r.External != nil || len(r.Components) > 0 && r.Components[0].External != nil {
				t.Error("the request that was asked about has changed")
			}
		})
	}
}

// schemas checks documents by the schemas of openapi.json.
func schemas(t *testing.T) func(name string, document []byte) {
	t.Helper()
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var described struct{ Components json.RawMessage }
	if err := json.Unmarshal(text, &described); err != nil {
		t.Fatal(err)
	}
	return func(name string, document []byte) {
		schema, err := jsonschema.Compile(fmt.Appendf(nil, `{"$ref": "#/components/schemas/%s", "components": %s}`, name, described.Components))
		if err != nil {
			t.Error(err)
			return
		}
		value, err := jsonschema.Decode(document)
		if err != nil {
			t.Error(err)
		} else if violation := schema.Validate(value); violation != nil {
			t.Errorf("%s is not described: %s: %s", document, violation.Path, violation.Message)
		}
	}
}
