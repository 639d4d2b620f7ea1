package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestForecast: a policy that looks ahead says what comes of the orders that a forecaster expects, and why it makes no
// cluster for them.
func TestForecast(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	forecaster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer forecasts" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		asked.Add(1)
		fmt.Fprint(w, "at,service,plan,count\n10m,compute,small,2\n2h,compute,small,5\n10m,compute,tiny,1\n")
	}))
	t.Cleanup(forecaster.Close)
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	s := serveAnother(t, "forecast", "--forecast-url", forecaster.URL, "--forecast-token-file", write("token", "forecasts\n"))
	s.offers(write("compute.yaml", compute), "compute-small")
	s.must("catalog", "apply", "-f", "../../docs/examples/clusters.yaml")
	policy, err := os.ReadFile("../../docs/examples/elastic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.must("policy", "apply", "-f", write("elastic.yaml", strings.Replace(string(policy), "    atMost: 3\n", "    atMost: 3\n    aheadSeconds: 1800\n", 1)))
	const want = `orders expected within 30m0s: 2; 0 fit, clusters are made for 2, 0 fit nowhere; no management cluster accepts it: `
	s.until("the policy says what is expected", func(context.Context) error {
		out, err := s.sluice("policy", "list", "-o", "wide")
		if err == nil && !(strings.Contains(out, want) && strings.Contains(out, `; order-4 is not expected: no service "compute" has a plan "tiny"`)) {
			err = errors.New(out)
		}
		return err
	})
	if n := asked.Load(); n != 1 {
		t.Errorf("the forecaster was asked %d times", n)
	}
}
