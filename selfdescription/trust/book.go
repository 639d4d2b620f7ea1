package trust

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Book holds the current Picture for verification. Its zero value trusts nobody.
type Book struct {
	picture atomic.Pointer[Picture]

	mu      sync.Mutex // held during Refresh
	version uint64     // of the resources that the picture was made from
}

// Picture returns the latest one.
func (b *Book) Picture() *Picture {
	if t := b.picture.Load(); t != nil {
		return t
	}
	return &Picture{}
}

// Keys returns the keys that the operator configured for a DID; for did.Resolver.
func (b *Book) Keys(did string) (*jose.JSONWebKeySet, bool) {
	keys, ok := b.Picture().keys[did]
	return keys, ok
}

// Hosts reports whether a host is that of a known provider, consumer or issuer of which the operator configured no keys; for
// did.Resolver.
func (b *Book) Hosts(host string) bool { return b.Picture().keyHosts[host] }

// ListHosts reports whether a host is that of a known provider, consumer or issuer; for Statuses.
func (b *Book) ListHosts(host string) bool { return b.Picture().listHosts[host] }

// Refresh reads the cache, and makes a new picture if something has changed.
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
