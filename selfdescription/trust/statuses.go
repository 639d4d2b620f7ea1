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
	// mostStatuses limits how many lists are kept: the last that were used. Only lists named by
	// verified credentials are fetched.
	mostStatuses = 1000
	// mostStatusBytes limits the size of one: a list of the largest size that hardly
	// compresses.
	mostStatusBytes = selfdescription.MaxCredential * 8
)

// Statuses fetches status lists through the same guarded client as keys, and keeps them for ten
// minutes. A list that cannot be fetched after that is an error: the caller decides how long
// its earlier result remains valid.
type Statuses struct {
	// Client that fetches, and the allowed hosts.
	Client *http.Client
	Hosts  func(host string) bool
	Clock  clock.PassiveClock

	mu    sync.Mutex
	lists *simplelru.LRU[string, fetched]
}

type fetched struct {
	compact string
	at      time.Time
}

// StatusList implements selfdescription.StatusSource.
func (s *Statuses) StatusList(ctx context.Context, url string) (string, error) {
	now := s.Clock.Now()
	s.mu.Lock()
	if s.lists == nil {
		s.lists, _ = simplelru.NewLRU[string, fetched](mostStatuses, nil) // an error is about the size
	}
	known, ok := s.lists.Get(url)
	s.mu.Unlock()
	if ok && now.Sub(known.at) < statusFor {
		return known.compact, nil
	}
	raw, err := did.Fetch(ctx, s.Client, s.Hosts, url, mostStatusBytes)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists.Add(url, fetched{string(raw), now})
	return string(raw), nil
}
