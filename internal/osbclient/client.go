package osbclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/transport"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

const (
	// version of the API that is asked for.
	version = "2.17"
	// requestTimeout is the time in which brokers have to answer (OSB 2.17, "Synchronous and
	// Asynchronous Operations").
	requestTimeout = 60 * time.Second
	// connections that are kept to a broker.
	connections = 32
	// longestPause bounds what a broker may ask for with Retry-After.
	longestPause = 10 * time.Minute
	// maxAnswer is the longest answer, except of catalogs, in bytes.
	maxAnswer = 1 << 20
	// maxOperation is the longest operation string (OSB 2.17, "Provisioning").
	maxOperation = 10_000
)

// Config of a client.
type Config struct {
	// URL of the broker, without /v2.
	URL string
	// CABundle is PEM that the broker's certificate is checked against; empty means the system's roots.
	CABundle []byte
	// Addresses that may be reached though they are not public.
	Addresses []netip.Prefix
	// Credentials for the broker.
	Credentials Credentials
	// PassIdentity sends the platform's context and its user, see Client.Identify.
	PassIdentity bool
	// Wrap is put around the transport; may be nil.
	Wrap transport.WrapperFunc
}

// Client sends requests to one broker. It is safe for concurrent use.
type Client struct {
	base        *url.URL
	http        *http.Client
	credentials Credentials
	passes      bool
	tokens      oauth2.TokenSource // nil without OAuth
	catalog     cached
	market      marketToken
}

// New returns a client. It sends nothing.
func New(config Config) (*Client, error) {
	base, err := url.Parse(config.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("url %q: want http or https, a host, and perhaps a path", config.URL)
	}
	roots, err := guarded.ParseRoots(config.CABundle)
	if err != nil {
		return nil, err
	}
	options := guarded.Options{Roots: roots, AllowAddresses: config.Addresses, Timeout: requestTimeout, KeepAlive: connections}
	if err := config.Credentials.Check(); err != nil {
		return nil, err
	}
	c := &Client{base: base, http: guarded.NewClient(options), credentials: config.Credentials, passes: config.PassIdentity}
	if oauth := config.Credentials.OAuth; oauth != nil {
		// The requests for tokens have the same limits.
		ctx := context.WithValue(context.Background(), oauth2.HTTPClient, guarded.NewClient(options))
		c.tokens = (&clientcredentials.Config{
			ClientID: oauth.ClientID, ClientSecret: oauth.ClientSecret, TokenURL: oauth.TokenURL, Scopes: oauth.Scopes,
		}).TokenSource(ctx)
	}
	if config.Wrap != nil {
		c.http.Transport = config.Wrap(c.http.Transport)
	}
	return c, nil
}

// platform is the name of Sluice in the contexts that it sends.
const platform = "sluice"

// Identify returns the context and the end user that the broker is told of with an order. Unless the operator
// passes identities on, it learns only where the order belongs, by GUIDs.
func (c *Client) Identify(instance *v1alpha1.ServiceInstance, of *runtime.RawExtension, user *v1alpha1.OriginatingIdentity) (json.RawMessage, *v1alpha1.OriginatingIdentity) {
	if c.passes && of != nil {
		return of.Raw, user
	}
	own, err := json.Marshal(map[string]string{
		"platform": platform, "organization_guid": instance.Spec.OrganizationGUID, "space_guid": instance.Spec.SpaceGUID,
	})
	if err != nil {
		return nil, nil // cannot happen: strings always encode
	}
	return own, nil
}

// request is one call of the API.
type request struct {
	// what it is in words.
	what   string
	method string
	// root of the path, and path below it; empty means /v2.
	root  string
	path  []string
	query url.Values
	// body is marshalled; nil sends none.
	body any
	// identity of the end user; nil sends none.
	identity *v1alpha1.OriginatingIdentity
	header   http.Header
	// bearer is a token that is sent instead of the credentials; empty sends these.
	bearer string
	// limit of the answer in bytes; zero means maxAnswer.
	limit int64
}

// answer is a response that has been read.
type answer struct {
	status     int
	header     http.Header
	retryAfter time.Duration
	body       []byte
}

// send sends a request and returns the answer if its status is one of those wanted; otherwise the error is
// an *Error. No error contains credentials. Ids that a URL cannot have are refused as a broker refuses them, and not sent.
func (c *Client) send(ctx context.Context, r request, wanted ...int) (*answer, error) {
	failed := &Error{Request: r.what}
	for _, segment := range r.path {
		if segment == "" || segment == "." || segment == ".." {
			// Sent as ".", ".." or nothing, it makes the URL that of something else (RFC 3986, section 5.2.4).
			failed.Status, failed.Description = http.StatusBadRequest, fmt.Sprintf("%q is no id that a URL can have", segment)
			return nil, failed
		}
	}
	sent, err := c.build(ctx, r)
	if err != nil {
		failed.Err = err
		return nil, failed
	}
	response, err := c.http.Do(sent)
	if err != nil {
		failed.Err = cause(err)
		if errors.Is(err, guarded.ErrRedirect) && response != nil {
			failed.Status, failed.Malformed = response.StatusCode, true
		}
		return nil, failed
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	limit := r.limit
	if limit == 0 {
		limit = maxAnswer
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		failed.Err = cause(err)
		return nil, failed
	}
	got := &answer{status: response.StatusCode, header: response.Header, retryAfter: pause(response.Header.Get("Retry-After"), time.Now()), body: body}
	for _, one := range wanted {
		if got.status == one {
			return got, nil
		}
	}
	return nil, got.refusal(r.what)
}

func (c *Client) build(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		document, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(document)
	}
	target := c.base.JoinPath(append([]string{cmp.Or(r.root, "v2")}, r.path...)...)
	target.RawQuery = r.query.Encode()
	sent, err := http.NewRequestWithContext(ctx, r.method, target.String(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		sent.Header[name] = values
	}
	sent.Header.Set("X-Broker-API-Version", version)
	sent.Header.Set("X-Broker-API-Request-Identity", uuid.NewString())
	sent.Header.Set("Accept", "application/json")
	if body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if r.identity != nil {
		sent.Header.Set("X-Broker-API-Originating-Identity", r.identity.Platform+" "+base64.StdEncoding.EncodeToString(r.identity.Value.Raw))
	}
	if r.bearer != "" {
		sent.Header.Set("Authorization", "Bearer "+r.bearer)
		return sent, nil
	}
	return sent, c.authenticate(sent)
}

func (c *Client) authenticate(r *http.Request) error {
	switch {
	case c.tokens != nil:
		token, err := c.tokens.Token()
		if err != nil {
			return tokenError(err)
		}
		token.SetAuthHeader(r)
	case c.credentials.Token != "":
		r.Header.Set("Authorization", "Bearer "+c.credentials.Token)
	default:
		r.SetBasicAuth(c.credentials.Username, c.credentials.Password)
	}
	return nil
}

// tokenError leaves out the answer of the token server, which may repeat what it was sent.
func tokenError(err error) error {
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) && refused.Response != nil {
		return fmt.Errorf("get a token: the token server answers %s", status(refused.Response.StatusCode))
	}
	return fmt.Errorf("get a token: %w", cause(err))
}

// cause leaves out the URL, which messages name already.
func cause(err error) error {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// refusal returns the error for an answer with another status than was wanted.
func (a *answer) refusal(what string) *Error {
	refused := &Error{Request: what, Status: a.status, RetryAfter: a.retryAfter}
	var said struct {
		Error            string `json:"error"`
		Description      string `json:"description"`
		InstanceUsable   *bool  `json:"instance_usable"`
		UpdateRepeatable *bool  `json:"update_repeatable"`
	}
	if err := a.decode(&said); err != nil {
		if a.status < http.StatusBadRequest { // a success, or a redirect, that Sluice cannot read
			refused.Malformed, refused.Err = true, fmt.Errorf("a platform does not expect this status")
		}
		return refused
	}
	refused.Code, refused.Description = Printable(said.Error), Printable(said.Description)
	refused.InstanceUsable, refused.UpdateRepeatable = said.InstanceUsable, said.UpdateRepeatable
	if a.status < http.StatusBadRequest {
		refused.Malformed, refused.Err = true, fmt.Errorf("a platform does not expect this status")
	}
	return refused
}

// decode reads the body, an object.
func (a *answer) decode(into any) error {
	return strictjson.Decode(bytes.NewReader(a.body), strictjson.Limits{Object: true, Bytes: int64(len(a.body)) + 1}, into)
}

// read decodes the body of a success; the error is an *Error.
func (a *answer) read(what string, into any) error {
	if len(a.body) > maxAnswer {
		return &Error{Request: what, Status: a.status, Malformed: true, Err: fmt.Errorf("longer than %d bytes", maxAnswer)}
	}
	if err := a.decode(into); err != nil {
		return &Error{Request: what, Status: a.status, Malformed: true, Err: err}
	}
	return nil
}

// pause reads a Retry-After, in seconds or as a date (RFC 9110, section 10.2.3); zero if there is none.
func pause(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil {
		return min(max(time.Duration(seconds)*time.Second, 0), longestPause)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), longestPause)
	}
	return 0
}
