package answers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Error means that an answer is not one that an API server gives to such a request.
type Error struct {
	// Request is the method and path.
	Request string
	// Status is the status line of the answer.
	Status string
	// Why is the reason.
	Why string
}

func (e *Error) Error() string {
	return fmt.Sprintf("something other than the API server answered %s with %q: %s", e.Request, e.Status, e.Why)
}

// IsForeign reports whether err contains an *Error.
func IsForeign(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// Check makes every client built on config accept only answers of an API server. The pin is
// checked before any "not found" is accepted; it may be nil.
func Check(config *rest.Config, pin *Pin) {
	base := Base(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &Transport{base: base, next: next, pin: pin} })
}

// Base returns the prefix of an API server's paths: empty, or that of a proxy for several servers.
func Base(config *rest.Config) string {
	if server, err := url.Parse(config.Host); err == nil {
		return strings.TrimSuffix(server.Path, "/")
	}
	return ""
}

// Asked returns a request in the terms of the API server whose paths have the prefix.
func Asked(r *http.Request, base string) (*request.RequestInfo, error) {
	bare := &url.URL{Path: strings.TrimPrefix(r.URL.Path, base), RawQuery: r.URL.RawQuery}
	return requestInfos.NewRequestInfo(&http.Request{Method: r.Method, URL: bare})
}

// Transport passes on the answers of an API server, and returns *Error for any others.
type Transport struct {
	base string
	next http.RoundTripper
	pin  *Pin
}

var requestInfos = &request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// asked is a request in the terms of an API server.
type asked struct {
	*request.RequestInfo
	*http.Request
	path string // without the base
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	ask := asked{Request: r, path: strings.TrimPrefix(r.URL.Path, t.base)}
	ask.RequestInfo, err = Asked(r, t.base)
	if err == nil {
		err = t.check(ask, response)
	}
	if err == nil {
		return response, nil
	}
	_ = response.Body.Close()
	if why := (*doubt)(nil); errors.As(err, &why) {
		err = &Error{Request: r.Method + " " + r.URL.Path, Status: response.Status, Why: why.reason}
	}
	return nil, err
}

// WrappedRoundTripper lets client-go reach the transport below, to close its connections.
func (t *Transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// doubt is the reason why an answer is not accepted.
type doubt struct{ reason string }

func (d *doubt) Error() string { return d.reason }

func doubtful(format string, args ...any) error { return &doubt{fmt.Sprintf(format, args...)} }

// check returns *doubt for an answer that is not accepted. It may read the answer's body, and
// restores it.
func (t *Transport) check(ask asked, response *http.Response) error {
	switch code := response.StatusCode; {
	case code == http.StatusTooManyRequests, code >= 500, code == http.StatusSwitchingProtocols, code == http.StatusNotModified:
		return nil
	case code >= 300 && code < 400:
		return doubtful("API servers do not redirect")
	case isHealth(ask.path):
		return checkHealth(ask, response)
	case !ask.IsResourceRequest && !isDiscovery(ask.path), ask.isStream():
		return nil
	case code >= 400:
		return t.checkFailure(ask, response)
	case !ask.IsResourceRequest:
		return checkDiscovery(response)
	case ask.Verb == "watch":
		return nil // the watch decodes its events one by one, and ends at the first invalid one
	default:
		return checkObject(ask, response)
	}
}

// isStream reports whether the answer's bytes come from a container or a Service, not from the
// API server.
func (ask asked) isStream() bool {
	switch ask.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}

func isDiscovery(path string) bool {
	return path == "/api" || path == "/apis" || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/apis/")
}

func isHealth(path string) bool { return path == "/readyz" || path == "/livez" || path == "/healthz" }

// checkHealth accepts a health answer only in the form that API servers give it.
func checkHealth(ask asked, response *http.Response) error {
	if response.StatusCode >= 400 || ask.URL.Query().Has("verbose") {
		return nil
	}
	body, err := peek(response)
	if err == nil && strings.TrimSpace(string(body)) != "ok" {
		err = doubtful(`want "ok", got %s`, excerpt(body))
	}
	return err
}

// mostOfAnError is the most bytes that are read of an error, health or discovery answer.
const mostOfAnError = 16 << 20

// peek reads the body of an answer, and restores it.
func peek(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, mostOfAnError))
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// excerpt returns the beginning of a body, with printable characters only.
func excerpt(body []byte) string {
	const shown = 80
	if len(body) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%q", strings.TrimSpace(string(body[:min(len(body), shown)])))
}
