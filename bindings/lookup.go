package bindings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
)

// lookupTimeout limits one lookup, so that a cluster that does not answer does not delay
// others.
const lookupTimeout = 10 * time.Second

// findings is the result of a lookup.
type findings struct {
	sockets []socket
	// absent lists the objects that were not found, with the reason.
	absent []string
	// pending reports that Liqo has not given an address yet, which takes it a moment.
	pending bool
	// unpeered reports that a peering is not ready, according to the hub.
	unpeered bool
	// unread reports that something could not be read; the last endpoints stay.
	unread bool
}

// findEndpoints finds the endpoints of a delivered instance, as the consumer reaches them. It
// returns obstacles in the result, never as an error.
func (c *Controller) findEndpoints(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) findings {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	l := &lookup{Controller: c, binding: b, instance: instance, namespace: v1alpha1.MemberNamespace(b.Spec.InstanceName), members: map[string]client.Client{}, legs: map[leg]verdict{}}
	if !isPeered(instance) {
		l.sockets = componentSockets(instance)
		l.public(ctx, instance)
		return l.findings
	}
	placements := instance.Status.Delivered.Decision.Placements
	for i := range placements {
		p := &placements[i]
		switch {
		case p.Peering == nil: // a plan peers all of its placements or none
		case p.Peering.Hub != "":
			if !slices.ContainsFunc(placements[:i], func(o v1alpha1.Placement) bool { return sameHub(&o, p) }) {
				l.hubServices(ctx, p, placements[i:])
			}
			l.recordAbsent(ctx, l.hubPods(ctx, p))
		case p.Peering.Node != "":
			l.recordAbsent(ctx, l.nodePods(ctx, p))
		default:
			l.recordAbsent(ctx, l.direct(ctx, p))
		}
	}
	l.bound()
	l.public(ctx, instance)
	if len(l.sockets) == 0 && len(l.absent) == 0 {
		l.absent = append(l.absent, "no Service and no pod of the instance is ready")
	}
	return l.findings
}

// lookup is one search for the endpoints of a binding.
type lookup struct {
	*Controller
	findings
	binding   *v1alpha1.ServiceBinding
	instance  *v1alpha1.ServiceInstance
	namespace string
	members   map[string]client.Client
	legs      map[leg]verdict
}

// absentError is the reason for a missing endpoint, in words for end users.
type absentError struct {
	reason string
	// ofPool is the reason for consumers of a pool, which names no clusters of the pool.
	ofPool string
}

func (e *absentError) Error() string { return e.reason }

// absent returns the reason for a missing endpoint, which may name clusters.
func absent(format string, values ...any) error {
	return &absentError{fmt.Sprintf(format, values...), "the pool's network is not ready"}
}

// unreadError is a failure to read something on a cluster. Its text is only for the log.
type unreadError struct {
	cluster, what string
	err           error
}

func (e *unreadError) Error() string {
	return fmt.Sprintf("read %s on %s: %v", e.what, e.cluster, e.err)
}

func (e *unreadError) Unwrap() error { return e.err }

// reason returns the part that end users may read: the object and its cluster, as it is shown to them, without messages of
// other organisations' API servers.
func (e *unreadError) reason(shown string) string {
	switch {
	case apierrors.IsForbidden(e.err):
		return fmt.Sprintf("Sluice may not read %s on %s", e.what, shown)
	case meta.IsNoMatchError(e.err):
		return "Liqo is not installed on " + shown
	default:
		return fmt.Sprintf("%s on %s could not be read", e.what, shown)
	}
}

// recordAbsent records the reason why something was not found.
func (l *lookup) recordAbsent(ctx context.Context, err error) {
	if err == nil {
		return
	}
	reason := "something could not be read"
	var known *absentError
	var unread *unreadError
	switch {
	case errors.As(err, &known) && l.instance.Spec.Pool != nil:
		reason = known.ofPool
	case errors.As(err, &known):
		reason = known.reason
	case errors.As(err, &unread):
		reason = unread.reason(shownAs(l.instance, unread.cluster))
	}
	log.FromContext(ctx).V(1).Info("no endpoints", "binding", l.binding.Name, "reason", err.Error())
	if !slices.Contains(l.absent, reason) {
		l.absent = append(l.absent, reason)
	}
}

// member returns a client of a cluster that has Liqo.
func (l *lookup) member(ctx context.Context, name string) (client.Client, error) {
	if c, ok := l.members[name]; ok {
		return c, nil
	}
	cluster, err := l.Connections.Cluster(ctx, name)
	if err != nil {
		return nil, absent("%s is not in the inventory", name)
	}
	silent := &absentError{name + " does not answer", shownAs(l.instance, name) + " does not answer"}
	if meta.IsStatusConditionFalse(cluster.Status.Conditions, v1alpha1.ConditionReachable) {
		return nil, silent
	}
	connection, err := l.Connections.Open(ctx, cluster)
	if err != nil {
		return nil, silent
	}
	typed, err := connection.Typed(liqo.Scheme)
	if err != nil {
		return nil, err
	}
	l.members[name] = typed
	return typed, nil
}

// public adds the public ports of the instance.
func (l *lookup) public(ctx context.Context, instance *v1alpha1.ServiceInstance) {
	found, err := l.publicSockets(ctx, instance)
	if err != nil {
		log.FromContext(ctx).V(1).Info("endpoints stay as they were", "binding", l.binding.Name, "reason", err.Error())
		l.unread = true
	}
	l.sockets = append(l.sockets, found...)
}

// bound drops the hosts beyond the limits and records their number.
func (l *lookup) bound() {
	var cut int
	if l.sockets, cut = bounded(l.sockets); cut > 0 {
		l.absent = append(l.absent, fmt.Sprintf("%d more hosts, which are not listed (at most %d hosts, with %d ports together)", cut, maxHosts, maxSockets))
	}
}
