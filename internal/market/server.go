package market

import (
	"cmp"
	"context"
	_ "embed" // the description of the routes
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/mux"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/usage"
)

// Options of the market.
type Options struct {
	// Catalog of the offerings for sale.
	Catalog *catalog.Catalog
	// Inventory knows how much room there is; nil if nothing does.
	Inventory Inventory
	// Hub writes to the hub, on every replica; Live reads from it without a cache; Namespace holds the resources.
	Hub       client.Client
	Live      client.Reader
	Namespace string
	// Tokens issues tokens and verifies them.
	Tokens *access.Tokens
	// Platforms authenticates callers by the platforms file.
	Platforms Platforms
	// Login returns the provider that sent a presentation. Its error is an *Error if the presentation is refused.
	Login func(ctx context.Context, presentation string) (provider string, err error)
	// Connect connects to a cluster with the access that its owner gave, stores the access and writes the reference to
	// it into the cluster's spec, and returns the cluster's UID. Its error is an *Error if the access is refused.
	Connect func(ctx context.Context, cluster *v1alpha1.MemberCluster, given Access) (uid string, err error)
	// Manifest returns the objects that the owner of a cluster applies to it before it joins, as YAML.
	Manifest func() ([]byte, error)
	// SignContract and SignUsage make statements; nil makes none.
	SignContract, SignUsage Signer
	// Policies judges the policies of providers and platforms.
	Policies Policies
	// Moves returns what would happen to the instances on a cluster, in the order of their names, if it were drained or, if lost
	// is true, lost, and how many of them there was no time for. It changes nothing.
	Moves func(ctx context.Context, cluster string, lost bool) (moves []Move, untried int, err error)
	// Logger of failures and of tokens that are issued; nil means slog.Default().
	Logger *slog.Logger
	// Clock is for tests; nil means the real clock.
	Clock clock.PassiveClock
	// Heartbeat is how often a follower of the changes gets something, and Patience how long it may take for what was sent.
	// They are for tests; zero means 15 and 30 seconds.
	Heartbeat, Patience time.Duration
}

// server answers requests. Its only state is the lists that callers see, and how often clients have called.
type server struct {
	Options
	views     *views
	callers   *callers.Calls
	writes    callersWrites
	followers followers
	// ending is closed when nobody may follow any more, by end.
	ending  chan struct{}
	end     func()
	reports *usage.Reports
}

// prefix of all URLs of the market.
const prefix = "/market/v1"

const (
	// perSecond and burst limit what one address may send without a token.
	perSecond = 5
	burst     = 20
)

// route is one URL and method of the market.
type route struct {
	method, path string
	handle       func(*server, *call) error
	// roles of the callers that may call it; none means everybody, without a token.
	roles []access.Role
	// limited routes judge passwords and signatures of strangers, so they have a rate limit.
	limited bool
}

// everybody is all callers with a token.
var everybody = []access.Role{access.Operator, access.Platform, access.Provider}

// sellers read and change what they sell; the operator reads it all, and says which clusters take placements.
var (
	operators           = []access.Role{access.Operator}
	sellersAndOperators = []access.Role{access.Operator, access.Provider}
	sellers             = []access.Role{access.Provider}
)

// parties write policies about themselves, which the operator reads.
var parties = []access.Role{access.Platform, access.Provider}

var routes = []route{
	{http.MethodGet, prefix + "/openapi.json", (*server).description, nil, false},
	{http.MethodGet, prefix + "/manifest", (*server).manifest, nil, false},
	{http.MethodPost, prefix + "/tokens", (*server).token, nil, true},
	{http.MethodGet, prefix + "/caller", (*server).caller, everybody, false},
	{http.MethodGet, prefix + "/plans", (*server).plans, everybody, false},
	{http.MethodGet, prefix + "/plans/{id}", (*server).plan, everybody, false},
	{http.MethodGet, prefix + "/changes", (*server).changes, everybody, false},
	{http.MethodGet, prefix + "/offerings", (*server).offerings, sellersAndOperators, false},
	{http.MethodGet, prefix + "/offerings/{id}", (*server).getOffering, sellersAndOperators, false},
	{http.MethodPut, prefix + "/offerings/{id}", (*server).putOffering, sellers, false},
	{http.MethodDelete, prefix + "/offerings/{id}", (*server).deleteOffering, sellers, false},
	{http.MethodGet, prefix + "/clusters", (*server).clusters, sellersAndOperators, false},
	{http.MethodPost, prefix + "/clusters", (*server).join, nil, true},
	{http.MethodPatch, prefix + "/clusters/{id}", (*server).patchCluster, sellersAndOperators, false},
	{http.MethodDelete, prefix + "/clusters/{id}", (*server).deleteCluster, sellers, false},
	{http.MethodGet, prefix + "/clusters/{id}/moves", (*server).moves, operators, false},
	{http.MethodGet, prefix + "/policies", (*server).policies, everybody, false},
	{http.MethodGet, prefix + "/policies/{id}", (*server).getPolicy, everybody, false},
	{http.MethodPut, prefix + "/policies/{id}", (*server).putPolicy, parties, false},
	{http.MethodDelete, prefix + "/policies/{id}", (*server).deletePolicy, parties, false},
	{http.MethodPost, prefix + "/policies/{id}/check", (*server).checkPolicy, parties, false},
	{http.MethodGet, prefix + "/invitations", (*server).invitations, sellersAndOperators, false},
	{http.MethodPost, prefix + "/invitations", (*server).invite, sellers, false},
	{http.MethodDelete, prefix + "/invitations/{id}", (*server).withdraw, sellers, false},
	{http.MethodGet, prefix + "/contracts/{id}", (*server).contracts, everybody, false},
	{http.MethodGet, prefix + "/usage", (*server).usage, sellersAndOperators, false},
}

// call is one request, with its caller if the route asks for one.
type call struct {
	*http.Request
	http.ResponseWriter
	caller access.Caller
}

// variable returns a part of the path. The error is an *Error.
func (c *call) variable(name string) (string, error) {
	value, err := url.PathUnescape(mux.Vars(c.Request)[name])
	if err != nil || !utf8.ValidString(value) {
		return "", badRequest("%s: not percent-encoded UTF-8.", name)
	}
	return value, nil
}

// values returns the parameters of the query string. The error is an *Error.
func (c *call) values() (url.Values, error) {
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, badRequest("The query string is malformed.")
	}
	return values, nil
}

// Market is a handler of the market's URLs.
type Market struct {
	http.Handler
	server *server
}

// EndFollowing ends the answers that have no end of their own, so that a server can shut down, and waits a few seconds
// for it. It may be called more than once.
func (m *Market) EndFollowing() { m.server.end() }

// New returns a handler of the market's URLs. It passes all other requests unchanged to next.
func New(o Options, next http.Handler) *Market {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Catalog == nil {
		o.Catalog = &catalog.Catalog{}
	}
	o.Heartbeat, o.Patience = cmp.Or(o.Heartbeat, heartbeat), cmp.Or(o.Patience, patience)
	s := &server{
		Options: o, views: newViews(o.Catalog, o.Inventory), callers: callers.NewCalls(perSecond, burst, o.Clock), ending: make(chan struct{}), reports: usage.NewReports(o.Live, o.Namespace),
	}
	router := mux.NewRouter().UseEncodedPath().SkipClean(true) // no redirects for paths of next
	allowed := map[string][]string{}
	for _, route := range routes {
		methods := []string{route.method}
		if route.method == http.MethodGet {
			methods = append(methods, http.MethodHead) // net/http omits the body
		}
		router.Path(route.path).Methods(methods...).Handler(s.handler(route))
		allowed[route.path] = append(allowed[route.path], methods...)
	}
	for path, methods := range allowed {
		slices.Sort(methods)
		router.Path(path).Handler(s.refusing(&Error{Status: http.StatusMethodNotAllowed, Code: codeMethod, Allow: strings.Join(methods, ", "),
			Description: "This URL has no such method; the header Allow lists those that it has."}))
	}
	router.PathPrefix(prefix + "/").Handler(s.refusing(&Error{Status: http.StatusNotFound, Code: codeNotFound,
		Description: "There is no such URL; " + prefix + "/openapi.json describes all."}))
	router.NotFoundHandler, router.MethodNotAllowedHandler = next, next
	s.end = sync.OnceFunc(s.endFollowing)
	return &Market{Handler: router, server: s}
}

func (s *server) handler(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, ResponseWriter: w}
		err := s.admit(route, c)
		if err == nil {
			err = route.handle(s, c)
		}
		s.refuse(c, err)
	})
}

func (s *server) refusing(err *Error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.refuse(&call{Request: r, ResponseWriter: w}, err) })
}

// refuse answers with an error, if there is one.
func (s *server) refuse(c *call, err error) {
	if err == nil {
		return
	}
	answer := &Error{}
	if !errors.As(err, &answer) {
		s.Logger.ErrorContext(c.Context(), "market", "method", c.Method, "path", c.URL.Path, "error", err)
		answer = &Error{Status: http.StatusInternalServerError, Code: codeInternal, Description: "An internal error, which is in the broker's log."}
	}
	callers.RetryAfter(c.ResponseWriter.Header(), answer.RetryAfter)
	if answer.Allow != "" {
		c.ResponseWriter.Header().Set("Allow", answer.Allow)
	}
	if answer.Status == http.StatusUnauthorized {
		c.ResponseWriter.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
	}
	body := errorBody{Error: answer.Code, Description: answer.Description}
	if answer.OAuth {
		body.OAuth = body.Description
		c.ResponseWriter.Header().Set("Cache-Control", "no-store")
	}
	writeJSON(c.ResponseWriter, answer.Status, body)
}

// admit applies a route's rate limit and roles.
func (s *server) admit(route route, c *call) (err error) {
	if route.limited {
		if wait := s.callers.Count(callers.Address(c.Request)); wait > 0 {
			return &Error{Status: http.StatusTooManyRequests, Code: codeTooMany, RetryAfter: wait,
				Description: "Too many requests came from this address; the header Retry-After says when to try again."}
		}
	}
	if len(route.roles) == 0 {
		return nil
	}
	if c.caller, err = s.authenticate(c.Request); err != nil {
		return err
	}
	if !slices.Contains(route.roles, c.caller.Role) {
		return &Error{Status: http.StatusForbidden, Code: codeForbidden, Description: fmt.Sprintf("%s may not call %s %s.", c.caller, c.Method, route.path)}
	}
	return nil
}

// authenticate returns the caller by the token of a request.
func (s *server) authenticate(r *http.Request) (access.Caller, error) {
	token, err := bearer(r, "a token from POST "+prefix+"/tokens")
	if err != nil {
		return access.Caller{}, err
	}
	caller, err := s.Tokens.Verify(r.Context(), token)
	if errors.Is(err, access.ErrRefused) {
		return access.Caller{}, &Error{Status: http.StatusUnauthorized, Code: codeUnauthorized, Description: "Authorization: " + err.Error() + "; get another from POST " + prefix + "/tokens."}
	}
	return caller, err
}

// bearer returns what a request is sent with. The error is an *Error, and says what is wanted.
func bearer(r *http.Request, want string) (string, error) {
	token, sent := callers.Bearer(r)
	if !sent {
		return "", &Error{Status: http.StatusUnauthorized, Code: codeUnauthorized, Description: "Authorization: want \"Bearer TOKEN\" with " + want + "."}
	}
	return token, nil
}

//go:embed openapi.json
var openAPI []byte

func (s *server) description(c *call) error {
	c.ResponseWriter.Header().Set("Content-Type", "application/json")
	_, _ = c.ResponseWriter.Write(openAPI) // the client has gone
	return nil
}
