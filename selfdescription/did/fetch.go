package did

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// Fetch reads at most max bytes from an https URL of an untrusted party. The function hosts
// must allow the host, in lower case and without port; it is called before any lookup; nil
// allows none. The client should come from guarded.NewClient. Redirects are refused whatever
// the client's setting is.
//
// It blocks for at most the client's timeout. The error is an *InvalidError for a URL that is
// not allowed, an address that is not public, and 410. All other errors are *UnreachableError.
// That includes 404, redirects, and answers that are compressed or too long, which a proxy may
// send while the host is down.
func Fetch(ctx context.Context, client *http.Client, hosts func(host string) bool, rawURL string, max int64) ([]byte, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return fetch(ctx, client, hosts, u, max)
}

// Check returns the error with which Fetch refuses a URL without asking its host; nil if it asks.
func Check(hosts func(host string) bool, rawURL string) error {
	u, err := parseURL(rawURL)
	if err != nil {
		return err
	}
	return checkAsked(hosts, u)
}

func parseURL(rawURL string) (*url.URL, error) {
	if len(rawURL) > 2048 {
		return nil, invalid(clip(rawURL), "longer than 2048 bytes")
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, invalid(clip(rawURL), "not a URL")
	}
	return u, nil
}

func checkAsked(hosts func(host string) bool, u *url.URL) error {
	id := clip(u.Redacted())
	if err := checkURL(u); err != nil {
		return &InvalidError{ID: id, Err: err}
	}
	if host := strings.ToLower(u.Hostname()); hosts == nil || !hosts(host) {
		return invalid(id, "host %s is not among those that may be asked", host)
	}
	return nil
}

func fetch(ctx context.Context, client *http.Client, hosts func(host string) bool, u *url.URL, max int64) ([]byte, error) {
	id := clip(u.Redacted())
	if err := checkAsked(hosts, u); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &InvalidError{ID: id, Err: err}
	}
	request.Header.Set("User-Agent", "sluice")
	asking := *client
	asking.CheckRedirect = guarded.RefuseRedirect
	asking.Jar = nil
	response, err := asking.Do(request)
	if err != nil {
		return nil, fetchError(id, err)
	}
	defer func() { _ = response.Body.Close() }() // it was read, or is not needed
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusGone:
		return nil, invalid(id, "the host says that there is none (%d)", response.StatusCode)
	default:
		return nil, &UnreachableError{ID: id, Err: fmt.Errorf("the host answers with status %d", response.StatusCode)}
	}
	if response.Header.Get("Content-Encoding") != "" {
		return nil, &UnreachableError{ID: id, Err: errors.New("the answer is compressed, which was not asked for")}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, max+1))
	if err != nil {
		return nil, &UnreachableError{ID: id, Err: fmt.Errorf("read the answer: %w", err)}
	}
	if int64(len(body)) > max {
		return nil, &UnreachableError{ID: id, Err: fmt.Errorf("the answer is longer than %d bytes", max)}
	}
	return body, nil
}

// fetchError classifies the errors of a client.
func fetchError(id string, err error) error {
	var ofURL *url.Error // repeats method and URL
	if errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	var address *guarded.AddressError
	switch {
	case errors.As(err, &address):
		return &InvalidError{ID: id, Err: address}
	case errors.Is(err, guarded.ErrRedirect):
		err = guarded.ErrRedirect
	}
	return &UnreachableError{ID: id, Err: err}
}
