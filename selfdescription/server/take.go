package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// maxStored and maxStoredBytes limit the credentials that the hub has of one presenter.
const (
	maxStored      = 5000
	maxStoredBytes = 32 << 20
)

// take stores verified credentials for a presenter: all of them, or none if one was withdrawn or stays another's, or if the
// presenter would have too many. On this replica, presentations of one presenter are taken one after the other, so that the limits hold.
func (s *server) take(ctx context.Context, who v1alpha1.Presenter, credentials []string) error {
	turn, _ := s.turns.LoadOrStore(who, &sync.Mutex{})
	turn.(*sync.Mutex).Lock()
	defer turn.(*sync.Mutex).Unlock()
	beside := setOf(credentials)
	for _, compact := range credentials {
		if err := s.notWithdrawn(ctx, compact); err != nil {
			return err
		}
		if err := s.notAnothers(ctx, compact, who, beside); err != nil {
			return err
		}
	}
	if err := s.room(ctx, who, credentials); err != nil {
		return err
	}
	for _, compact := range credentials {
		if err := s.keep(ctx, compact, who, beside); err != nil {
			return err
		}
	}
	return nil
}

// presentedSet has the issuers of verified credentials that are presented together.
type presentedSet map[selfdescription.Digest]string

func setOf(credentials []string) presentedSet {
	set := presentedSet{}
	for _, compact := range credentials {
		if c, err := selfdescription.Parse(compact); err == nil {
			set[c.Digest] = c.Issuer
		}
	}
	return set
}

// room refuses credentials if the hub does not have them and the presenter would have too many with them. It goes by the
// cache: what is stored while that lags, or on another replica, may exceed the limits by a few presentations.
func (s *server) room(ctx context.Context, who v1alpha1.Presenter, credentials []string) error {
	added := map[string]int{} // bytes, by name
	for _, compact := range credentials {
		added[v1alpha1.SelfDescriptionName(selfdescription.DigestOf(compact))] = len(compact)
	}
	var list v1alpha1.SelfDescriptionList
	if err := s.Hub.List(ctx, &list, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list credentials: %w", err)
	}
	count, bytes, next := 0, 0, time.Time{}
	for i := range list.Items {
		sd := &list.Items[i]
		if sd.Spec.Presenter != who {
			continue // the presenter may take it over
		}
		if delete(added, sd.Name); !sd.IsPresented() {
			continue
		}
		count, bytes = count+1, bytes+len(sd.Spec.Credential)
		if at := sd.RemovedAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if len(added) == 0 {
		return nil
	}
	for _, size := range added {
		count, bytes = count+1, bytes+size
	}
	if count <= maxStored && bytes <= maxStoredBytes {
		return nil
	}
	remedy := "Leave some out; none of them has an end, and the broker's operator can delete any."
	if !next.IsZero() {
		remedy = fmt.Sprintf("Leave some out, or wait until the next of them is removed at %s; the broker's operator can delete any.", next.UTC().Format(time.RFC3339))
	}
	return &Error{http.StatusForbidden, fmt.Sprintf("Nothing was taken: %s would have %d credentials of %d bytes together here; at most %d and %d are allowed. %s",
		who, count, bytes, maxStored, maxStoredBytes, remedy)}
}
