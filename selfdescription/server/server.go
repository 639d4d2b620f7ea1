package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/mux"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

// Options of the server.
type Options struct {
	// Hub reads from the cache and writes to the hub.
	Hub client.Client
	// Live reads from the hub itself; nil means Hub.
	Live client.Reader
	// Namespace of the hub that holds the resources.
	Namespace string
	// DID of the broker, the audience of presentations; if empty, none is accepted.
	DID string
	// Seal makes nonces that every replica recognises.
	Seal *seal.Keyset
	// Book holds the trusted providers and issuers; Keys and Statuses are those of
	// verification.
	Book     *trust.Book
	Keys     selfdescription.KeySource
	Statuses selfdescription.StatusSource
	// Logger of requests that change something; nil means slog.Default().
	Logger *slog.Logger
	// Clock is for tests; nil means the real clock.
	Clock clock.PassiveClock
}

const (
	// perSecond and burst limit the requests of one address; a provider's whole set of
	// credentials is one request.
	perSecond = 5
	burst     = 20
)

// server answers requests. Its only state is how often clients have called, and whose turn it is.
type server struct {
	Options
	callers *callers.Calls
	turns   sync.Map // of presenters to the *sync.Mutex that is held while their credentials are stored
}

// route is one URL of the server.
type route struct {
	method, path string
	handle       func(*server, http.ResponseWriter, *http.Request) error
	// limited routes verify signatures without authentication, so they have a rate limit.
	limited bool
}

var routes = []route{
	{http.MethodGet, "/.well-known/did.json", (*server).didDocument, false},
	{http.MethodGet, "/.well-known/jwks.json", (*server).keySet, false},
	{http.MethodGet, "/ns/v1", (*server).vocabulary, false},
	{http.MethodGet, "/openapi.json", (*server).description, false},
	{http.MethodPost, "/selfdescriptions/challenges", (*server).challenge, true},
	{http.MethodPost, "/selfdescriptions/verify", (*server).verify, true},
	{http.MethodPost, "/selfdescriptions", (*server).present, true},
	{http.MethodGet, "/selfdescriptions", (*server).list, false},
	{http.MethodGet, "/selfdescriptions/{digest}", (*server).fetch, false},
	{http.MethodGet, "/selfdescriptions/{digest}/report", (*server).report, false},
	{http.MethodGet, "/selfdescriptions/{digest}/evidence", (*server).evidence, false},
	{http.MethodPost, "/selfdescriptions/{digest}/revoke", (*server).revoke, true},
}

func newServer(o Options) *server {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &server{Options: o, callers: callers.NewCalls(perSecond, burst, o.Clock)}
}

// New returns a handler of the server's routes. It passes all other requests unchanged to next.
func New(o Options, next http.Handler) http.Handler {
	s := newServer(o)
	router := mux.NewRouter().UseEncodedPath().SkipClean(true) // no redirects for paths of next
	for _, route := range routes {
		methods := []string{route.method}
		if route.method == http.MethodGet {
			methods = append(methods, http.MethodHead) // net/http omits the body
		}
		router.Path(route.path).Methods(methods...).Handler(s.handler(route))
	}
	router.NotFoundHandler, router.MethodNotAllowedHandler = next, next
	return router
}

// Error is the body of every error answer.
type Error struct {
	Status int
	// Description for the caller: which field or step, and why.
	Description string
}

func (e *Error) Error() string { return e.Description }

func (s *server) handler(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		err := s.admit(route, w, r)
		if err == nil && route.limited {
			// On a replica that does not reconcile, nothing else refreshes the book.
			err = s.Book.Refresh(ctx, s.Hub, s.Namespace)
		}
		if err == nil {
			err = route.handle(s, w, r.WithContext(ctx))
		}
		if err == nil {
			return
		}
		answer := &Error{}
		if !errors.As(err, &answer) {
			s.Logger.ErrorContext(ctx, "answer "+route.method+" "+route.path, "error", err)
			answer = &Error{Status: http.StatusInternalServerError, Description: "An internal error, which is in the broker's log."}
		}
		writeJSON(w, answer.Status, map[string]string{"description": answer.Description})
	})
}

// patience limits the work on one request, including fetching keys.
const patience = 30 * time.Second

// admit applies the rate limit of a route.
func (s *server) admit(route route, w http.ResponseWriter, r *http.Request) error {
	if !route.limited {
		return nil
	}
	from := callers.Address(r)
	if wait := s.callers.Count(from); wait > 0 {
		callers.RetryAfter(w.Header(), wait)
		return &Error{http.StatusTooManyRequests, "Too many requests from " + from.String() + "; the header Retry-After says when to try again."}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}

// mediaType returns the media type of a request's body, by its header.
func mediaType(r *http.Request) string {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}
