package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/usage"
)

const (
	defaultBindTimeout = 50 * time.Second // platforms in the field give up after 60
	defaultBodyBytes   = 256 << 10
	// writeTimeout limits a write to the hub that no longer depends on the client.
	writeTimeout = 30 * time.Second
	// readyTimeout limits the request to the hub that /readyz makes.
	readyTimeout = 2 * time.Second
	// readyFor is how long the result of that request is reused, because anybody may call /readyz.
	readyFor = time.Second
)

// Options configure a broker.
type Options struct {
	// Client of the hub; it must not cache.
	Client client.WithWatch
	// Namespace of the hub that holds the resources.
	Namespace string
	// Hub is the hub's ID, by which an order that comes back is recognised.
	Hub string
	// Catalog of the offerings for sale.
	Catalog *catalog.Catalog
	// Platforms that may call the broker.
	Platforms *Platforms
	// Keys unseal the credentials of bindings.
	Keys *seal.Keyset
	// Usage of the hub by platform, to compare with their limits. Nil counts only what this broker
	// creates.
	Usage *Usage

	// BindWait is how long the answer to a bind or unbind with accepts_incomplete=true waits for
	// its completion; zero answers 202 at once.
	BindWait time.Duration
	// BindTimeout is the greatest duration of a bind or unbind that must be answered synchronously;
	// zero means 50 seconds.
	BindTimeout time.Duration
	// MaxBodyBytes is the longest request body; zero means 256 KiB.
	MaxBodyBytes int64
	// Logger gets one record for each request; nil means slog.Default().
	Logger *slog.Logger
	// Registerer of the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Clock; nil means the real one.
	Clock clock.PassiveClock
}

// server answers OSB requests. Its only state is caches.
type server struct {
	Options
	metrics   *metrics
	routes    http.Handler
	catalogs  catalogDocuments
	strangers *strangers
	looks     singleflight.Group
	looked    atomic.Pointer[look]
	reports   *usage.Reports
}

// look is the result of a request to the hub.
type look struct {
	at  time.Time
	err error
}

// New returns the handler of all URLs: /v2/…, /usage, and /healthz and /readyz, which need no
// credentials. It registers metrics but does not serve them.
func New(o Options) (http.Handler, error) {
	if o.Client == nil || o.Catalog == nil || o.Platforms == nil || o.Keys == nil || o.Namespace == "" {
		return nil, errors.New("make a broker: Client, Namespace, Catalog, Platforms and Keys are needed")
	}
	if o.BindTimeout == 0 {
		o.BindTimeout = defaultBindTimeout
	}
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = defaultBodyBytes
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Usage == nil {
		o.Usage = NewUsage(o.Clock)
		close(o.Usage.counted) // there is nobody to count what is there
	}
	s := &server{Options: o, strangers: newStrangers(o.Clock), reports: usage.NewReports(o.Client, o.Namespace)}
	var err error
	if s.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("make a broker: %w", err)
	}
	s.routes = s.router()

	open := newRouter()
	open.Path("/healthz").Methods(http.MethodGet, http.MethodHead).HandlerFunc(s.healthy)
	open.Path("/readyz").Methods(http.MethodGet, http.MethodHead).HandlerFunc(s.ready)
	open.NotFoundHandler = http.HandlerFunc(s.serve)
	open.MethodNotAllowedHandler = open.NotFoundHandler
	return oneLeadingSlash(open), nil
}

// oneLeadingSlash treats //v2/… as /v2/…: platforms send that if their URL of the broker
// ends in a slash. It changes no other slashes. An id between them may be empty by mistake,
// and a URL with one more slash means something else.
func oneLeadingSlash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "//") && !strings.HasPrefix(r.URL.RawPath, "/%") {
			at := *r.URL
			at.Path, at.RawPath = "/"+strings.TrimLeft(at.Path, "/"), ""
			if r.URL.RawPath != "" {
				at.RawPath = "/" + strings.TrimLeft(r.URL.RawPath, "/")
			}
			r = r.Clone(r.Context())
			r.URL = &at
		}
		next.ServeHTTP(w, r)
	})
}

// newRouter returns a router that matches paths as they are sent: ids may contain any
// character, even a slash, if it is percent-encoded (OSB 2.17, "URL Properties").
func newRouter() *mux.Router { return mux.NewRouter().UseEncodedPath().SkipClean(true) }

// router returns the handler of the URLs of OSB 2.17, and of /usage.
func (s *server) router() http.Handler {
	const (
		instance = "/v2/service_instances/{instance_id}"
		binding  = instance + "/service_bindings/{binding_id}"
	)
	r := newRouter()
	allowed := map[string][]string{}
	for _, route := range []struct {
		name, method, path string
		answer             handler
	}{
		{"catalog", http.MethodGet, "/v2/catalog", s.getCatalog},
		{"provision", http.MethodPut, instance, s.provision},
		{"fetch", http.MethodGet, instance, s.fetch},
		{"update", http.MethodPatch, instance, s.update},
		{"deprovision", http.MethodDelete, instance, s.deprovision},
		{"last_operation", http.MethodGet, instance + "/last_operation", s.lastOperation},
		{"bind", http.MethodPut, binding, s.bind},
		{"fetch_binding", http.MethodGet, binding, s.fetchBinding},
		{"unbind", http.MethodDelete, binding, s.unbind},
		{"binding_last_operation", http.MethodGet, binding + "/last_operation", s.bindingLastOperation},
		{"usage", http.MethodGet, "/usage", s.getUsage},
	} {
		methods := []string{route.method}
		if route.method == http.MethodGet {
			methods = append(methods, http.MethodHead) // net/http omits the body
		}
		r.Path(route.path).Methods(methods...).Handler(s.route(route.name, route.path, route.answer))
		allowed[route.path] = append(allowed[route.path], methods...)
	}
	for path, methods := range allowed {
		refusal := methodNotAllowed(strings.Join(methods, ", "))
		r.Path(path).Handler(s.route("", "", func(*call) (*reply, error) { return nil, refusal }))
	}
	r.NotFoundHandler = s.route("", "", func(*call) (*reply, error) { return nil, errNoSuchRoute })
	return r
}

// healthy reports that the process answers.
func (s *server) healthy(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct{}{})
}

// ready reports whether requests can be served: the catalog is loaded and the hub answers.
func (s *server) ready(w http.ResponseWriter, _ *http.Request) {
	if !s.Catalog.Loaded() {
		writeJSON(w, http.StatusServiceUnavailable, errorBody{Description: "the catalog has not been loaded yet"})
		return
	}
	if err := s.hubAnswers(); err != nil {
		writeJSON(w, http.StatusServiceUnavailable, errorBody{Description: "the hub does not answer"})
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

// hubAnswers asks the hub at most once a second, however many callers there are.
func (s *server) hubAnswers() error {
	if last := s.looked.Load(); last != nil && s.Clock.Since(last.at) < readyFor {
		return last.err
	}
	_, err, _ := s.looks.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		var one v1alpha1.ServiceOfferingList
		err := s.Client.List(ctx, &one, client.InNamespace(s.Namespace), client.Limit(1))
		if err != nil {
			s.Logger.WarnContext(ctx, "not ready: the hub does not answer", "error", err)
		}
		s.looked.Store(&look{at: s.Clock.Now(), err: err})
		return nil, err
	})
	return err
}
