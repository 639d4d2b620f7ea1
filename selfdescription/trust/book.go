package trust

import (
	"context"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Book holds the Picture of the moment for those who look keys up while they verify.
// Its zero value knows nobody.
type Book struct{ picture atomic.Pointer[Picture] }

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

// Refresh takes it anew from the cache.
func (b *Book) Refresh(ctx context.Context, hub client.Reader, namespace string) error {
	t, err := Read(ctx, hub, namespace)
	if err == nil {
		b.picture.Store(t)
	}
	return err
}
