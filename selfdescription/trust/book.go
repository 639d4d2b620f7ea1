package trust

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Book holds the Picture of the moment for those who look keys up while they verify.
// Its zero value knows nobody.
type Book struct {
	picture atomic.Pointer[Picture]

	mu      sync.Mutex // of those who refresh it
	version uint64     // of the resources that the picture is of
}

// Picture returns the last one read.
func (b *Book) Picture() *Picture {
	if t := b.picture.Load(); t != nil {
		return t
	}
	return &Picture{}
}

// Keys returns the keys that a DID was given by the operator; for did.Resolver.
func (b *Book) Keys(did string) (*jose.JSONWebKeySet, bool) {
	keys, ok := b.Picture().keys[did]
	return keys, ok
}

// Hosts tells whether somebody the operator knows is at home there; for did.Resolver.
func (b *Book) Hosts(host string) bool { return b.Picture().hosts[host] }

// Refresh looks at the cache, and takes another picture if something has changed there.
func (b *Book) Refresh(ctx context.Context, hub client.Reader, namespace string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := read(ctx, hub, namespace)
	if err != nil {
		return err
	}
	if version := r.version(); version != b.version || b.picture.Load() == nil {
		b.picture.Store(r.picture())
		b.version = version
	}
	return nil
}
