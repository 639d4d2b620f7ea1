//go:build faults

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
)

// platform is an OSB client that does as platforms do: a request whose connection
// breaks, or that the broker is not ready for, is sent again, the very same.
type platform struct{ url string }

// answer is a response with its decoded body.
type answer struct {
	status int
	body   map[string]any
}

func (a answer) String() string {
	shown := map[string]any{}
	for name, value := range a.body {
		if name != "credentials" {
			shown[name] = value
		}
	}
	return fmt.Sprintf("%d %v", a.status, shown)
}

func (a answer) text(field string) string {
	value, _ := a.body[field].(string)
	return value
}

// send sends one request until it is answered, and fails unless the status is one
// of those wanted.
func (p platform) send(ctx context.Context, method, path string, query url.Values, body any, want ...int) (answer, error) {
	var a answer
	err := until(ctx, func(ctx context.Context) (err error) {
		a, err = p.try(ctx, method, path, query, body)
		return err
	})
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if !slices.Contains(want, a.status) {
		return a, fmt.Errorf("%s %s: %v, want status %v", method, path, a, want)
	}
	return a, nil
}

// try sends one request once. An error says that the platform does not know what
// became of it.
func (p platform) try(ctx context.Context, method, path string, query url.Values, body any) (answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.url+path+"?"+query.Encode(), bytes.NewReader(data))
	if err != nil {
		return answer{}, err
	}
	request.SetBasicAuth(platformName, platformPassword)
	request.Header.Set("X-Broker-API-Version", "2.17")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, body: map[string]any{}}
	if err := json.Unmarshal(text, &a.body); err != nil {
		return a, fmt.Errorf("status %d with a body that is not JSON: %q", a.status, text)
	}
	if a.status == http.StatusServiceUnavailable {
		return a, fmt.Errorf("%v", a)
	}
	return a, nil
}

// await polls an operation until it has ended, and returns its last answer: 410
// once a deletion is done.
func (p platform) await(ctx context.Context, path, operation string) (answer, error) {
	var a answer
	err := until(ctx, func(ctx context.Context) (err error) {
		a, err = p.send(ctx, http.MethodGet, path+"/last_operation", url.Values{"operation": {operation}}, nil, http.StatusOK, http.StatusGone)
		if err == nil && a.text("state") == "in progress" {
			err = fmt.Errorf("%s %s goes on: %s", path, operation, a.text("description"))
		}
		return err
	})
	return a, err
}

// succeed sends a request that starts an operation, or is answered at once, and
// awaits its success.
func (p platform) succeed(ctx context.Context, method, path string, query url.Values, body any) error {
	a, err := p.send(ctx, method, path, query, body, http.StatusOK, http.StatusCreated, http.StatusAccepted)
	if err != nil || a.status != http.StatusAccepted {
		return err
	}
	operation := a.text("operation")
	if a, err = p.await(ctx, path, operation); err != nil {
		return err
	}
	if a.text("state") != "succeeded" {
		return fmt.Errorf("%s of %s: %v, want it to succeed", operation, path, a)
	}
	return nil
}

// fail sends a request that starts an operation and awaits its failure.
func (p platform) fail(ctx context.Context, method, path string, query url.Values, body any) (answer, error) {
	a, err := p.send(ctx, method, path, query, body, http.StatusAccepted)
	if err != nil {
		return a, err
	}
	operation := a.text("operation")
	if a, err = p.await(ctx, path, operation); err == nil && a.text("state") != "failed" {
		err = fmt.Errorf("%s of %s: %v, want it to fail", operation, path, a)
	}
	return a, err
}

// remove sends a deletion and awaits its end.
func (p platform) remove(ctx context.Context, path string, query url.Values) error {
	a, err := p.send(ctx, http.MethodDelete, path, query, nil, http.StatusOK, http.StatusAccepted, http.StatusGone)
	if err != nil || a.status != http.StatusAccepted {
		return err
	}
	operation := a.text("operation")
	if a, err = p.await(ctx, path, operation); err != nil {
		return err
	}
	if a.status != http.StatusGone {
		return fmt.Errorf("%s of %s: %v, want 410", operation, path, a)
	}
	return nil
}
