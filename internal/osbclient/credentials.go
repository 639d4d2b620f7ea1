package osbclient

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"

	"github.com/sluice-dev/sluice/internal/strictjson"
)

// Credentials for a broker, as they are sealed or kept in a Secret: a user name and a password, a token, or
// what gets a token.
type Credentials struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// Token is sent as a bearer token.
	Token string `json:"token,omitempty"`
	OAuth *OAuth `json:"oauth,omitempty"`
}

// OAuth gets bearer tokens by the client credentials grant (RFC 6749, section 4.4).
type OAuth struct {
	TokenURL     string   `json:"tokenURL"`
	ClientID     string   `json:"clientID"`
	ClientSecret string   `json:"clientSecret"`
	Scopes       []string `json:"scopes,omitempty"`
}

// ParseCredentials reads the JSON of credentials.
func ParseCredentials(document []byte) (Credentials, error) {
	var c Credentials
	if err := strictjson.Decode(bytes.NewReader(document), strictjson.Limits{Object: true, KnownMembers: true}, &c); err != nil {
		return Credentials{}, fmt.Errorf("credentials: %w", err)
	}
	return c, c.Check()
}

// Check returns an error unless the credentials are of exactly one kind.
func (c Credentials) Check() error {
	ways := 0
	for _, given := range []bool{c.Username != "" || c.Password != "", c.Token != "", c.OAuth != nil} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("credentials: want username and password, or token, or oauth")
	case c.OAuth != nil:
		if u, err := url.Parse(c.OAuth.TokenURL); err != nil || u.Host == "" || c.OAuth.ClientID == "" {
			return errors.New("credentials: oauth needs tokenURL, clientID and clientSecret")
		}
	}
	return nil
}
