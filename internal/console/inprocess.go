package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/sluice-dev/sluice/internal/osbclient"
)

// osb returns a client of this broker's own OSB API, in the name of the platform that has logged in. What it may do is
// decided there, for the token of its session.
func (s *server) osb(c *call) (*osbclient.Client, error) {
	return osbclient.New(osbclient.Config{
		URL: "http://" + inProcessHost, Credentials: osbclient.Credentials{Token: c.token},
		Wrap: func(http.RoundTripper) http.RoundTripper { return inProcess{s.OSB, c.RemoteAddr} },
	})
}

// inProcessHost stands for this process in URLs; nothing resolves it.
const inProcessHost = "sluice.invalid"

// inProcess hands requests to a handler, without a connection.
type inProcess struct {
	http.Handler
	// from is the address of the browser, which is limited as any caller is.
	from string
}

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	sent.RequestURI, sent.RemoteAddr = r.URL.RequestURI(), p.from
	if sent.Body == nil {
		sent.Body = http.NoBody
	}
	got := &received{header: http.Header{}}
	p.ServeHTTP(got, sent)
	if got.status == 0 {
		got.status = http.StatusOK
	}
	return &http.Response{
		StatusCode: got.status, Status: http.StatusText(got.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: got.header, Body: io.NopCloser(&got.body), ContentLength: int64(got.body.Len()), Request: r,
	}, nil
}

// ask sends a request to a handler of this process, in the name of who has logged in. The answer's body is in memory.
func (c *call) ask(handler http.Handler, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(c.Context(), method, "http://"+inProcessHost+path, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, header)
	r.Header.Set("Authorization", "Bearer "+c.token)
	return inProcess{handler, c.RemoteAddr}.RoundTrip(r)
}

// market sends a request to this broker's own market, in the name of who has logged in, and reads the
// answer. What it may do is decided there, for the token of its session; refused is what the market says against it.
func (s *server) market(c *call, method, path string, body, into any) (refused string, err error) {
	match := ""
	if method == http.MethodPatch {
		match = "*" // what is decided here does not depend on what was before
	}
	return s.marketIf(c, match, method, path, body, into)
}

// marketIf is market for a change of what has the ETag match; "" sends none.
func (s *server) marketIf(c *call, match, method, path string, body, into any) (refused string, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	header := http.Header{}
	if match != "" {
		header.Set("If-Match", match)
	}
	response, err := c.ask(s.Market, method, "/market/v1/"+path, bytes.NewReader(raw), header)
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return "", err
	case response.StatusCode >= http.StatusInternalServerError:
		return "", fmt.Errorf("%s %s is answered %d: %s", method, path, response.StatusCode, answer)
	case response.StatusCode >= http.StatusBadRequest:
		var said struct{ Description string }
		if err := json.Unmarshal(answer, &said); err != nil || said.Description == "" {
			return http.StatusText(response.StatusCode), nil
		}
		return said.Description, nil
	case into != nil:
		err = json.Unmarshal(answer, into)
	}
	return "", err
}

// received is an answer.
type received struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *received) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *received) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *received) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// refusal returns what the OSB API says against a request, and false if the error is none of the caller's making.
func refusal(err error) (text string, ok bool) {
	answer := (*osbclient.Error)(nil)
	if !errors.As(err, &answer) || answer.Status < http.StatusBadRequest || answer.Status >= http.StatusInternalServerError {
		return "", false
	}
	text = answer.Description
	if text == "" {
		text = http.StatusText(answer.Status)
	}
	return strings.TrimSpace(text), true
}
