package claims

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// shop is a broker with something in front of it that looks at the requests.
type shop struct {
	url    string
	broker http.Handler
	clock  clock.PassiveClock

	mu       sync.Mutex
	there    map[string]bool
	requests []*http.Request
	// front answers instead of the broker if it returns true.
	front func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool
}

func newShop(t *testing.T, broker http.Handler) *shop {
	s := &shop{broker: broker, there: map[string]bool{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// set sets the front.
func (s *shop) set(front func(http.ResponseWriter, *http.Request, http.Handler) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.front = front
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	front := s.front
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	watched := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		s.broker.ServeHTTP(answer, r)
		s.note(r, answer.Code)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(times.ReplaceAllFunc(answer.Body.Bytes(), s.shift))
	})
	if front == nil || !front(w, r, watched) {
		watched.ServeHTTP(w, r)
	}
}

// times matches the times in answers.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.0Z`)

// shift returns a time of the broker, whose clock is the real one, by the clock of the test.
func (s *shop) shift(at []byte) []byte {
	parsed, err := time.Parse(time.RFC3339Nano, string(at))
	if err != nil {
		return at
	}
	return []byte(parsed.Add(s.clock.Since(time.Now())).Format("2006-01-02T15:04:05.0Z"))
}

// note remembers what the broker has.
func (s *shop) note(r *http.Request, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch key := strings.TrimSuffix(r.URL.Path, "/last_operation"); {
	case r.Method == http.MethodPut && code < 300:
		s.there[key] = true
	case r.Method == http.MethodDelete && (code == http.StatusOK || code == http.StatusGone), r.Method == http.MethodGet && code == http.StatusGone:
		delete(s.there, key)
	}
}

// left returns what the broker has.
func (s *shop) left() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.there {
		keys = append(keys, key)
	}
	return keys
}

// counts returns how many instances, and bindings, the broker has.
func (s *shop) counts() (instances, bindings int) {
	for _, key := range s.left() {
		if strings.Contains(key, "service_bindings") {
			bindings++
		} else {
			instances++
		}
	}
	return instances, bindings
}
