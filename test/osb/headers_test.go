package osb

import (
	"encoding/base64"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	originatingIdentity = "X-Broker-API-Originating-Identity"
	requestIdentity     = "X-Broker-API-Request-Identity"
)

func identity(platform, value string) http.Header {
	return http.Header{http.CanonicalHeaderKey(originatingIdentity): {platform + " " + base64.StdEncoding.EncodeToString([]byte(value))}}
}

var _ = Describe("Originating identity", func() {
	clause("H2", "an identity of the context's platform is accepted", func(ctx SpecContext) {
		i := newInstance()
		answer := i.do(ctx, request{
			method: http.MethodPut, path: i.path(), query: async(), body: i.body(),
			header: identity("cloudfoundry", `{"user_id":"683ea748","extra":{"scopes":["a"]}}`),
		})
		answer.mustBe(http.StatusCreated, http.StatusAccepted)
		i.mustSucceed(ctx, answer)
	})

	malformed := map[string]http.Header{
		"no value":            {http.CanonicalHeaderKey(originatingIdentity): {"cloudfoundry"}},
		"no platform":         {http.CanonicalHeaderKey(originatingIdentity): {"eyJ1c2VyX2lkIjoiMSJ9"}},
		"three parts":         {http.CanonicalHeaderKey(originatingIdentity): {"cloudfoundry eyJ1c2VyX2lkIjoiMSJ9 more"}},
		"value not Base64":    {http.CanonicalHeaderKey(originatingIdentity): {"cloudfoundry {user_id:1}"}},
		"value not JSON":      identity("cloudfoundry", "user 1"),
		"value a JSON string": identity("cloudfoundry", `"user-1"`),
		"value a JSON array":  identity("cloudfoundry", `["user-1"]`),
		"value the JSON null": identity("cloudfoundry", `null`),
		"trailing garbage":    identity("cloudfoundry", `{"user_id":"1"} {"user_id":"2"}`),
	}
	clauses("H2", "a malformed identity is refused and changes nothing", malformed, func(ctx SpecContext, header http.Header) {
		beyondTheSpec("a broker MAY ignore the header")
		i := newInstance()
		i.do(ctx, request{method: http.MethodPut, path: i.path(), query: async(), body: i.body(), header: header}).
			mustRefuse("", http.StatusBadRequest)
		i.mustNotExist(ctx)
	})

	clause("H2", "an identity of another platform than the context's is refused", func(ctx SpecContext) {
		beyondTheSpec("the platform MUST send the same; a broker MAY ignore that it did not")
		i := newInstance()
		i.do(ctx, request{
			method: http.MethodPut, path: i.path(), query: async(), body: i.body(), header: identity("kubernetes", `{"username":"duke"}`),
		}).mustRefuse("", http.StatusBadRequest)
		i.mustNotExist(ctx)
	})
})

var _ = Describe("Request identity", func() {
	i := &instance{id: "osb-conformance-absent"}
	stranger := func(p platform) platform { p.username, p.password, p.token = "nobody", "nothing", ""; return p }
	type call struct {
		request request
		as      func(platform) platform
		status  int
	}
	asItself := func(p platform) platform { return p }
	entries := map[string]call{
		"200":                {request{method: http.MethodGet, path: []string{"catalog"}}, asItself, http.StatusOK},
		"400":                {request{method: http.MethodPut, path: i.path(), query: async(), body: []byte("{")}, asItself, http.StatusBadRequest},
		"401":                {request{method: http.MethodGet, path: []string{"catalog"}}, stranger, http.StatusUnauthorized},
		"404, no instance":   {request{method: http.MethodGet, path: i.path()}, asItself, http.StatusNotFound},
		"404, no such route": {request{method: http.MethodGet, path: []string{"no-such-route"}}, asItself, http.StatusNotFound},
		"405":                {request{method: http.MethodPost, path: []string{"catalog"}}, asItself, http.StatusMethodNotAllowed},
		"410":                {request{method: http.MethodDelete, path: i.path()}, asItself, http.StatusGone},
		"412":                {request{method: http.MethodGet, path: []string{"catalog"}}, func(p platform) platform { return p.at("1.0") }, http.StatusPreconditionFailed},
	}
	clauses("H3", "the response carries the request's identity", entries, func(ctx SpecContext, c call) {
		beyondTheSpec("a broker SHOULD return the header")
		const id = "e26cee84-6b38-4456-b34e-d1a9f002c956"
		c.request.header = http.Header{http.CanonicalHeaderKey(requestIdentity): {id}}
		if c.status == http.StatusGone {
			absent := newInstance()
			c.request.path, c.request.query = absent.path(), absent.deletion()
		}
		answer := c.as(target.platform).do(ctx, c.request)
		answer.mustBe(c.status)
		Expect(answer.header).To(HaveKeyWithValue(http.CanonicalHeaderKey(requestIdentity), []string{id}), answer.String)
	})
})

var _ = Describe("Authentication", func() {
	strangers := map[string]func(platform) platform{
		"no credentials":               func(p platform) platform { return platform{version: p.version} },
		"a wrong password":             withSecret(func(secret string) string { return secret + "x" }),
		"half of the password":         withSecret(func(secret string) string { return secret[:len(secret)/2] }),
		"an empty password":            withSecret(func(string) string { return "" }),
		"a wrong user":                 func(p platform) platform { p.username += "x"; return p },
		"a bearer token nobody issued": func(p platform) platform { return platform{token: "nobody-issued-this", version: p.version} },
		"the password as bearer token": func(p platform) platform { return platform{token: p.password, version: p.version} },
	}
	needAuthentication := func() {
		need(target.platform.username != "" || target.platform.token != "", "a broker with authentication: OSB_USERNAME or OSB_TOKEN")
	}
	clauses("H4", "a request that cannot be authenticated is refused with 401 and a challenge", strangers,
		func(ctx SpecContext, as func(platform) platform) {
			needAuthentication()
			answer := as(target.platform).catalog(ctx)
			answer.mustRefuse("", http.StatusUnauthorized)
			Expect(answer.header.Get("WWW-Authenticate")).To(MatchRegexp(`^(Basic|Bearer)`), answer.String)
		})

	clause("H4", "every route authenticates, and a request that fails changes nothing", func(ctx SpecContext) {
		needAuthentication()
		stranger := strangers["a wrong password"](target.platform)
		i := provisionedInstance(ctx)
		b, _ := i.bind(ctx)
		for name, r := range everyRoute() {
			By(name)
			stranger.do(ctx, r).mustRefuse("", http.StatusUnauthorized)
		}
		stranger.do(ctx, request{method: http.MethodDelete, path: b.path(), query: b.deletion()}).mustRefuse("", http.StatusUnauthorized)
		stranger.do(ctx, request{method: http.MethodDelete, path: i.path(), query: i.deletion()}).mustRefuse("", http.StatusUnauthorized)
		b.put(ctx).mustBe(http.StatusOK)
		absent := newInstance()
		stranger.do(ctx, request{method: http.MethodPut, path: absent.path(), query: async(), body: absent.body()}).mustRefuse("", http.StatusUnauthorized)
		absent.mustNotExist(ctx)
	})

	clause("H4", "a second password of the same platform is accepted, so that passwords can be changed without a gap", func(ctx SpecContext) {
		need(target.previousPassword != "", "a second valid password: OSB_PREVIOUS_PASSWORD")
		other := target.platform
		other.password = target.previousPassword
		other.catalog(ctx).mustBe(http.StatusOK)
	})

	clause("H4", "a bearer token is accepted and names the same platform", func(ctx SpecContext) {
		need(target.token != "" && target.platform.username != "", "both OSB_TOKEN and OSB_USERNAME")
		i := provisionedInstance(ctx)
		bearer := platform{token: target.token, version: newest}
		bearer.do(ctx, request{method: http.MethodPut, path: i.path(), query: async(), body: i.body()}).mustBe(http.StatusOK)
	})
})

// withSecret changes what proves that the platform is who it says it is.
func withSecret(change func(string) string) func(platform) platform {
	return func(p platform) platform {
		if p.token != "" {
			p.token = change(p.token)
		} else {
			p.password = change(p.password)
		}
		return p
	}
}
