package market

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
)

// exchanging returns the request that exchanges a token, with these changes of its form; "" removes a parameter.
func exchanging(token string, changes ...string) request {
	form := url.Values{"grant_type": {grantExchange}, "subject_token": {token}, "subject_token_type": {typeIDToken}}
	for i := 0; i < len(changes); i += 2 {
		if form.Set(changes[i], changes[i+1]); changes[i+1] == "" {
			form.Del(changes[i])
		}
	}
	return request{method: "POST", path: "/market/v1/tokens", header: map[string]string{"Content-Type": mediaForm}, body: form.Encode()}
}

var exchangers = []openid.ListedCaller{
	{Is: "operator", Claims: map[string]string{"groups": "operators"}},
	{Is: "provider:acme", Claims: map[string]string{"groups": "sales"}},
	{Is: "platform:cf", Claims: map[string]string{"sub": "ci"}},
	{Is: "provider:nobody", Claims: map[string]string{"sub": "nobody"}},
}

// TestATokenOfAnIssuerIsExchanged for one of the market, which ends with the entry that names its caller, and as the
// caller's other tokens do.
func TestATokenOfAnIssuerIsExchanged(t *testing.T) {
	w, issuer := newWorld(t), openidtest.Start(t)
	w.trust(issuer.Listed(exchangers...))
	both := issuer.Token(map[string]any{"groups": []string{"sales", "operators"}})
	for _, row := range []struct {
		token, scope, want string
		revoke             bool
	}{
		{issuer.Token(map[string]any{"sub": "ci"}), "", "platform:cf", false},
		{both, "", "operator", false},
		{both, "operator", "operator", true},
		{both, "provider:acme", "provider:acme", false},
		{both, "provider:acme", "provider:acme", true},
	} {
		w.trust(issuer.Listed(exchangers...))
		var got exchangedBody
		answer := w.send(exchanging(row.token, "scope", row.scope), &got)
		if answer.StatusCode != http.StatusOK || answer.Header.Get("Cache-Control") != "no-store" ||
			got.Scope != row.want || got.TokenType != "Bearer" || got.ExpiresIn != 3600 || got.IssuedTokenType != typeAccessToken {
			t.Fatalf("%q of %s: got %d, %+v", row.scope, row.want, answer.StatusCode, got)
		}
		asked := request{method: "GET", path: "/market/v1/caller", with: got.AccessToken}
		var caller callerBody
		role, name, _ := strings.Cut(row.want, ":")
		if w.send(asked, &caller); caller != (callerBody{access.Role(role), name}) {
			t.Errorf("%s: it is %+v's", row.want, caller)
		}
		if row.revoke {
			must(t, w.options.Tokens.Revoke(t.Context(), w.Client, access.Caller{Role: access.Role(role), Name: name}))
			w.refused(asked, http.StatusUnauthorized, "revoked")
			continue
		}
		w.trust(issuer.Listed(openid.ListedCaller{Is: row.want, Claims: map[string]string{"sub": "another"}}))
		w.refused(asked, http.StatusUnauthorized, "not in the platforms file any more")
	}
}

// TestExchangesAreRefused as RFC 6749 and RFC 8693 say it.
func TestExchangesAreRefused(t *testing.T) {
	w, issuer := newWorld(t), openidtest.Start(t)
	w.trust(issuer.Listed(exchangers...))
	right := issuer.Token(map[string]any{"sub": "ci"})
	twice := exchanging(right)
	twice.body += "&subject_token=" + right
	for _, row := range []struct {
		request
		code, why string
	}{
		{exchanging(right, "grant_type", "password"), oauthGrant, "grant_type: want one of"},
		{exchanging(right, "subject_token_type", ""), oauthInvalid, "subject_token_type: want one of"},
		{exchanging(right, "subject_token_type", "urn:ietf:params:oauth:token-type:saml2"), oauthInvalid, "subject_token_type: want one of"},
		{exchanging(right, "requested_token_type", typeIDToken), oauthInvalid, "requested_token_type: want one of"},
		{exchanging(right, "actor_token", right), oauthInvalid, "actor_token: leave it out"},
		{exchanging(right, "audience", "sluice"), oauthTarget, "audience: leave it out"},
		{exchanging(right, "resource", "https://sluice.example"), oauthTarget, "resource: leave it out"},
		{exchanging(right, "scope", "operator"), oauthScope, "identifies no such caller"},
		{exchanging(right, "subject_token", ""), oauthInvalid, "it is not a JWT"},
		{exchanging(issuer.Token(nil)), oauthInvalid, "no caller that the platforms file lists"},
		{exchanging(issuer.Token(map[string]any{"sub": "nobody"})), oauthInvalid, "whom this broker does not have"},
		{exchanging(issuer.Token(map[string]any{"sub": "ci", "exp": 1})), oauthInvalid, "it has expired"},
		{exchanging(openidtest.Start(t).Token(map[string]any{"sub": "ci"})), oauthInvalid, "its issuer is none"},
		{exchanging(w.as("platform:cf")), oauthInvalid, "by its type"}, // a token gets no token
		{twice, oauthInvalid, `"subject_token": want it once`},
	} {
		var got errorBody
		if answer := w.send(row.request, &got); answer.StatusCode != http.StatusBadRequest || got.Error != row.code || !strings.Contains(got.OAuth, row.why) || got.OAuth != got.Description {
			t.Errorf("got %d, %+v; want %s, %q", answer.StatusCode, got, row.code, row.why)
		}
		w.clock.SetTime(w.clock.Now().Add(time.Second)) // calls of one address are counted
	}
	long := exchanging(strings.Repeat("x", maxExchange))
	w.refused(long, http.StatusRequestEntityTooLarge, "longer than 64 KiB")
	bad := exchanging(right)
	bad.body = "%"
	w.refused(bad, http.StatusBadRequest, "it is no form")

	// Who has no form of that kind is asked as ever.
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	plain := request{method: "POST", path: "/market/v1/tokens", header: basic("cf", "right"), body: "a=b"}
	plain.header["Content-Type"] = mediaForm
	if status := w.send(plain, nil).StatusCode; status != http.StatusCreated {
		t.Errorf("a platform's credentials with a form are answered %d", status)
	}
}

// TestAnIssuerThatIsDownIsNotABadToken.
func TestAnIssuerThatIsDownIsNotABadToken(t *testing.T) {
	w, issuer := newWorld(t), openidtest.Start(t)
	w.trust(issuer.Listed(exchangers...))
	issuer.Instead(http.NotFound)
	var got errorBody
	answer := w.send(exchanging(issuer.Token(map[string]any{"sub": "ci"})), &got)
	if answer.StatusCode != http.StatusServiceUnavailable || got.Error != oauthUnavailable || answer.Header.Get("Retry-After") != "10" || strings.Contains(got.Description, issuer.URL) {
		t.Errorf("got %d, %+v", answer.StatusCode, got)
	}
}
