package openidtest

import (
	"io"
	"net/http"
	"net/url"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	// ClientSecret of the client Audience.
	ClientSecret = "secret of the client"

	password = "password of everybody"
	redirect = "http://localhost:9999/auth/callback"
)

// SignIn lets somebody sign in at the provider, by the authorization code flow with PKCE, and returns the id token.
func (i *Issuer) SignIn(name string) string {
	i.Helper()
	ctx := oidc.ClientContext(i.Context(), i.server.Client())
	provider, err := oidc.NewProvider(ctx, i.URL)
	i.must(err)
	config := oauth2.Config{ClientID: Audience, ClientSecret: ClientSecret, Endpoint: provider.Endpoint(), RedirectURL: redirect, Scopes: []string{"openid"}}
	verifier := oauth2.GenerateVerifier()
	back := i.Authorize(config.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)), name)
	got, err := config.Exchange(ctx, back.Query().Get("code"), oauth2.VerifierOption(verifier))
	i.must(err)
	token, _ := got.Extra("id_token").(string)
	return token
}

// Authorize lets somebody log in at the provider who was sent to a URL of it, and returns the URL to which the browser
// goes back.
func (i *Issuer) Authorize(at, name string) *url.URL {
	i.Helper()
	request := i.follow(at).Query().Get("authRequestID")
	i.must(i.storage.CheckUsernamePassword(name, password, request))
	return i.follow(i.URL + "/authorize/callback?id=" + request)
}

// follow returns the URL that an answer redirects to.
func (i *Issuer) follow(at string) *url.URL {
	i.Helper()
	client := *i.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Get(at)
	i.must(err)
	i.must(answer.Body.Close())
	to, err := answer.Location()
	if err != nil {
		i.Fatalf("%s is answered %s: %v", at, answer.Status, err)
	}
	return to
}

// page on which people log in with a browser: as whoever they say they are.
const page = `<!doctype html><title>Log in</title><form method="post"><label>Name <input name="name" autofocus></label><button>Log in</button></form>`

// login is the page of the provider to which it sends browsers that are to log in.
func (i *Issuer) login(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page) // the browser has gone
		return
	}
	request := r.FormValue("authRequestID")
	if err := i.storage.CheckUsernamePassword(r.FormValue("name"), password, request); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, "/authorize/callback?id="+url.QueryEscape(request), http.StatusSeeOther)
}
