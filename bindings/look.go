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

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
)

// lookPatience bounds one look, so that a cluster that does not answer keeps nobody waiting.
const lookPatience = 10 * time.Second

// sight is what one look at an instance found.
type sight struct {
	sockets []socket
	// absent says what was not found, and why.
	absent []string
	// pending says that Liqo has yet to give an address, which takes it a moment.
	pending bool
	// unpeered says that something waits for a peering, which the hub knows of.
	unpeered bool
	// unread says that a cluster without peering could not be read; what was there stays.
	unread bool
}

// look finds the endpoints of an instance that is delivered, as the consumer reaches them.
// What keeps it from that is said in the result, and never an error.
func (c *Controller) look(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) sight {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	l := &looker{Controller: c, binding: b, namespace: v1alpha1.MemberNamespace(b.Spec.InstanceName), members: map[string]client.Client{}, legs: map[leg]verdict{}}
	if !isPeered(instance) {
		l.exposed(ctx, clustersOf(instance), isMade(instance))
		return l.sight
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
			l.say(ctx, l.hubPods(ctx, p))
		case p.Peering.Node != "":
			l.say(ctx, l.nodePods(ctx, p))
		default:
			l.say(ctx, l.direct(ctx, p))
		}
	}
	l.bound()
	if len(l.sockets) == 0 && len(l.absent) == 0 {
		l.absent = append(l.absent, "no Service and no pod of the instance is ready")
	}
	return l.sight
}

// looker is one look.
type looker struct {
	*Controller
	sight
	binding   *v1alpha1.ServiceBinding
	namespace string
	members   map[string]client.Client
	legs      map[leg]verdict
}

// absentError says why there is no endpoint, in words for end users.
type absentError struct{ reason string }

func (e *absentError) Error() string { return e.reason }

func absent(format string, values ...any) error {
	return &absentError{reason: fmt.Sprintf(format, values...)}
}

// unreadError is a failure to read something on a cluster. Its text is for the log.
type unreadError struct {
	cluster, what string
	err           error
}

func (e *unreadError) Error() string {
	return fmt.Sprintf("read %s on %s: %v", e.what, e.cluster, e.err)
}

func (e *unreadError) Unwrap() error { return e.err }

// reason is what end users may read: what and where, without the words of other people's
// API servers.
func (e *unreadError) reason() string {
	switch {
	case apierrors.IsForbidden(e.err):
		return fmt.Sprintf("Sluice may not read %s on %s", e.what, e.cluster)
	case meta.IsNoMatchError(e.err):
		return "Liqo is not installed on " + e.cluster
	default:
		return fmt.Sprintf("%s on %s could not be read", e.what, e.cluster)
	}
}

// say records why something was not found.
func (l *looker) say(ctx context.Context, err error) {
	if err == nil {
		return
	}
	reason := "something could not be read"
	var known *absentError
	var unread *unreadError
	switch {
	case errors.As(err, &known):
		reason = known.reason
	case errors.As(err, &unread):
		reason = unread.reason()
	}
	log.FromContext(ctx).V(1).Info("no endpoints", "binding", l.binding.Name, "reason", err.Error())
	if !slices.Contains(l.absent, reason) {
		l.absent = append(l.absent, reason)
	}
}

// member is a client of a cluster that has Liqo.
func (l *looker) member(ctx context.Context, name string) (client.Client, error) {
	if c, ok := l.members[name]; ok {
		return c, nil
	}
	cluster, err := l.Connections.Cluster(ctx, name)
	if err != nil {
		return nil, absent("%s is not in the inventory", name)
	}
	if meta.IsStatusConditionFalse(cluster.Status.Conditions, v1alpha1.ConditionReachable) {
		return nil, absent("%s does not answer", name)
	}
	connection, err := l.Connections.Open(ctx, cluster)
	if err != nil {
		return nil, absent("%s does not answer", name)
	}
	typed, err := connection.Typed(liqo.Scheme)
	if err != nil {
		return nil, err
	}
	l.members[name] = typed
	return typed, nil
}

// exposed finds Services that clusters expose, on all of them at once.
func (l *looker) exposed(ctx context.Context, clusters []string, made bool) {
	if made {
		return // the consumer's own affair, in a cluster of its own
	}
	found := make([][]socket, len(clusters))
	var group errgroup.Group
	for i, cluster := range clusters {
		group.Go(func() (err error) {
			found[i], err = l.exposedOn(ctx, cluster)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		log.FromContext(ctx).V(1).Info("exposed Services stay as they were", "binding", l.binding.Name, "reason", err.Error())
		l.unread = true
	}
	l.sockets = slices.Concat(found...)
	l.bound()
}

// bound leaves out what is too much, and says so.
func (l *looker) bound() {
	var cut int
	if l.sockets, cut = bounded(l.sockets); cut > 0 {
		l.absent = append(l.absent, fmt.Sprintf("%d hosts more than can be listed (%d hosts with %d ports together)", cut, maxHosts, maxSockets))
	}
}
