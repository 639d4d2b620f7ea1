package trust

import (
	"context"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

// statusFor is how long a status list is used before it is fetched again.
const statusFor = 10 * time.Minute

// Statuses fetches status lists through the same guarded client as keys, and keeps them for ten
// minutes. It keeps nothing that has not the form of a list; the verifier checks signatures. A
// list that cannot be fetched after that is an error: the caller decides how long its earlier
// result remains valid. Lists for the credentials of one issuer that take too long hold up no others.
type Statuses struct {
	// Client that fetches, and the hosts that may be asked.
	Client *http.Client
	Hosts  func(host string) bool
	Clock  clock.PassiveClock

	lists did.Cache[statusList]
}

// statusList is a status list as it was fetched.
type statusList string

// Size implements did.Sized.
func (l statusList) Size() int {
	if !selfdescription.IsStatusList(string(l)) {
		return 0
	}
	return len(l)
}

// StatusList implements selfdescription.StatusSource.
func (s *Statuses) StatusList(ctx context.Context, issuer, url string) (string, error) {
	if err := did.Check(s.Hosts, url); err != nil {
		return "", err
	}
	want := did.Wanted{Key: url, Party: issuer, Fresh: statusFor, Most: statusFor}
	list, err := s.lists.Get(ctx, want, s.Clock.Now(), func(ctx context.Context) (statusList, error) {
		raw, err := did.Fetch(ctx, s.Client, s.Hosts, url, selfdescription.MaxStatusListToken)
		return statusList(raw), err
	})
	return string(list), err
}
