package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Results receives what was measured of a cluster. Its methods do not block.
type Results interface {
	// Pinged is called after each ping with its latency, or with the error that there was no answer.
	Pinged(cluster string, at time.Time, latency time.Duration, err error)
	// Transferred is called with the time until the receipt of TransferBytes was confirmed.
	Transferred(cluster string, at time.Time, took time.Duration, err error)
	// Started is called with the time until a new pod of the probe has answered, or with StartPatience if none did.
	Started(cluster string, at time.Time, took time.Duration)
}

// Options of a server.
type Options struct {
	// Results receives what is measured; nil accepts no probes.
	Results Results
	// Every is the time between two pings of a probe.
	Every time.Duration
	// Hub reads the instances of the probes, and Instances follows them; Namespace holds them.
	Hub       client.Reader
	Instances ctrlcache.Informers
	Namespace string
	// Keys open the probes' tokens.
	Keys *seal.Keyset
	// Logger of connections and refusals; nil means slog.Default().
	Logger *slog.Logger
}

const (
	// Prefix of the URL of a probe; the name of its ServiceInstance follows.
	Prefix = "/probe/v1/"
	// TransferBytes is how much is sent to a probe to measure its throughput, and pingBytes to measure its latency.
	TransferBytes = 1 << 20
	pingBytes     = 32

	// StartPatience is how long a new pod is waited for.
	StartPatience = 100 * time.Second

	// startHeader has the value of the parameter v1alpha1.ProbeStart with which a probe was started.
	startHeader = "Sluice-Probe-Start"

	// transferEvery is the time between two transfers to a probe, of which mostTransfers go on at once.
	transferEvery = 10 * time.Minute
	mostTransfers = 4
	// pingPatience and transferPatience are how long an answer may take.
	pingPatience, transferPatience = 5 * time.Second, 30 * time.Second
	// grace is how long a probe may take to come after the start of this server, which it had to notice first.
	grace = time.Minute
	// wrongPerSecond and wrongBurst limit the wrong tokens that one address may send.
	wrongPerSecond, wrongBurst = 1, 20
)

// Server measures probes on the leader, between the start and the end of Start. Other replicas refuse probes, which try
// again.
type Server struct {
	Options
	wrong  *callers.Calls
	logged rate.Sometimes // refusals
	// transfers has one for each transfer that goes on.
	transfers chan struct{}

	mu sync.Mutex
	// leading ends when this replica does not measure any more; nil if it does not.
	leading context.Context
	// seen reports whether the instances that were there at the beginning of the lead are in probes.
	seen    func() bool
	probes  map[string]*target // by their instances
	running sync.WaitGroup
}

// NewServer returns a server that measures nothing yet.
func NewServer(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Server{
		Options: o, wrong: callers.NewCalls(wrongPerSecond, wrongBurst, clock.RealClock{}), probes: map[string]*target{},
		logged: rate.Sometimes{First: wrongBurst, Interval: time.Second}, transfers: make(chan struct{}, mostTransfers),
	}
}

// NeedLeaderElection returns true: the leader adds up the results.
func (*Server) NeedLeaderElection() bool { return true }

// Start measures until ctx ends, and then closes all connections.
func (s *Server) Start(ctx context.Context) error {
	if s.Results == nil {
		return nil
	}
	s.mu.Lock()
	s.leading = ctx
	s.mu.Unlock()
	informer, err := s.Instances.GetInformer(ctx, &v1alpha1.ServiceInstance{})
	if err != nil {
		return fmt.Errorf("follow the probes: %w", err)
	}
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.see(nil, o) },
		UpdateFunc: s.see,
		DeleteFunc: func(o any) {
			if key, err := cache.DeletionHandlingObjectToName(o); err == nil {
				s.forget(key.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("follow the probes: %w", err)
	}
	s.mu.Lock()
	s.seen = handle.HasSynced
	s.mu.Unlock()
	<-ctx.Done()
	_ = informer.RemoveEventHandler(handle)
	s.mu.Lock()
	s.leading, s.seen = nil, nil
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// see measures the probe of an instance once it has been delivered, until it is deleted. A change of ProbeStart asks for
// a new pod; one before this replica led is not timed.
func (s *Server) see(before, now any) {
	instance, ok := now.(*v1alpha1.ServiceInstance)
	switch {
	case !ok || instance.MeasuredCluster() == "":
	case !instance.DeletionTimestamp.IsZero():
		s.forget(instance.Name)
	case instance.Status.Delivered != nil:
		t := s.target(instance)
		if was, ok := before.(*v1alpha1.ServiceInstance); ok && t != nil && was.UID == instance.UID && was.ProbeStart() != instance.ProbeStart() {
			t.expect(instance.ProbeStart())
		}
	}
}

// target returns what measures an instance's probe; nil if this replica does not lead.
func (s *Server) target(instance *v1alpha1.ServiceInstance) *target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading == nil || s.leading.Err() != nil {
		return nil
	}
	t := s.probes[instance.Name]
	if t == nil {
		t = newTarget(s, instance)
		s.probes[instance.Name] = t
		s.running.Go(t.measure)
	}
	return t
}

// Connection returns whether the probe of a cluster is connected, and why not. It is empty if there is no probe, and unknown
// where it is not known yet.
func (s *Server) Connection(cluster string) (state metav1.ConditionStatus, why string) {
	s.mu.Lock()
	t, known := s.probes[v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID(cluster))], s.Results == nil || s.seen != nil && s.seen()
	s.mu.Unlock()
	switch {
	case t != nil:
		return t.connection()
	case known:
		return "", ""
	}
	return metav1.ConditionUnknown, ""
}

func (s *Server) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.probes[name]; t != nil {
		t.end()
		delete(s.probes, name)
	}
}

// refusal is an answer to a probe that gets no connection.
type refusal struct {
	status      int
	code        string
	description string
	retryAfter  time.Duration
}

func (s *Server) leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leading != nil && s.leading.Err() == nil
}

// Handler returns a handler of the probes' URLs. It passes all other requests unchanged to next.
func (s *Server) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, isProbe := strings.CutPrefix(r.URL.Path, Prefix)
		if !isProbe {
			next.ServeHTTP(w, r)
			return
		}
		if refused := s.take(w, r, name); refused != nil {
			if refused.status != http.StatusNotFound { // a name that was checked
				s.logged.Do(func() {
					s.Logger.Info("refused a probe", "instance", name, "from", callers.Address(r), "status", refused.status, "reason", refused.description)
				})
			}
			callers.RetryAfter(w.Header(), refused.retryAfter)
			switch refused.status {
			case http.StatusUnauthorized:
				w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
			case http.StatusMethodNotAllowed:
				w.Header().Set("Allow", http.MethodGet)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(refused.status)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": refused.code, "description": refused.description}) // the client has gone
		}
	})
}

// take takes a probe's connection over. It returns nil if it did, or if an answer has been written.
func (s *Server) take(w http.ResponseWriter, r *http.Request, name string) *refusal {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return &refusal{status: http.StatusNotFound, code: "NotFound", description: "There is no such URL: want " + Prefix + " and the name of the probe's ServiceInstance."}
	}
	if r.Method != http.MethodGet {
		return &refusal{status: http.StatusMethodNotAllowed, code: "MethodNotAllowed", description: "A probe opens a WebSocket here: want GET."}
	}
	if s.Results == nil {
		return &refusal{status: http.StatusNotFound, code: "NotFound", description: "This broker measures nothing: sluice serve has no --vantage, or no --public-url."}
	}
	if !s.leads() {
		return &refusal{http.StatusServiceUnavailable, "ServiceUnavailable", "This replica does not measure; another one leads.", time.Second}
	}
	from := callers.Address(r)
	if wait := s.wrong.Wait(from); wait > 0 {
		return &refusal{http.StatusTooManyRequests, "TooManyRequests", "Too many wrong tokens came from this address; the header Retry-After says when to try again.", wait}
	}
	instance, err := s.authenticate(r, name)
	switch {
	case errors.Is(err, errWrong):
		s.wrong.Count(from)
		return &refusal{status: http.StatusUnauthorized, code: "Unauthorized", description: "Authorization: want \"Bearer TOKEN\" with the token of the probe " + name + ", which must be there."}
	case err != nil:
		s.Logger.Error("read the instance of a probe", "instance", name, "error", err)
		return &refusal{http.StatusServiceUnavailable, "ServiceUnavailable", "The token cannot be checked right now.", time.Second}
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return nil // it has been answered
	}
	c := newConnection(conn, r.Header.Get(startHeader))
	t := s.target(instance)
	if t == nil { // the lead has just ended
		go c.leave()
		return nil
	}
	s.Logger.Info("a probe came", "instance", name, "cluster", t.cluster, "from", from)
	t.replace(c, instance.ProbeStart())
	return nil
}

// errWrong means that there is no such probe, or that its token is another.
var errWrong = errors.New("no such probe, or not its token")

// authenticate returns the instance of the probe that sent a request.
func (s *Server) authenticate(r *http.Request, name string) (*v1alpha1.ServiceInstance, error) {
	token, sent := callers.Bearer(r)
	if !sent {
		return nil, errWrong
	}
	instance := &v1alpha1.ServiceInstance{}
	err := s.Hub.Get(r.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, instance)
	if apierrors.IsNotFound(err) {
		return nil, errWrong
	}
	if err != nil {
		return nil, err
	}
	if instance.MeasuredCluster() == "" || !instance.DeletionTimestamp.IsZero() {
		return nil, errWrong
	}
	secrets, err := workload.UnsealInstance(instance, s.Keys)
	if err != nil {
		return nil, err
	}
	if want, ok := secrets[v1alpha1.ProbeSecret]; !ok || !want.Equal(seal.Redact([]byte(token))) {
		return nil, errWrong
	}
	return instance, nil
}
