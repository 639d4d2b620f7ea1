package placement

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// scorerServer is a fake scorer outside Sluice.
func scorerServer(t *testing.T, answer http.HandlerFunc) *ExternalScorer {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return NewExternalScorer(server.URL, 100*time.Millisecond)
}

func scoredRequest(id string) Request {
	return Request{ID: id, Resources: Resources{"cpu": 1000}, Weights: v1alpha1.ScoreWeights{Balance: 1, External: 9}}
}

func TestAnExternalScorerSeesWhatFitsAndDecides(t *testing.T) {
	inventory := stock([]*Cluster{
		{Name: "empty", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 8000}},
		{Name: "fuller", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 8000}, ForeignUse: Resources{"cpu": 4000}},
		{Name: "full", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 500}},
	})
	var asked ScorerQuestion
	scorer := scorerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(ScorerAnswer{Scores: map[string]int32{"fuller": 400, "empty": -3}})
	})
	r := scoredRequest("si-a")
	var err error
	if r.External, err = scorer.Score(t.Context(), r, inventory.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if len(asked.Clusters) != 2 || asked.Clusters[0].Name != "empty" || asked.Clusters[1].Free["cpu"] != 4000 || asked.Request.Resources["cpu"] != 1000 {
		t.Errorf("asked about %+v", asked)
	}
	d, err := Place(r, inventory.Snapshot())
	if err != nil || d.Placements[0].Cluster != "fuller" || d.Placements[0].Score > 100 {
		t.Errorf("decided %+v, %v", d.Placements, err)
	}
}

func TestAScorerThatFailsIsLeftAloneForAWhileAndCountsForNothing(t *testing.T) {
	inventory := stock([]*Cluster{
		{Name: "empty", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 8000}},
		{Name: "fuller", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 8000}, ForeignUse: Resources{"cpu": 4000}},
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
			if calls.Load() > 6 {
				t.Errorf("it was asked %d times", calls.Load())
			}
			d, err := Place(r, inventory.Snapshot())
			if err != nil || d.Placements[0].Cluster != "empty" || d.Placements[0].Score != 87 {
				t.Errorf("decided %+v, %v", d.Placements, err)
			}
		})
	}
}
