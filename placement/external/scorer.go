package external

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/sluice-dev/sluice/placement"
)

// Scorer asks a scorer outside Sluice, for instance a learned one, to score the best
// clusters. A scorer that is down never delays a request by more than its timeout: after five
// failures in a row it is not asked for half a minute (circuit breaker), and its weight counts
// for nothing.
type Scorer struct {
	Options
	client  *http.Client
	breaker *gobreaker.CircuitBreaker[map[string]int32]
}

const (
	// maxAnswer is the largest answer, in bytes.
	maxAnswer = 1 << 20
	// DefaultTimeout is the default timeout of one question.
	DefaultTimeout = 200 * time.Millisecond
)

// Options are a scorer's address and the credentials on both sides.
type Options struct {
	// URL to which questions are POSTed. It must be https, except for a loopback address.
	URL string
	// TokenFile holds the bearer token (RFC 6750) that is sent with each question. It is read
	// each time, so that the token can be replaced. Required except for a loopback address.
	TokenFile string
	// CAFile holds the certificate authorities (PEM) that verify the scorer; empty means those
	// of the system.
	CAFile string
	// Timeout of one question; zero means DefaultTimeout.
	Timeout time.Duration
}

// New returns a scorer that receives a ScorerQuestion as JSON and replies with a
// ScorerAnswer. Redirects are not followed: the operator configures the address. The error
// names the wrong option.
func New(o Options) (*Scorer, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the scorer's authorities: %w", err)
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the scorer's authorities: %s has no certificate in PEM", o.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	}
	return &Scorer{
		Options: o,
		client: &http.Client{Transport: transport, Timeout: cmp.Or(o.Timeout, DefaultTimeout), CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		breaker: gobreaker.NewCircuitBreaker[map[string]int32](gobreaker.Settings{Timeout: 30 * time.Second}),
	}, nil
}

// check returns what is wrong. The options matter, because questions contain names, prices and
// free capacity, and answers affect decisions.
func (o Options) check() error {
	at, err := url.Parse(o.URL)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return fmt.Errorf("the scorer's URL: want https://HOST/PATH")
	}
	if at.User != nil {
		return fmt.Errorf("the scorer's URL contains credentials: put them into a token file")
	}
	if address, err := netip.ParseAddr(at.Hostname()); err == nil && address.IsLoopback() || at.Hostname() == "localhost" {
		return nil
	}
	switch {
	case at.Scheme != "https":
		return fmt.Errorf("the scorer's URL: http is for loopback addresses only, %s needs https", at.Hostname())
	case o.TokenFile == "":
		return fmt.Errorf("the scorer at %s needs a token file, with which Sluice authenticates", at.Hostname())
	}
	_, err = o.token()
	return err
}

// token returns the token to send; empty if there is none.
func (o Options) token() (string, error) {
	if o.TokenFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return "", fmt.Errorf("the scorer's token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("the scorer's token: %s is empty", o.TokenFile)
	}
	return token, nil
}

// Score asks for the scores of the best clusters that fit a request. It blocks for at most the
// scorer's timeout. The map is nil if there is an error.
func (x *Scorer) Score(ctx context.Context, r placement.Request, s *placement.Snapshot) (map[string]int32, error) {
	scores, err := x.breaker.Execute(func() (map[string]int32, error) { return x.ask(ctx, placement.Question(r, s)) })
	if err != nil {
		return nil, fmt.Errorf("ask the external scorer: %w", err)
	}
	return scores, nil
}

func (x *Scorer) ask(ctx context.Context, q placement.ScorerQuestion) (map[string]int32, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	token, err := x.token()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, x.URL, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := x.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() // read to its end or not, it is of no use any more
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	var answer placement.ScorerAnswer
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if answer.Scores == nil {
		return nil, fmt.Errorf("its answer has no scores")
	}
	return answer.Scores, nil
}
