package bindings

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// defaultRefresh is the interval at which the endpoints of a binding with peering are checked.
	defaultRefresh = 30 * time.Second
	// unpeeredRefreshes is the factor for the interval of bindings without peering.
	unpeeredRefreshes = 10
	// peeringCheck is the interval of checks while a peering is not ready; they need only the hub.
	peeringCheck = 5 * time.Second
	// addressCheck is the interval of checks while Liqo has not given an address.
	addressCheck = 500 * time.Millisecond
	// hookCheck is the interval of checks while a hook of a workload runs.
	hookCheck = 200 * time.Millisecond
	// addressPatience is how long a bind waits for such an address; after that, a refresh adds the
	// endpoints.
	addressPatience = 10 * time.Second
)

// refresh finds the endpoints of a successful binding, and writes them if they have
// changed. If its account is lost, for instance with the namespace, other credentials are issued.
func (c *Controller) refresh(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (reconcile.Result, error) {
	if poolOf(instance) != nil {
		return c.refreshPool(ctx, b, instance)
	}
	if isMade(instance) || upstreamOf(instance) != nil {
		if !c.recordExpiry(b) {
			return c.nextCheck(b, instance, findings{}), nil
		}
		return c.nextCheck(b, instance, findings{}), c.writeStatus(ctx, b)
	}
	var servers []string
	if workloadOf(instance) == nil { // consumers of a workload are not led to the API server
		var err error
		if servers, err = c.serversOf(b); err != nil {
			return reconcile.Result{}, err
		}
	}
	found, before := c.findEndpoints(ctx, b, instance), b.Status.DeepCopy()
	var unread error
	if !found.pending && !found.unpeered { // which is looked at often
		cluster := ""
		if cluster, unread = c.lostAccount(ctx, b, instance); cluster != "" {
			log.FromContext(ctx).Info("the account of a binding is lost", "binding", b.Name, "cluster", cluster)
			return c.reissue(ctx, b, instance)
		}
	}
	changed, err := recordEndpoints(b, servers, found, isPeered(instance))
	if err != nil {
		return reconcile.Result{}, err
	}
	if found.unread {
		b.Status.Endpoints, b.Status.EndpointsAbsent, b.Status.Services = before.Endpoints, before.EndpointsAbsent, before.Services
		changed = false
	}
	if c.recordExpiry(b) || changed {
		if err := c.writeStatus(ctx, b); err != nil {
			return reconcile.Result{}, err
		}
		log.FromContext(ctx).Info("status changed", "binding", b.Name, "hosts", len(b.Status.Endpoints), "absent", b.Status.EndpointsAbsent)
	}
	return c.nextCheck(b, instance, found), unread // with back-off
}

// nextCheck returns the delay until the next lookup. It is short if a peering or an address
// is about to become ready, and for young bindings, because consumers deploy at about the
// time of the bind. A jitter spreads the lookups of bindings that were made at the same time.
func (c *Controller) nextCheck(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, found findings) reconcile.Result {
	const jitter, often = 0.1, 4 // often is the number of lookups while the age grows by the factor e
	again := c.Refresh
	switch {
	case isMade(instance), isOrderedOn(instance):
		return reconcile.Result{RequeueAfter: c.untilNews(b)}
	case !isPeered(instance):
		again *= unpeeredRefreshes
	case found.pending:
		again = min(again, addressCheck)
	case found.unpeered:
		again = min(again, peeringCheck)
	default:
		again = min(again, max(c.age(b)/often, time.Second))
	}
	return reconcile.Result{RequeueAfter: wait.Jitter(again, jitter)}
}

// recordEndpoints puts the result of a lookup into status and reports whether anything is new. Endpoints
// through a peering come before the API servers, public ones after them.
func recordEndpoints(b *v1alpha1.ServiceBinding, servers []string, found findings, peered bool) (changed bool, err error) {
	sockets, err := serverSockets(servers)
	if err != nil {
		return false, err
	}
	if peered {
		sockets = slices.Concat(found.sockets, sockets)
	} else {
		sockets = slices.Concat(sockets, found.sockets)
	}
	before := b.Status.DeepCopy()
	b.Status.Endpoints = endpointsOf(sockets)
	b.Status.EndpointsAbsent = sentence(found.absent)
	b.Status.Services = servicesOf(sockets)
	return !equality.Semantic.DeepEqual(before, &b.Status), nil
}

// serversOf returns the API servers that the binding's credentials open.
func (c *Controller) serversOf(b *v1alpha1.ServiceBinding) ([]string, error) {
	object, err := c.Keys.Unseal(b.Status.SealedCredentials, sealedFor(b))
	if err != nil {
		return nil, fmt.Errorf("unseal credentials: %w", err)
	}
	var issued struct {
		Clusters []struct {
			Server string `json:"server"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal(object.Reveal(), &issued); err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	var servers []string
	for _, one := range issued.Clusters {
		servers = append(servers, one.Server)
	}
	return servers, nil
}
