package openid

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sluice-dev/sluice/internal/access"
)

// ListedSignIn makes Sluice a client of the issuer, at which people sign in with a browser.
type ListedSignIn struct {
	// ClientID and ClientSecret are the client's; a public client has no secret.
	ClientID     string `json:"clientID"`
	ClientSecret string `json:"clientSecret,omitempty"`
	// Scopes that are asked for beside openid, so that the id token has the claims of the callers.
	Scopes []string `json:"scopes,omitempty"`
}

// Pending is a sign-in that has begun. The browser keeps it, and shows it to nobody else.
type Pending struct {
	Issuer   string `json:"issuer"`
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// SignIns returns the issuers at which people can sign in, as listed.
func (i *Issuers) SignIns() (urls []string) {
	for _, one := range i.listed {
		if i.byURL[one].signIn != nil {
			urls = append(urls, one)
		}
	}
	return urls
}

// Begin returns the URL at which somebody signs in, by the authorization code flow (OpenID Connect Core 1.0, section
// 3.1) with PKCE (RFC 7636). It comes back to the URL redirect. The error contains access.ErrRefused if there is no
// such issuer, and ErrUnavailable if it cannot be asked.
func (i *Issuers) Begin(ctx context.Context, issuer, redirect string) (to string, pending Pending, err error) {
	config, err := i.client(ctx, issuer, redirect)
	if err != nil {
		return "", Pending{}, err
	}
	pending = Pending{Issuer: issuer, State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return config.AuthCodeURL(pending.State, oidc.Nonce(pending.Nonce), oauth2.S256ChallengeOption(pending.Verifier)), pending, nil
}

// Finish returns the callers that somebody is who has signed in, at least one, in the order of the list. The query is
// that with which the browser came back. Errors are those of Identify.
func (i *Issuers) Finish(ctx context.Context, pending Pending, redirect string, query url.Values) ([]access.Proof, error) {
	switch from := query.Get("iss"); {
	case pending.State == "" || subtle.ConstantTimeCompare([]byte(pending.State), []byte(query.Get("state"))) == 0:
		return nil, refuse("it was not begun in this browser, or not lately")
	case from != "" && from != pending.Issuer: // RFC 9207
		return nil, refuse("it was begun at another issuer")
	case query.Get("error") != "":
		return nil, refuse("the issuer says %.64q", query.Get("error"))
	}
	config, err := i.client(ctx, pending.Issuer, redirect)
	if err != nil {
		return nil, err
	}
	from := i.byURL[pending.Issuer]
	got, err := config.Exchange(oidc.ClientContext(ctx, from.keys.client), query.Get("code"), oauth2.VerifierOption(pending.Verifier))
	wrong := (*oauth2.RetrieveError)(nil)
	switch {
	case errors.As(err, &wrong) && wrong.Response.StatusCode < http.StatusInternalServerError:
		return nil, refuse("the issuer does not accept the code: %.64q", wrong.ErrorCode)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	token, _ := got.Extra("id_token").(string)
	if len(token) > maxBytes {
		return nil, refuse("the id token is longer than %d bytes", maxBytes)
	}
	claims, err := from.verify(ctx, pending.Issuer, token, []string{config.ClientID})
	if err != nil {
		return nil, fmt.Errorf("the id token: %w", err)
	}
	if nonce, _ := claims["nonce"].(string); nonce != pending.Nonce {
		return nil, refuse("the id token is of another sign-in")
	}
	return from.callers(claims)
}

// client returns how the issuer knows this broker.
func (i *Issuers) client(ctx context.Context, issuer, redirect string) (*oauth2.Config, error) {
	from := i.byURL[issuer]
	if from == nil || from.signIn == nil {
		return nil, refuse("there is no such issuer to sign in at")
	}
	at, err := from.keys.endpoint(ctx)
	if err != nil {
		return nil, err
	}
	return &oauth2.Config{
		ClientID: from.signIn.ClientID, ClientSecret: from.signIn.ClientSecret, Endpoint: at, RedirectURL: redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, from.signIn.Scopes...),
	}, nil
}
