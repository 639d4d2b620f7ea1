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
	"github.com/sluice-dev/sluice/internal/seal"
)

const (
	// defaultRefresh is how often the endpoints of a binding with peering are looked at.
	defaultRefresh = 30 * time.Second
	// unpeeredRefreshes is how many times as long those of others may wait.
	unpeeredRefreshes = 10
	// peeringCheck is how often a peering is looked at that something waits for; the hub knows.
	peeringCheck = 5 * time.Second
	// addressCheck is how often it is looked whether Liqo has given an address.
	addressCheck = 500 * time.Millisecond
	// addressPatience is how long a bind waits for that; later the endpoints come by themselves.
	addressPatience = 10 * time.Second
)

// refresh looks at the endpoints of a binding that was made, and writes them if they are
// others than before.
func (c *Controller) refresh(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (reconcile.Result, error) {
	if isMade(instance) {
		if !c.sayWhenItEnds(ctx, b) {
			return c.lookAgain(b, instance, sight{}), nil
		}
		return c.lookAgain(b, instance, sight{}), c.writeStatus(ctx, b)
	}
	servers, err := c.serversOf(b)
	if err != nil {
		return reconcile.Result{}, err
	}
	found, before := c.look(ctx, b, instance), b.Status.DeepCopy()
	changed, err := tell(b, servers, found, isPeered(instance))
	if err != nil {
		return reconcile.Result{}, err
	}
	if found.unread {
		b.Status.Endpoints, b.Status.EndpointsAbsent, b.Status.Services = before.Endpoints, before.EndpointsAbsent, before.Services
		changed = false
	}
	if c.sayWhenItEnds(ctx, b) || changed {
		if err := c.writeStatus(ctx, b); err != nil {
			return reconcile.Result{}, err
		}
		log.FromContext(ctx).Info("status changed", "binding", b.Name, "hosts", len(b.Status.Endpoints), "absent", b.Status.EndpointsAbsent)
	}
	return c.lookAgain(b, instance, found), nil
}

// lookAgain says when: soon where something is about to come, and the sooner the younger the
// binding, as consumers deploy about when they bind. Bindings that were made at once are not
// looked at all at once.
func (c *Controller) lookAgain(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, found sight) reconcile.Result {
	const jitter, often = 0.1, 4 // looks while the binding's age grows e-fold
	again := c.Refresh
	switch {
	case isMade(instance):
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

// tell puts what was found into status and reports whether anything is new. The way
// through a peering comes first; what is exposed comes after the API servers.
func tell(b *v1alpha1.ServiceBinding, servers []string, found sight, peered bool) (changed bool, err error) {
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

// serversOf are the API servers that the binding's credentials are for.
func (c *Controller) serversOf(b *v1alpha1.ServiceBinding) ([]string, error) {
	object, err := c.Keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
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
