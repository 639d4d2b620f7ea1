package osbclient

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/member"
)

// Brokers opens and keeps one client for each member cluster with the driver osb. It is safe for concurrent
// use.
type Brokers struct {
	// Members read the hub, and unseal credentials.
	Members *member.Connections

	mu   sync.Mutex
	open map[string]opened
}

// opened is a client and the digest of everything that it depends on.
type opened struct {
	*Client
	from [sha256.Size]byte
}

// Get returns the client for a broker. Its error is a *member.Error; see member.IsUnknown.
func (b *Brokers) Get(ctx context.Context, name string) (*Client, error) {
	cluster, err := b.Members.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	return b.Open(ctx, cluster)
}

// Open returns the client for a broker, a new one if the broker or its credentials have changed. It sends
// the broker nothing. Its error is a *member.Error.
func (b *Brokers) Open(ctx context.Context, cluster *v1alpha1.MemberCluster) (*Client, error) {
	failed := func(err error) error {
		return &member.Error{Cluster: cluster.Name, Step: "use its description", Err: err, Remedy: "change it with `sluice broker add`"}
	}
	if cluster.Spec.Broker == nil {
		return nil, failed(fmt.Errorf("it is no broker: its driver is %s", cluster.DriverName()))
	}
	document, err := b.Members.Kubeconfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	described, err := json.Marshal(cluster.Spec.Broker)
	if err != nil {
		return nil, failed(err)
	}
	from := sha256.Sum256([]byte(strings.Join([]string{string(cluster.UID), string(described), string(document)}, "\x00")))
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept, ok := b.open[cluster.Name]; ok && kept.from == from {
		return kept.Client, nil
	}
	config := Config{URL: cluster.Spec.Broker.URL, CABundle: []byte(cluster.Spec.Broker.CABundle), PassIdentity: cluster.Spec.Broker.PassIdentity, Wrap: b.Members.Wrap}
	if config.Addresses, err = guarded.ParseAddresses(cluster.Spec.Broker.Addresses); err != nil {
		return nil, failed(err)
	}
	if config.Credentials, err = ParseCredentials(document); err != nil {
		return nil, failed(err)
	}
	client, err := New(config)
	if err != nil {
		return nil, failed(err)
	}
	if b.open == nil {
		b.open = map[string]opened{}
	}
	b.open[cluster.Name] = opened{client, from}
	return client, nil
}

// Forget drops the client for a broker that is gone, and with it the credentials.
func (b *Brokers) Forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, name)
}

// space is the namespace of the ids that Sluice gives to what it orders.
var space = uuid.MustParse("9c0f6a52-5c55-4c0a-9f0e-6f2b7a0d1c11")

// InstanceID returns the id that an instance has at a broker: the same whenever it is asked for. hub is the
// hub's ID.
func InstanceID(hub, broker, instance string) string { return id("instance", hub, broker, instance) }

// BindingID returns the id that a binding has at a broker, likewise.
func BindingID(hub, broker, binding string) string { return id("binding", hub, broker, binding) }

func id(parts ...string) string {
	return uuid.NewSHA1(space, []byte(strings.Join(parts, "/"))).String()
}
