package market

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheDescriptionHasEveryRouteAndNoOther(t *testing.T) {
	var want, got []string
	for _, route := range routes {
		want = append(want, route.method+" "+route.path)
	}
	for path, methods := range describe(t).Paths {
		for method := range methods {
			got = append(got, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-served +described:\n%s", diff)
	}
}

// TestWhatIsNotOursIsHandedOn: as it was sent.
func TestWhatIsNotOursIsHandedOn(t *testing.T) {
	var got string
	handler := New(Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Method + " " + r.URL.EscapedPath() }))
	for _, sent := range []string{"GET /v2/catalog", "PUT /v2/service_instances/a%2Fb%2F", "GET /v2/../v2/catalog", "DELETE /market", "GET /market/v2/plans"} {
		method, path, _ := strings.Cut(sent, " ")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
		if got != sent || recorder.Code != http.StatusOK {
			t.Errorf("%s arrives as %q, answered %d", sent, got, recorder.Code)
		}
	}
}

func basic(user, password string) map[string]string {
	return map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
}

// TestWhoCalls: platforms and providers get tokens for what they prove, and are known by them.
func TestWhoCalls(t *testing.T) {
	w := newWorld(t)
	presentation := map[string]string{"Content-Type": mediaPresentation}
	for want, q := range map[callerBody]request{
		{"platform", "cf"}:   {header: basic("cf", "right")},
		{"provider", "acme"}: {header: presentation, body: "presentation of acme\n"},
	} {
		var got tokenBody
		q.method, q.path = "POST", "/market/v1/tokens"
		if answer := w.send(q, &got); answer.StatusCode != http.StatusCreated || got.Caller != want || answer.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%v: got %d, %+v", want, answer.StatusCode, got)
		}
		if got.ExpiresAt != w.clock.Now().Add(time.Hour).UTC() {
			t.Errorf("it ends at %s", got.ExpiresAt)
		}
		var caller callerBody
		if w.send(request{method: "GET", path: "/market/v1/caller", with: got.Token}, &caller); caller != want {
			t.Errorf("got %v, want %v", caller, want)
		}
	}

	tokens := request{method: "POST", path: "/market/v1/tokens"}
	for why, q := range map[string]request{
		"want the credentials of a platform":         {header: basic("cf", "wrong")},
		"a provider's presentation as body":          {},
		"of type application/vp+jwt":                 {header: basic("nobody", "right")},
		"longer than 64 KiB":                         {header: presentation, body: strings.Repeat("x", maxPresentation+1)},
		"The presentation was refused.":              {header: presentation, body: "another"},
		"Authorization: want the credentials of a p": {with: w.as("platform:cf")}, // a token gets no token
	} {
		tokens.header, tokens.body, tokens.with = q.header, q.body, q.with
		status := http.StatusUnauthorized
		switch {
		case len(q.body) > maxPresentation:
			status = http.StatusRequestEntityTooLarge
		case q.body != "":
			status = http.StatusUnprocessableEntity
		}
		w.refused(tokens, status, why)
	}
	caller := request{method: "GET", path: "/market/v1/caller"}
	if answer := w.refused(caller, http.StatusUnauthorized, "want \"Bearer TOKEN\""); answer.Header.Get("WWW-Authenticate") == "" {
		t.Error("it is not said how to authenticate")
	}
	caller.with = "wrong"
	w.refused(caller, http.StatusUnauthorized, "not a JWT")
	caller.with = w.as("platform:cf")
	delete(w.platforms, "cf")
	w.refused(caller, http.StatusUnauthorized, "not in the platforms file any more")

	w.refused(request{method: "GET", path: "/market/v1/nothing"}, http.StatusNotFound, "/market/v1/openapi.json")
	if answer := w.refused(request{method: "DELETE", path: "/market/v1/caller"}, http.StatusMethodNotAllowed, "Allow"); answer.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("allowed: %s", answer.Header.Get("Allow"))
	}
}

// TestPasswordsAreNotGuessed: who sends too many waits, and others do not.
func TestPasswordsAreNotGuessed(t *testing.T) {
	w := newWorld(t)
	guess := request{method: "POST", path: "/market/v1/tokens", header: basic("cf", "wrong")}
	for range burst {
		w.refused(guess, http.StatusUnauthorized, "")
	}
	guess.header = basic("cf", "right")
	if answer := w.refused(guess, http.StatusTooManyRequests, "Retry-After"); answer.Header.Get("Retry-After") != "1" {
		t.Errorf("after %s", answer.Header.Get("Retry-After"))
	}
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	if answer := w.send(guess, nil); answer.StatusCode != http.StatusCreated {
		t.Errorf("a second later it is answered %d", answer.StatusCode)
	}
}
