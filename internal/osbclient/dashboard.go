package osbclient

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// maxDashboard is the longest dashboard_url that is used, in bytes.
const maxDashboard = 2048

// withDashboard reads the answer to an order or a change. A dashboard_url that cannot be used is no error.
func (c *Client) withDashboard(got *answer, what string) (Accepted, error) {
	accepted, err := got.accepted(what)
	if err != nil {
		return Accepted{}, err
	}
	var said struct {
		DashboardURL json.RawMessage `json:"dashboard_url"`
	}
	if err := got.read(what, &said); err != nil {
		return Accepted{}, err
	}
	accepted.Dashboard = c.dashboard(said.DashboardURL)
	return accepted, nil
}

// dashboard checks a dashboard_url: an absolute URL (RFC 3986) with a host, with https or, if the broker itself is
// reached by http, with http; nil if there is none. Its text is not repeated in the reason.
func (c *Client) dashboard(raw json.RawMessage) *v1alpha1.UpstreamDashboard {
	if len(raw) == 0 || string(raw) == "null" || string(raw) == `""` {
		return nil
	}
	ignored := func(format string, args ...any) *v1alpha1.UpstreamDashboard {
		return &v1alpha1.UpstreamDashboard{Ignored: fmt.Sprintf(format, args...)}
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ignored("it is no string")
	}
	if len(text) > maxDashboard {
		return ignored("it is %d bytes long, and at most %d are allowed", len(text), maxDashboard)
	}
	if strings.ContainsFunc(text, isOutsideURLs) {
		return ignored("it has characters that a URL cannot have (RFC 3986)")
	}
	at, err := url.Parse(text)
	switch {
	case err != nil:
		return ignored("it is no URL")
	case at.Scheme != "https" && (at.Scheme != "http" || c.base.Scheme != "http"):
		return ignored("it does not begin with https://")
	case at.Hostname() == "":
		return ignored("it names no host")
	case at.User != nil:
		return ignored("it has a user")
	}
	return &v1alpha1.UpstreamDashboard{URL: text}
}

// isOutsideURLs reports whether a character is neither reserved nor unreserved, nor %, in RFC 3986.
func isOutsideURLs(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", r)
}
