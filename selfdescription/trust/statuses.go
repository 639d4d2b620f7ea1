package trust

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"k8s.io/utils/clock"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

const (
	// statusFor is how long a status list is used before it is fetched again.
	statusFor = 10 * time.Minute
	// mostStatuses and mostKept limit the lists that are kept, by number and by bytes with their
	// URLs: the last that were used.
	mostStatuses = 1000
	mostKept     = 64 << 20
)

// Statuses fetches status lists through the same guarded client as keys, and keeps them for ten
// minutes. It keeps nothing that has not the form of a list; the verifier checks signatures. A
// list that cannot be fetched after that is an error: the caller decides how long its earlier
// result remains valid.
type Statuses struct {
	// Client that fetches, and the hosts that may be asked.
	Client *http.Client
	Hosts  func(host string) bool
	Clock  clock.PassiveClock

	mu    sync.Mutex
	lists *simplelru.LRU[string, fetched]
	bytes int // of all that are kept
}

type fetched struct {
	compact string
	at      time.Time
}

// StatusList implements selfdescription.StatusSource.
func (s *Statuses) StatusList(ctx context.Context, url string) (string, error) {
	now := s.Clock.Now()
	if compact, ok := s.known(url, now); ok {
		return compact, nil
	}
	raw, err := did.Fetch(ctx, s.Client, s.Hosts, url, selfdescription.MaxStatusListToken)
	if err != nil {
		return "", err
	}
	compact := string(raw)
	if selfdescription.IsStatusList(compact) {
		s.keep(url, fetched{compact, now})
	}
	return compact, nil
}

// known returns a list that was fetched lately.
func (s *Statuses) known(url string, now time.Time) (compact string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		return "", false
	}
	list, ok := s.lists.Get(url)
	return list.compact, ok && now.Sub(list.at) < statusFor
}

// keep keeps a list, and removes others if they are too many, or too large together.
func (s *Statuses) keep(url string, list fetched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists, _ = simplelru.NewLRU(mostStatuses, func(url string, list fetched) { s.bytes -= sizeOf(url, list) }) // an error is about the size
	}
	s.lists.Remove(url)
	s.lists.Add(url, list)
	for s.bytes += sizeOf(url, list); s.bytes > mostKept; {
		s.lists.RemoveOldest()
	}
}

func sizeOf(url string, list fetched) int { return len(url) + len(list.compact) }
