package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gorilla/mux"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

const (
	headerVersion             = "X-Broker-API-Version"
	headerOriginatingIdentity = "X-Broker-API-Originating-Identity"
	headerRequestIdentity     = "X-Broker-API-Request-Identity"

	// maxIDBytes limits the decoded ids in URLs. The specification sets no limit; platforms in the
	// field use 36 to about 100 bytes.
	maxIDBytes = 512
	// maxIdentityBytes limits the decoded originating identity.
	maxIdentityBytes = 16 << 10
)

var tracer = otel.Tracer("github.com/sluice-dev/sluice/broker")

// call is one request, authenticated, with the fields that every route needs.
type call struct {
	*http.Request
	requestID string
	platform  *Platform
	version   version
	identity  *v1alpha1.OriginatingIdentity
	query     url.Values

	// Set on the routes that have them:
	instanceID, bindingID string
	via                   []string // hubs that an order has come through
	// due is the time by which a synchronous bind or unbind must be answered.
	due time.Time

	// For the log record of the request:
	route, template string
	err             error
	note            string
}

// reply is a successful answer.
type reply struct {
	status int
	body   any
	// document is a body that is already encoded; it replaces body.
	document   []byte
	header     http.Header
	retryAfter time.Duration
}

// handler answers a call. It returns a reply or an error.
type handler func(*call) (*reply, error)

// callKey finds the call in the context of its request.
type callKey struct{}

// serve handles every OSB request in this order: request id, span and log record, panics,
// authentication, version, originating identity, route.
//
// Step 1 of a provision (docs/architecture.md).
func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	start := s.Clock.Now()
	c := &call{requestID: r.Header.Get(headerRequestIdentity)}
	if c.requestID == "" {
		c.requestID = rand.Text()
	}
	w.Header().Set(headerRequestIdentity, c.requestID)
	out := &statusWriter{ResponseWriter: w}

	ctx := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	c.Request = r.WithContext(context.WithValue(ctx, callKey{}, c))
	defer func() {
		if p := recover(); p != nil {
			c.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			if !out.written {
				s.refuse(out, c, c.err)
			}
		}
		s.record(c, out, span, s.Clock.Since(start))
	}()
	if err := s.admit(c); err != nil {
		s.refuse(out, c, err)
		return
	}
	s.routes.ServeHTTP(out, c.Request)
}

// admit checks what all routes require of a request.
func (s *server) admit(c *call) error {
	var err error
	if c.platform, err = s.strangers.authenticate(s.Platforms, c.Request); err != nil {
		return err
	}
	if c.version, err = parseVersion(c.Header.Get(headerVersion)); err != nil {
		return err
	}
	if c.identity, err = parseOriginatingIdentity(c.Header.Get(headerOriginatingIdentity)); err != nil {
		return err
	}
	if c.query, err = url.ParseQuery(c.URL.RawQuery); err != nil {
		return badRequest("The query string is malformed.")
	}
	return nil
}

// route sets the route's name for the log record, and the ids from the URL for the handler.
func (s *server) route(name, template string, answer handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(callKey{}).(*call)
		c.route, c.template = name, template
		got, err := func() (*reply, error) {
			for variable, into := range map[string]*string{"instance_id": &c.instanceID, "binding_id": &c.bindingID} {
				encoded, there := mux.Vars(r)[variable]
				if !there {
					continue
				}
				id, err := parseID(variable, encoded)
				if err != nil {
					return nil, err
				}
				*into = id
			}
			return answer(c)
		}()
		if err != nil {
			s.refuse(w, c, err)
			return
		}
		got.write(w)
	})
}

func parseID(variable, encoded string) (string, error) {
	id, err := url.PathUnescape(encoded)
	switch {
	case err != nil, !utf8.ValidString(id):
		return "", badRequest("%s: not percent-encoded UTF-8.", variable)
	case id == "":
		return "", badRequest("%s: empty.", variable)
	case id == ".", id == "..":
		// Proxies and clients remove such segments, even percent-encoded (RFC 3986, section 6.2.2): the request
		// for a binding becomes one for its instance.
		return "", badRequest("%s: %q is removed from URLs on their way. Choose another id.", variable, id)
	case len(id) > maxIDBytes:
		return "", badRequest("%s: longer than %d bytes.", variable, maxIDBytes)
	}
	return id, nil
}

// refuse writes an error.
func (s *server) refuse(w http.ResponseWriter, c *call, err error) {
	c.err = err
	e := response(err, c.requestID)
	if e.Status == http.StatusUnauthorized {
		for _, challenge := range s.Platforms.challenges() {
			w.Header().Add("WWW-Authenticate", challenge)
		}
	}
	if e.Allow != "" {
		w.Header().Set("Allow", e.Allow)
	}
	(&reply{status: e.Status, body: errorResponse(e, c.version), retryAfter: e.RetryAfter}).write(w)
}

func (r *reply) write(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	callers.RetryAfter(w.Header(), r.retryAfter)
	switch {
	case r.document != nil:
		writeDocument(w, r.status, r.document)
	case r.body != nil:
		writeJSON(w, r.status, r.body)
	default:
		w.WriteHeader(r.status)
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	document, err := json.Marshal(body)
	if err != nil {
		// Every body is a type of wire.go; the tests of wire.go encode all of them.
		panic(fmt.Sprintf("encode %T: %v", body, err))
	}
	writeDocument(w, status, document)
}

func writeDocument(w http.ResponseWriter, status int, document []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(document)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(document) // the client may have hung up
}

// levelPoll is the level of polls, which are most of all requests: V(1), which --verbose shows.
const levelPoll = slog.Level(-1)

// record logs, measures and traces a request after its answer. It shows names of resources,
// but neither bodies nor the ids that platforms chose.
func (s *server) record(c *call, w *statusWriter, span trace.Span, took time.Duration) {
	platform := ""
	if c.platform != nil {
		platform = c.platform.Name
	}
	attributes := []slog.Attr{
		slog.String("method", c.Method), slog.String("route", c.route), slog.Int("status", w.status),
		slog.Duration("duration", took), slog.String("platform", platform), slog.String("request", shorten(c.requestID)),
	}
	traced := []attribute.KeyValue{
		attribute.String("http.request.method", c.Method), attribute.String("http.route", c.template),
		attribute.Int("http.response.status_code", w.status), attribute.String("sluice.platform", platform),
	}
	if c.instanceID != "" {
		name := v1alpha1.InstanceName(platform, c.instanceID)
		attributes = append(attributes, slog.String("instance", name))
		traced = append(traced, attribute.String("sluice.instance", name))
	}
	if c.bindingID != "" {
		name := v1alpha1.BindingName(platform, c.instanceID, c.bindingID)
		attributes = append(attributes, slog.String("binding", name))
		traced = append(traced, attribute.String("sluice.binding", name))
	}
	if c.note != "" {
		attributes = append(attributes, slog.String("note", c.note))
	}
	level := slog.LevelInfo
	switch {
	case c.err == nil && strings.HasSuffix(c.route, "last_operation"):
		level = levelPoll
	case c.err == nil:
	case c.Context().Err() != nil:
		attributes = append(attributes, slog.String("error", "the client hung up"))
	case w.status >= http.StatusInternalServerError:
		level = slog.LevelError
		attributes = append(attributes, slog.Any("error", c.err))
		span.SetStatus(codes.Error, http.StatusText(w.status))
	default:
		// The description may quote the request; the code does not.
		answer := response(c.err, "")
		attributes = append(attributes, slog.String("error", answer.Code))
		if c.platform == nil && answer.Err != nil && answer.Err != error(errUnauthorized) {
			attributes = append(attributes, slog.Any("reason", answer.Err)) // which quotes no credentials
		}
	}
	write := func() { s.Logger.LogAttrs(c.Context(), level, "request", attributes...) }
	if c.platform == nil {
		s.strangers.record(&attributes, write)
	} else {
		write()
	}
	s.metrics.answered(c.route, platform, w.status, took)
	if c.template != "" {
		span.SetName(c.Method + " " + c.template)
	}
	span.SetAttributes(traced...)
}

// shorten limits how much of a client's text a log shows.
func shorten(text string) string { return text[:min(len(text), 128)] }

// statusWriter remembers the status that was written.
type statusWriter struct {
	http.ResponseWriter
	status  int
	written bool
}

func (w *statusWriter) WriteHeader(status int) {
	if !w.written {
		w.status, w.written = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// parseOriginatingIdentity reads "platform base64(object)" (OSB 2.17, "Originating
// Identity"); without the header it returns nil.
func parseOriginatingIdentity(header string) (*v1alpha1.OriginatingIdentity, error) {
	if header == "" {
		return nil, nil
	}
	malformed := badRequest("%s: want a platform's name, a blank and a JSON object in Base64.", headerOriginatingIdentity)
	platform, encoded, found := strings.Cut(header, " ")
	if !found || platform == "" {
		return nil, malformed
	}
	value, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, malformed
	}
	var object map[string]any
	limits := strictjson.Limits{Object: true, Bytes: maxIdentityBytes, Float64: true}
	if err := strictjson.Decode(strings.NewReader(string(value)), limits, &object); err != nil {
		return nil, badRequest("%s: its value is malformed: %v.", headerOriginatingIdentity, err)
	}
	return &v1alpha1.OriginatingIdentity{Platform: platform, Value: runtime.RawExtension{Raw: value}}, nil
}
