package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

const (
	// platform is the name of Kubernetes in contexts and identities (OSB profile).
	platform = "kubernetes"
	// Recheck is the time between two looks at claims that are as they should be: at Secrets, the catalog, and whether
	// the broker still has the instance.
	Recheck = 5 * time.Minute
	// usualPause is the time between two polls of an operation if the broker gives none.
	usualPause = 2 * time.Second
	// atOnce is the number of claims of a kind that are carried out at the same time.
	atOnce = 8
)

// Controller carries out claims. Its fields must not change after SetupWithManager.
type Controller struct {
	// Client reads and writes the API server, without a cache.
	Client client.Client
	// Broker returns the client of the broker, and Name its name in claims.
	Broker func() *osbclient.Client
	Name   string
	// Cluster is the consumer's cluster.
	Cluster Cluster
	// Overlap is how long a binding lives on after its successor is in the Secret.
	Overlap time.Duration
	// Events gets the transitions of claims; nil means that nobody does.
	Events events.EventRecorder
	// Clock; nil means the real one.
	Clock clock.PassiveClock

	offers offers
}

// Cluster is the consumer's cluster, and who orders there.
type Cluster struct {
	// ID of the cluster: the UID of its namespace kube-system.
	ID string
	// Identity is the user of the controller, as the API server knows it.
	Identity *v1alpha1.OriginatingIdentity
}

// AddToScheme registers the kinds that the controller reads and writes.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(claimsv1.AddToScheme(s), corev1.AddToScheme(s), authenticationv1.AddToScheme(s))
}

// LookUp asks an API server for the id of the cluster and the user of the controller.
func LookUp(ctx context.Context, c client.Client) (Cluster, error) {
	var system corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		return Cluster{}, fmt.Errorf("read the id of the cluster: %w", err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return Cluster{}, fmt.Errorf("ask the API server for the user of this process: %w", err)
	}
	user := review.Status.UserInfo
	value, err := json.Marshal(map[string]any{"username": user.Username, "uid": user.UID, "groups": user.Groups, "extra": user.Extra})
	if err != nil {
		return Cluster{}, fmt.Errorf("encode the user of this process: %w", err)
	}
	return Cluster{ID: string(system.UID), Identity: &v1alpha1.OriginatingIdentity{Platform: platform, Value: runtime.RawExtension{Raw: value}}}, nil
}

// SetupWithManager adds the controllers of both kinds.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	options := controller.Options{
		MaxConcurrentReconciles: atOnce,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](200*time.Millisecond, time.Minute),
	}
	// A pass ends with what it writes: its own writes of a status start no other one.
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(mgr).For(&claimsv1.ServiceClaim{}, changed).WithOptions(options).
		Watches(&claimsv1.BindingClaim{}, handler.EnqueueRequestsFromMapFunc(serviceOf), builder.WithPredicates(released)).
		Complete(reconcile.Func(c.ReconcileService))
	if err != nil {
		return fmt.Errorf("set up service claims: %w", err)
	}
	cached := mgr.GetClient()
	err = ctrl.NewControllerManagedBy(mgr).For(&claimsv1.BindingClaim{}, changed).WithOptions(options).
		Watches(&claimsv1.ServiceClaim{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, service client.Object) []reconcile.Request {
			return bindingsOf(ctx, cached, service)
		})).
		Complete(reconcile.Func(c.ReconcileBinding))
	if err != nil {
		return fmt.Errorf("set up binding claims: %w", err)
	}
	return nil
}

// released lets the events through after which a binding claim keeps nothing at the broker. That of its deletion may show
// it as it was before, with the finalizer.
var released = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !controllerutil.ContainsFinalizer(e.ObjectNew, claimsv1.Finalizer)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return true },
}

// serviceOf returns the service claim of a binding claim.
func serviceOf(_ context.Context, object client.Object) []reconcile.Request {
	binding, ok := object.(*claimsv1.BindingClaim)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: binding.Namespace, Name: binding.Spec.ServiceClaim}}}
}

// bindingsOf returns the binding claims of a service claim.
func bindingsOf(ctx context.Context, cached client.Reader, service client.Object) (requests []reconcile.Request) {
	var all claimsv1.BindingClaimList
	if err := cached.List(ctx, &all, client.InNamespace(service.GetNamespace())); err != nil {
		return nil // the cache is stopping
	}
	for i := range all.Items {
		if all.Items[i].Spec.ServiceClaim == service.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// status is the status of a claim.
type status[S any] interface {
	*S
	DeepCopyInto(*S)
}

// writeStatus writes the status of a claim, unless it is as the API server has it, and remembers that.
func writeStatus[S any, P status[S]](ctx context.Context, c client.Client, claim client.Object, now, stored P) error {
	if equality.Semantic.DeepEqual(stored, now) {
		return nil
	}
	if err := c.Status().Update(ctx, claim); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	now.DeepCopyInto(stored)
	return nil
}

// hold adds the finalizer to a claim, and reports whether that is new. A status that is not written yet is lost then.
func (c *Controller) hold(ctx context.Context, claim client.Object) (bool, error) {
	if !controllerutil.AddFinalizer(claim, claimsv1.Finalizer) {
		return false, nil
	}
	if err := c.Client.Update(ctx, claim); err != nil {
		return false, fmt.Errorf("add the finalizer: %w", err)
	}
	return true, nil
}

// release lets a claim go of which the broker has nothing any more.
func (c *Controller) release(ctx context.Context, claim client.Object) error {
	controllerutil.RemoveFinalizer(claim, claimsv1.Finalizer)
	if err := c.Client.Update(ctx, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("deleted")
	return nil
}

func (c *Controller) now() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock.Now()
}

// context returns the context of orders for a claim (OSB profile, "Kubernetes Context Object").
func (c *Controller) context(claim client.Object) json.RawMessage {
	document, err := json.Marshal(map[string]string{
		"platform": platform, "namespace": claim.GetNamespace(), "clusterid": c.Cluster.ID, "instance_name": claim.GetName(),
	})
	if err != nil {
		return nil // cannot happen: strings always encode
	}
	return document
}

// bindingID returns the id of a claim's binding: the same whenever it is asked for.
func bindingID(claim types.UID, number int64) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%d", claim, number)).String()
}
