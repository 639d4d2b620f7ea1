package answers

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Pin is the object by whose UID a cluster is known. It is safe for concurrent use.
type Pin struct {
	// Path of the object, for instance "/api/v1/namespaces/kube-system"; Kind is its kind.
	Path, Kind string
	// For is how long a cluster that has shown its identity need not show it again.
	For time.Duration

	mu    sync.Mutex
	uid   string
	shown time.Time
}

// KubeSystem pins a cluster by its namespace kube-system.
func KubeSystem() *Pin {
	return &Pin{Path: "/api/v1/namespaces/kube-system", Kind: "Namespace", For: time.Second}
}

// Set says which cluster it is. Before that nothing is checked.
func (p *Pin) Set(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uid, p.shown = uid, time.Now()
}

// UID is that of Set.
func (p *Pin) UID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uid
}

// confirm has the cluster show its identity, unless it has done so a moment ago; *doubt
// where it is another one.
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

// Stranger says that a cluster is not the one that it was.
func Stranger(was, is string) string {
	return fmt.Sprintf("it is another cluster than before: its UID is %q instead of %q", is, was)
}
