//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// broker is the OSB client of these tests: plain HTTP, as a platform sends it.
type broker struct {
	url, username, password string
}

// answer is a response with its decoded body.
type answer struct {
	status int
	body   map[string]any
}

func (a answer) String() string { return fmt.Sprintf("%d %v", a.status, a.body) }

// do sends one request. A platform repeats a request whose connection broke;
// OSB makes every request safe to repeat.
func (b broker) do(ctx context.Context, method, path string, query url.Values, body any) (answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	for attempt := 0; ; attempt++ {
		request, err := http.NewRequestWithContext(ctx, method, b.url+path+"?"+query.Encode(), bytes.NewReader(data))
		if err != nil {
			return answer{}, err
		}
		request.SetBasicAuth(b.username, b.password)
		request.Header.Set("X-Broker-API-Version", "2.17")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			if attempt == 20 || ctx.Err() != nil {
				return answer{}, err
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return answer{}, err
		}
		a := answer{status: response.StatusCode, body: map[string]any{}}
		if err := json.Unmarshal(text, &a.body); err != nil {
			return a, fmt.Errorf("%s %s: %d with a body that is not JSON: %s", method, path, response.StatusCode, text)
		}
		return a, nil
	}
}

// must sends one request and fails the test unless the status is one of those wanted.
func (b broker) must(t *testing.T, method, path string, query url.Values, body any, want ...int) answer {
	t.Helper()
	a, err := b.do(t.Context(), method, path, query, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	for _, status := range want {
		if a.status == status {
			return a
		}
	}
	t.Fatalf("%s %s: %v, want status %v", method, path, a, want)
	return a
}

// plan names the service and the plan in the requests of an instance.
type plan struct{ service, id string }

func (p plan) query() url.Values {
	return url.Values{"service_id": {p.service}, "plan_id": {p.id}, "accepts_incomplete": {"true"}}
}

// findPlan looks a plan up in the catalog, by the names that users see.
func (b broker) findPlan(t *testing.T, service, name string) plan {
	t.Helper()
	catalog := b.must(t, "GET", "/v2/catalog", nil, nil, http.StatusOK)
	for _, s := range catalog.body["services"].([]any) {
		s := s.(map[string]any)
		for _, p := range s["plans"].([]any) {
			p := p.(map[string]any)
			if s["name"] == service && p["name"] == name {
				return plan{s["id"].(string), p["id"].(string)}
			}
		}
	}
	t.Fatalf("no plan %s of %s in the catalog", name, service)
	return plan{}
}

// provision orders an instance and waits until it is delivered.
func (b broker) provision(t *testing.T, id string, p plan, parameters map[string]any) {
	t.Helper()
	b.must(t, "PUT", "/v2/service_instances/"+id, url.Values{"accepts_incomplete": {"true"}}, map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space", "parameters": parameters,
	}, http.StatusAccepted)
	b.await(t, id, "provision "+id)
}

// await polls last_operation until it says succeeded, or 410 after a deprovision.
func (b broker) await(t *testing.T, id, what string) {
	t.Helper()
	eventually(t, 5*time.Minute, what, func(ctx context.Context) string {
		a, err := b.do(ctx, "GET", "/v2/service_instances/"+id+"/last_operation", nil, nil)
		switch {
		case err != nil:
			return err.Error()
		case a.status == http.StatusGone || a.status == http.StatusNotFound || a.body["state"] == "succeeded":
			return ""
		case a.body["state"] == "failed":
			t.Fatalf("%s failed: %v", what, a.body["description"])
		}
		return a.String()
	})
}

// deprovision removes an instance and waits until nothing is left of it.
func (b broker) deprovision(t *testing.T, id string, p plan) {
	t.Helper()
	b.must(t, "DELETE", "/v2/service_instances/"+id, p.query(), nil, http.StatusAccepted)
	b.await(t, id, "deprovision "+id)
}
