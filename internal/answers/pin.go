package answers

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Pin identifies a cluster by the UID of one object. It is safe for concurrent use.
type Pin struct {
	// Path of the object, for instance "/api/v1/namespaces/kube-system"; Kind is its kind.
	Path, Kind string
	// For is how long a confirmed identity is valid before it is checked again.
	For time.Duration

	mu    sync.Mutex
	uid   string
	shown time.Time
}

// KubeSystem pins a cluster by its namespace kube-system.
func KubeSystem() *Pin {
	return &Pin{Path: "/api/v1/namespaces/kube-system", Kind: "Namespace", For: time.Second}
}

// Set records the UID of the cluster. Before Set nothing is checked.
func (p *Pin) Set(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uid, p.shown = uid, time.Now()
}

// UID returns the UID given to Set.
func (p *Pin) UID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uid
}

// confirm checks the identity of the cluster, unless it was checked within Pin.For. It returns
// *doubt if another cluster answers.
func (p *Pin) confirm(t *Transport, like *http.Request) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	uid, shown := p.uid, p.shown
	p.mu.Unlock()
	start := time.Now()
	if uid == "" || start.Sub(shown) < p.For {
		return nil
	}
	var h head
	if err := t.get(like, p.Path, p.Kind, &h); err != nil {
		return err
	}
	if h.Metadata.UID != uid {
		return doubtful("%s", Stranger(uid, h.Metadata.UID))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown = start
	return nil
}

// Stranger is the message that another cluster answers than before, with both UIDs.
func Stranger(was, is string) string {
	return fmt.Sprintf("it is not the same cluster as before: its UID is %q instead of %q", is, was)
}
