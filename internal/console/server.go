package console

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/openid"
)

// Options of the console.
type Options struct {
	// Hub reads from the manager's cache, Live from the hub itself.
	Hub, Live client.Reader
	// Namespace of the hub that holds the resources.
	Namespace string
	// Catalog of the offerings for sale.
	Catalog *catalog.Catalog
	// Tokens issues and verifies those of sessions.
	Tokens *access.Tokens
	// Platforms authenticates whoever logs in.
	Platforms Platforms
	// OSB is the broker's own API, to which consumers' requests go.
	OSB http.Handler
	// Market is the broker's own market, to which providers' requests go.
	Market http.Handler
	// Explain decides anew for an instance.
	Explain Explain
	// Changes announces what live pages show anew; nil if pages are not live.
	Changes *Changes
	// URL is the broker's, without a slash at its end, for invitations and for issuers to send browsers back to; ""
	// means as requests name it.
	URL string
	// Secure means that browsers reach the console over HTTPS, also if a proxy ends it.
	Secure bool
	// Logger of what the console could not do; nil means slog.Default().
	Logger *slog.Logger
	// Clock is for tests; nil means the real clock.
	Clock clock.PassiveClock
}

// Platforms authenticates by the platforms file.
type Platforms interface {
	// Prove returns the platform that sent a request with its credentials.
	Prove(r *http.Request) (access.Proof, bool)
	// Issuers returns the OpenID Connect issuers at which people can sign in.
	Issuers() *openid.Issuers
}

// Root is the path of the console.
const Root = "/console/"

const (
	// patience limits the work on one page.
	patience = 20 * time.Second
	// maxForm is the greatest size of a form, in bytes.
	maxForm = 256 << 10
	// loginsPerSecond and loginBurst limit the attempts to log in of one address.
	loginsPerSecond = 0.5
	loginBurst      = 10
)

// server renders pages.
type server struct {
	Options
	pages   map[string]*template.Template
	logins  *callers.Calls
	fleets  kept[*fleet]
	journal kept[[]entry]
	looks   kept[*home]
	lists   kept[[]*instanceRow]
	// explaining holds one while a decision is explained.
	explaining chan struct{}
}

// call is a request to the console.
type call struct {
	*http.Request
	w http.ResponseWriter
	// caller has logged in, except on pages that are for everyone.
	caller access.Caller
	token  string
}

// page is the result of a handler, to be rendered.
type page struct {
	// Title of the page, and the name of its template.
	Title, template string
	// status of the answer; 0 means 200.
	status int
	// Live is the address of the stream that reports when the page has changed; empty if it stays as it is.
	Live string
	// Data of the template.
	Data any
}

// route is one URL of the console.
type route struct {
	method, path string
	// roles that may call it; none means everyone, also without a session.
	roles []access.Role
	// handle returns nil if it has answered.
	handle func(*server, *call) (*page, error)
}

func (s *server) routes() []route {
	operator, platform, provider := []access.Role{access.Operator}, []access.Role{access.Platform}, []access.Role{access.Provider}
	everybody := []access.Role{access.Operator, access.Platform, access.Provider}
	both, parties := []access.Role{access.Operator, access.Provider}, []access.Role{access.Platform, access.Provider}
	return []route{
		{http.MethodGet, "{$}", everybody, (*server).front},
		{http.MethodGet, "login", nil, (*server).loginPage},
		{http.MethodPost, "login", nil, (*server).login},
		{http.MethodGet, "sign-in", nil, (*server).signIn},
		{http.MethodGet, "signed-in", nil, (*server).signedIn},
		{http.MethodGet, "enter", nil, (*server).enterPage},
		{http.MethodPost, "enter", nil, (*server).enter},
		{http.MethodPost, "logout", nil, (*server).logout},
		{http.MethodGet, "fleet", operator, (*server).fleetPage},
		{http.MethodGet, "clusters/{name}", both, (*server).clusterPage},
		{http.MethodGet, "clusters/{name}/drain", operator, (*server).drainPage},
		{http.MethodGet, "clusters/{name}/loss", operator, (*server).lossPage},
		{http.MethodPost, "clusters/{name}/schedule", operator, (*server).schedule},
		{http.MethodGet, "instances", operator, (*server).instancesPage},
		{http.MethodGet, "instances/{name}", operator, (*server).instancePage},
		{http.MethodGet, "instances/{name}/clusters", operator, (*server).verdictsPage},
		{http.MethodGet, "peerings", operator, (*server).peeringsPage},
		{http.MethodGet, "consumers", operator, (*server).consumersPage},
		{http.MethodGet, "policies", everybody, (*server).policiesPage},
		{http.MethodGet, "policies/edit", parties, (*server).policyPage},
		{http.MethodPost, "policies/edit", parties, (*server).writePolicy},
		{http.MethodPost, "policies/remove", parties, (*server).removePolicy},
		{http.MethodGet, "expiring", operator, (*server).expiringPage},
		{http.MethodGet, "journal", operator, (*server).journalPage},
		{http.MethodGet, "market", platform, (*server).marketPage},
		{http.MethodGet, "order", platform, (*server).orderPage},
		{http.MethodPost, "order", platform, (*server).order},
		{http.MethodGet, "mine", platform, (*server).minePage},
		{http.MethodGet, "mine/{name}", platform, (*server).ownPage},
		{http.MethodGet, "mine/{name}/delete", platform, (*server).deletePage},
		{http.MethodPost, "mine/{name}/delete", platform, (*server).remove},
		{http.MethodPost, "mine/{name}/bind", platform, (*server).bind},
		{http.MethodPost, "mine/{name}/unbind", platform, (*server).unbind},
		{http.MethodPost, "mine/{name}/credentials", platform, (*server).credentials},
		{http.MethodGet, "usage", platform, (*server).usagePage},
		{http.MethodGet, "supply", provider, (*server).supplyPage},
		{http.MethodGet, "supply/add", provider, (*server).invitePage},
		{http.MethodPost, "supply/add", provider, (*server).invite},
		{http.MethodPost, "supply/withdraw", provider, (*server).withdraw},
		{http.MethodGet, "offers", provider, (*server).offersPage},
		{http.MethodGet, "offers/edit", provider, (*server).offerPage},
		{http.MethodPost, "offers/edit", provider, (*server).writeOffer},
		{http.MethodPost, "offers/remove", provider, (*server).removeOffer},
		{http.MethodGet, "credentials", provider, (*server).credentialsPage},
	}
}

// New returns a handler of the console below Root. It redirects browsers that ask for / there, and passes all other
// requests unchanged to next.
func New(o Options, next http.Handler) (http.Handler, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, err
	}
	return s.handle(next), nil
}

func newServer(o Options) (*server, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Changes == nil {
		o.Changes = NewChanges()
	}
	s := &server{Options: o, logins: callers.NewCalls(loginsPerSecond, loginBurst, o.Clock), explaining: make(chan struct{}, 1)}
	var err error
	s.pages, err = parseTemplates(o.Clock)
	return s, err
}

// handle returns the handler of all routes.
func (s *server) handle(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+Root+r.path, s.handler(r))
	}
	mux.Handle("GET "+Root+"live", http.HandlerFunc(s.live))
	mux.Handle("GET "+Root+"assets/{digest}/{file}", http.HandlerFunc(serveAsset))
	mux.Handle(Root, s.handler(route{handle: func(*server, *call) (*page, error) { return nil, errNoPage }}))
	own := http.NewCrossOriginProtection()
	own.SetDenyHandler(s.handler(route{handle: func(*server, *call) (*page, error) { return nil, errForeign }}))
	console := own.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, Root):
			protect(w.Header())
			console.ServeHTTP(w, r)
		case r.URL.Path == strings.TrimSuffix(Root, "/"), r.URL.Path == "/" && wantsPage(r):
			http.Redirect(w, r, Root, http.StatusSeeOther)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// wantsPage reports whether a browser asks for a page, and not a program for data.
func wantsPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// protect sets the headers that every answer of the console has.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// Error is a page that cannot be shown, as the person who asked for it reads it.
type Error struct {
	Status int
	// Title in a few words, and Description of the cause with a remedy.
	Title, Description string
	// retryAfter is the time to wait before the next request; zero gives none.
	retryAfter time.Duration
}

func (e *Error) Error() string { return e.Title + ": " + e.Description }

var (
	errNoPage  = &Error{Status: http.StatusNotFound, Title: "There is no such page", Description: "The address may be mistyped, or what it was about may be gone."}
	errRole    = &Error{Status: http.StatusForbidden, Title: "This page is not for you", Description: "Log out and log in as somebody who may see it."}
	errLogin   = &Error{Status: http.StatusUnauthorized, Title: "Log in first"}
	errForm    = &Error{Status: http.StatusBadRequest, Title: "The form could not be read", Description: "Go back, reload the page and try again."}
	errForeign = &Error{Status: http.StatusForbidden, Title: "The request came from another site",
		Description: "Nothing was changed. Open the console itself and do it there."}
	errStarting = &Error{Status: http.StatusServiceUnavailable, Title: "Sluice is still reading its hub", Description: "It has just started. Reload the page in a few seconds.", retryAfter: 2 * time.Second}
)

// noSuch is the answer for something that is not there, or not for the caller: the two look the same.
func noSuch(what, name string) *Error {
	return &Error{Status: http.StatusNotFound, Title: "There is no " + what + " " + name, Description: "It may have been removed since; the journal has what happened to it."}
}

func (s *server) handler(of route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		c := &call{Request: r.WithContext(ctx), w: w}
		shown, err := s.admit(of, c)
		if shown == nil && err == nil {
			shown, err = of.handle(s, c)
		}
		if err != nil {
			shown = s.failed(c, err)
		}
		if shown != nil {
			s.render(c, shown)
		}
	})
}

// admit lets a request through that may come, and otherwise returns the page to show.
func (s *server) admit(of route, c *call) (*page, error) {
	c.Body = http.MaxBytesReader(c.w, c.Body, maxForm)
	err := s.identify(c)
	if err != nil || len(of.roles) == 0 {
		return nil, err
	}
	switch {
	case c.caller == access.Caller{}:
		return s.askLogin(c, http.StatusUnauthorized, "")
	case !slices.Contains(of.roles, c.caller.Role):
		return nil, errRole
	}
	return nil, nil
}

// failed returns the page for an error. The cause of one that is nobody's fault is logged, and not shown.
func (s *server) failed(c *call, err error) *page {
	answer := &Error{}
	notStarted := (*cache.ErrCacheNotStarted)(nil)
	switch {
	case errors.As(err, &answer):
	case errors.As(err, &notStarted), errors.Is(err, context.DeadlineExceeded):
		answer = errStarting
	default:
		s.Logger.ErrorContext(c.Context(), "show "+c.URL.Path, "error", err)
		answer = &Error{Status: http.StatusInternalServerError, Title: "Something went wrong", Description: "The cause is in the log of Sluice. Nothing was changed by this page."}
	}
	callers.RetryAfter(c.w.Header(), answer.retryAfter)
	return &page{Title: answer.Title, template: "error", status: answer.Status, Data: answer}
}

// layout is the data of the frame around each page.
type layout struct {
	*page
	Caller access.Caller
	// Sections of the console for the caller's role.
	Sections []section
	Now      time.Time
}

// section is an entry of the navigation.
type section struct {
	Title, Path string
	// Here reports whether the page is in it.
	Here bool
}

// sections of the console by role, in the order of the navigation.
var sections = map[access.Role][]section{
	access.Operator: {{Title: "Overview"}, {Title: "Fleet", Path: "fleet"}, {Title: "Instances", Path: "instances"}, {Title: "Peerings", Path: "peerings"}, {Title: "Consumers", Path: "consumers"}, {Title: "Policies", Path: "policies"}, {Title: "Expiring", Path: "expiring"}, {Title: "Journal", Path: "journal"}},
	access.Platform: {{Title: "Market", Path: "market"}, {Title: "My instances", Path: "mine"}, {Title: "Usage", Path: "usage"}, {Title: "Policies", Path: "policies"}},
	access.Provider: {{Title: "My clusters", Path: "supply"}, {Title: "My offers", Path: "offers"}, {Title: "Credentials", Path: "credentials"}, {Title: "Policies", Path: "policies"}},
}

// beneath names the sections to which further pages belong.
var beneath = map[string][]string{"clusters": {"fleet", "supply"}, "order": {"market"}}

// render writes a page. A mistake in a template is found before anything is written.
func (s *server) render(c *call, p *page) {
	if c.Method == http.MethodPost { // the address is of the form: loaded again, it would send the form again
		p.Live = ""
	}
	whole := layout{page: p, Caller: c.caller, Now: s.Clock.Now()}
	first, _, _ := strings.Cut(strings.TrimPrefix(c.URL.Path, Root), "/")
	for _, one := range sections[c.caller.Role] {
		one.Here = one.Path == first || slices.Contains(beneath[first], one.Path)
		whole.Sections = append(whole.Sections, one)
	}
	var body bytes.Buffer
	if err := s.pages[p.template].ExecuteTemplate(&body, "layout", whole); err != nil {
		s.Logger.ErrorContext(c.Context(), "render "+c.URL.Path, "error", err)
		http.Error(c.w, "The page could not be rendered; the cause is in the log of Sluice.", http.StatusInternalServerError)
		return
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	status := p.status
	if status == 0 {
		status = http.StatusOK
	}
	c.w.WriteHeader(status)
	_, _ = body.WriteTo(c.w) // the browser has gone
}

// seeOther answers a form with another page.
func (c *call) seeOther(path string) (*page, error) {
	http.Redirect(c.w, c.Request, path, http.StatusSeeOther)
	return nil, nil
}

// front is the first page of a role.
func (s *server) front(c *call) (*page, error) {
	switch c.caller.Role {
	case access.Operator:
		return s.homePage(c)
	case access.Platform:
		return c.seeOther(Root + "market")
	}
	return c.seeOther(Root + "supply")
}
