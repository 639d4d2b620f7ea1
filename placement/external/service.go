package external

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// maxAnswer is the largest answer, in bytes.
const maxAnswer = 1 << 20

// Options are a service's address and the credentials on both sides.
type Options struct {
	// URL of the service. It must be https, except for a loopback address.
	URL string
	// TokenFile holds the bearer token (RFC 6750) that is sent with each request. It is read
	// each time, so that the token can be replaced. Required except for a loopback address.
	TokenFile string
	// CAFile holds the certificate authorities (PEM) that verify the service; empty means those
	// of the system.
	CAFile string
	// Timeout of one request; zero means the default of the service.
	Timeout time.Duration
}

// service is a service outside Sluice.
type service struct {
	Options
	client *http.Client
}

// newService returns a service. Redirects are not followed: the operator configures the address. The error names
// the wrong option, and the service by what it is called.
func newService(called string, o Options, timeout time.Duration) (*service, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("the %s: %w", called, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the authorities of the %s: %w", called, err)
		}
		authorities, err := guarded.ParseCertificates(pem)
		if err != nil {
			return nil, fmt.Errorf("the authorities of the %s: %s %w", called, o.CAFile, err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	}
	return &service{o, &http.Client{Transport: transport, Timeout: cmp.Or(o.Timeout, timeout), CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}, nil
}

// check returns what is wrong. The options matter, because questions contain names, prices and
// free capacity, and answers affect decisions.
func (o Options) check() error {
	at, err := url.Parse(o.URL)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return errors.New("its URL: want https://HOST/PATH")
	}
	if at.User != nil {
		return errors.New("its URL contains credentials: put them into a token file")
	}
	if address, err := netip.ParseAddr(at.Hostname()); err == nil && address.IsLoopback() || at.Hostname() == "localhost" {
		return nil
	}
	switch {
	case at.Scheme != "https":
		return fmt.Errorf("its URL: http is for loopback addresses only, %s needs https", at.Hostname())
	case o.TokenFile == "":
		return fmt.Errorf("%s needs a token file, with which Sluice authenticates", at.Hostname())
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
		return "", fmt.Errorf("its token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("its token: %s is empty", o.TokenFile)
	}
	return token, nil
}

// ask sends a request, and returns the body of an answer of at most maxAnswer bytes with status 200.
func (s *service) ask(ctx context.Context, method, contentType string, body io.Reader) ([]byte, error) {
	token, err := s.token()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.URL, body)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() // read to its end or not, it is of no use any more
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	return data, nil
}
