package osbclient

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// TestDashboards: a dashboard_url is used if browsers can only take it for a page of the host that it names.
func TestDashboards(t *testing.T) {
	const https, http = "https", "http" // of the broker
	for _, row := range []struct {
		broker, raw string
		url, reason string
	}{
		{https, ``, "", ""},
		{https, `null`, "", ""},
		{https, `""`, "", ""},
		{https, `"https://a.example/i?x=%20#y"`, "https://a.example/i?x=%20#y", ""},
		{https, `"HTTPS://[2001:db8::1]:8443"`, "HTTPS://[2001:db8::1]:8443", ""},
		{http, `"http://a.example/"`, "http://a.example/", ""},
		{https, `"http://a.example/"`, "", "https://"},
		{http, `"javascript:alert(1)"`, "", "https://"},
		{http, `"//a.example/"`, "", "https://"},
		{https, `"/i"`, "", "https://"},
		{https, `"data:text/html,x"`, "", "https://"},
		{https, `"https:a.example"`, "", "no host"},
		{https, `"https:///i"`, "", "no host"},
		{https, `"https://:443/i"`, "", "no host"},
		{https, `"https://a.example:port/"`, "", "no URL"},
		{https, `"https://a.example/%zz"`, "", "no URL"},
		{https, `"https://a@b.example/"`, "", "a user"},
		{https, `"https://a.example\\@b.example/"`, "", "characters"},
		{https, `"https://a.example/ "`, "", "characters"},
		{https, `"\thttps://a.example/"`, "", "characters"},
		{https, `"https://a.example/\u0000"`, "", "characters"},
		{https, `"https://a.example/\u202e"`, "", "characters"},
		{https, `"https://\u0430.example/"`, "", "characters"},
		{https, `"https://a.example/<script>"`, "", "characters"},
		{https, `"https://a.example/` + strings.Repeat("x", 2031) + `"`, "", "2048"},
		{https, `17`, "", "no string"},
		{https, `{"url": "https://a.example/"}`, "", "no string"},
	} {
		c := &Client{base: &url.URL{Scheme: row.broker, Host: "broker.example"}}
		got := c.dashboard(json.RawMessage(row.raw))
		switch {
		case row.url == "" && row.reason == "":
			if got != nil {
				t.Errorf("%s: %+v, want nothing", row.raw, got)
			}
		case got == nil, got.URL != row.url, (got.Ignored == "") != (row.reason == ""), !strings.Contains(got.Ignored, row.reason):
			t.Errorf("%.60s: %+v, want %q, or because of %q", row.raw, got, row.url, row.reason)
		}
	}
}
