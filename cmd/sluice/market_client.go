package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// marketFlags select a broker's market, and with what it is called.
type marketFlags struct{ to, caFile string }

func (f *marketFlags) bind(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&f.to, "to", "", "URL of a broker whose market is called, instead of the hub")
	cmd.PersistentFlags().StringVar(&f.caFile, "ca-file", "", "file with the certificates (PEM) that the one of --to is checked against, if they are not the system's")
}

// marketHelp ends the help of commands that call a market.
const marketHelp = `

With --to, providers and platforms do so by a broker's market, for themselves (docs/market.md). $SLUICE_TOKEN is a token
of the market, for instance a provider's of "sluice sd login"; or it is a platform's for the OSB API, as
$SLUICE_USERNAME and $SLUICE_PASSWORD are.`

// marketClient calls a broker's market.
type marketClient struct {
	url, token string
	http       *http.Client
}

// marketRefusal is an error answer of a market.
type marketRefusal struct {
	Status      int    `json:"-"`
	Description string `json:"description"`
	wait        time.Duration
}

func (r *marketRefusal) Error() string { return strings.TrimSuffix(r.Description, ".") }

// newMarketClient returns a client of the market of the broker that --to names.
func newMarketClient(to string, roots []byte) (*marketClient, error) {
	direct, err := directClient("--to", to, roots)
	if err != nil {
		return nil, err
	}
	return &marketClient{url: strings.TrimSuffix(to, "/"), http: direct}, nil
}

// directClient returns a client that follows no redirects, because whatever it sends is for the broker that a flag names
// alone. It checks certificates against roots (PEM), and without any against the system's.
func directClient(flag, to string, roots []byte) (*http.Client, error) {
	at, err := url.Parse(to)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, fmt.Errorf("%s %q: want an https URL", flag, to)
	}
	direct := *brokerHTTP
	direct.CheckRedirect = guarded.RefuseRedirect
	if roots != nil {
		pool, err := guarded.ParseCertificates(roots)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		direct.Transport = transport
	}
	return &direct, nil
}

// connect returns a client with a token for the market.
func (f *marketFlags) connect(cmd *cobra.Command) (*marketClient, error) {
	roots, err := readBundle(f.caFile)
	if err != nil {
		return nil, err
	}
	m, err := newMarketClient(f.to, roots)
	if err != nil {
		return nil, err
	}
	with, err := environmentCredentials()
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	if m.token = with.Token; with.Username == "" {
		err := m.call(cmd.Context(), http.MethodGet, "caller", nil, nil, nil)
		if refused := (*marketRefusal)(nil); err == nil || !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
			return m, err
		}
	}
	request, err := m.request(cmd.Context(), http.MethodPost, "tokens", nil, nil)
	if err != nil {
		return nil, err
	}
	if with.Username != "" {
		request.SetBasicAuth(with.Username, with.Password)
	}
	var issued struct{ Token string }
	if err := m.do(request, &issued); err != nil {
		return nil, fmt.Errorf("get a token for the market: %w", err)
	}
	m.token = issued.Token
	return m, nil
}

// call sends a request with a body in JSON, and decodes the answer. If there were too many, it waits as long as it is
// told. The error of an answer with another status than 2xx is a *marketRefusal.
func (m *marketClient) call(ctx context.Context, method, path string, header map[string]string, body, into any) error {
	for {
		request, err := m.request(ctx, method, path, header, body)
		if err != nil {
			return err
		}
		err = m.do(request, into)
		refused := (*marketRefusal)(nil)
		if !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests || refused.wait <= 0 || refused.wait > time.Minute {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(refused.wait):
		}
	}
}

func (m *marketClient) request(ctx context.Context, method, path string, header map[string]string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, m.url+"/market/v1/"+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if m.token != "" {
		request.Header.Set("Authorization", "Bearer "+m.token)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	return request, nil
}

func (m *marketClient) do(request *http.Request, into any) error {
	response, err := m.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	noMarket := fmt.Errorf("%s answered %s, which is not the answer of a broker with a market", m.url, response.Status)
	if response.StatusCode/100 != 2 {
		refused := &marketRefusal{Status: response.StatusCode}
		if json.Unmarshal(data, refused) != nil || refused.Description == "" {
			return noMarket
		}
		seconds, _ := strconv.Atoi(cmp.Or(response.Header.Get("Retry-After"), "0"))
		refused.Description, refused.wait = printable(refused.Description), time.Duration(seconds)*time.Second
		return refused
	}
	if into != nil && json.Unmarshal(data, into) != nil {
		return noMarket
	}
	return nil
}
