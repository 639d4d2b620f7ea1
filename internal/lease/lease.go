package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// Durations of an election; see leaderelection.LeaderElectionConfig.
type Durations struct {
	// Lease is how long the others wait for a renewal before one of them takes over.
	Lease time.Duration
	// Renew is how long the leader tries to renew before it gives up. It must be shorter
	// than Lease: the difference is the margin for clocks that drift and requests under way.
	Renew time.Duration
	// Retry is the time between two renewals.
	Retry time.Duration
}

// Of returns the durations for a lease of some length: Lease, Renew and Retry in the ratio 10 :
// 7 : 2.
func Of(lease time.Duration) Durations {
	return Durations{Lease: lease, Renew: lease * 7 / 10, Retry: lease / 5}
}

// Lease is a replica's part in the election: the lock that client-go's elector renews, and what
// the replica may conclude from it. It is safe for concurrent use.
type Lease struct {
	resourcelock.Interface // the Lease in the hub

	read  func(context.Context) (holder, error)
	clock func() time.Duration
	renew time.Duration

	mu sync.Mutex
	// term of the replica as leader; nil before it is elected.
	term *holder
	// until is when the replica stops regarding itself as the leader unless it renews, on
	// clock.
	until time.Duration
	// next is the read of the Lease that has not begun yet. running is true while another read
	// is under way.
	next    *reading
	running bool
}

// holder is the identity that holds the Lease, and how many times the Lease has changed hands.
// No two terms are equal: every process has its own identity.
type holder struct {
	identity    string
	transitions int
}

func (h holder) String() string { return fmt.Sprintf("%s/%d", h.identity, h.transitions) }

// reading is one read of the Lease. All callers that came before it began wait for it.
type reading struct {
	done chan struct{}
	err  error
}

// ErrNotLeading means that another replica may lead.
var ErrNotLeading = errors.New("this replica is not the leader, or has not renewed its lease in time: another one may lead")

// New returns this replica's part in the election by the Lease of that name. It sends no
// request to the hub. The config must not have a Fence.
func New(config *rest.Config, namespace, name string, durations Durations) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = max(durations.Renew/2, time.Second) // one hung request must not lose the lead
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	l := &Lease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		clock: sinceBoot, renew: durations.Renew,
	}
	l.read = func(ctx context.Context) (holder, error) {
		// Without a resource version the API server answers with the latest committed state.
		lease, err := leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return holder{}, err
		}
		return holder{ptr.Deref(lease.Spec.HolderIdentity, ""), int(ptr.Deref(lease.Spec.LeaseTransitions, 0))}, nil
	}
	return l, nil
}

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// write records since when the replica leads. A second term is refused: the state of the process
// belongs to the first term, so the process has to end and start anew.
func (l *Lease) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	wanted, start := holder{record.HolderIdentity, record.LeaderTransitions}, l.clock()
	releases := wanted.identity != l.Identity()
	l.mu.Lock()
	again := l.term != nil && *l.term != wanted && !releases
	if releases {
		l.until = 0
	}
	l.mu.Unlock()
	if again {
		return fmt.Errorf("lead again as %s after %s: %w", wanted, l.term, ErrNotLeading)
	}
	if err := write(); err != nil || releases {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.until = &wanted, start+l.renew // start is before the request: the other replicas count from a later time
	return nil
}

// Term returns the unique name of the replica's term; empty before it is elected.
func (l *Lease) Term() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil {
		return ""
	}
	return l.term.String()
}

// leads reports whether the replica may regard itself as the leader. It sends no request.
func (l *Lease) leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term != nil && l.clock() < l.until
}

// Confirm returns nil if the hub answered, after Confirm was called, that this replica holds
// the Lease. The next leader was then not yet elected when Confirm was called, so it sees
// everything committed before. Calls at the same time share a request.
func (l *Lease) Confirm(ctx context.Context) error {
	l.mu.Lock()
	r := l.next
	if r == nil {
		r = &reading{done: make(chan struct{})}
		l.next = r
	}
	if !l.running {
		l.running = true
		go l.readAll()
	}
	l.mu.Unlock()
	select {
	case <-ctx.Done():
		return fmt.Errorf("confirm the lead: %w", ctx.Err())
	case <-r.done:
		return r.err
	}
}

// readAll reads the Lease as long as a caller waits for a read that has not begun.
func (l *Lease) readAll() {
	for {
		l.mu.Lock()
		r, term := l.next, l.term
		l.next, l.running = nil, r != nil
		l.mu.Unlock()
		if r == nil {
			return
		}
		now, err := l.read(context.Background()) // bounded by the client's own timeout
		switch {
		case err != nil:
			r.err = fmt.Errorf("confirm the lead: %w", err)
		case term == nil || now != *term:
			r.err = fmt.Errorf("confirm the lead: the lease is held by %s: %w", now, ErrNotLeading)
		}
		close(r.done)
	}
}
