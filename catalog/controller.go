package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/internal/workload"
)

// retryAfterConflict gives the cache time to catch up.
const retryAfterConflict = 100 * time.Millisecond

// Controller writes to the status of each ServiceOffering which spec the catalog serves,
// and keeps offerings in use from disappearing. It always judges the whole catalog, because
// offerings can conflict with one another.
type Controller struct {
	// Client reads from the manager's cache and writes to the hub.
	Client client.Client
	// Live reads from the hub without a cache. Uses are counted there, so that new instances are
	// not missed.
	Live client.Reader
	// Namespace of the hub that holds the resources.
	Namespace string
	// Charts that the hub keeps, and where those that it lacks come from.
	Charts   workload.Charts
	Archives Archives
	// Clock tells the time; nil means the system's.
	Clock clock.PassiveClock
}

func (c *Controller) now() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock.Now()
}

// SetupWithManager registers the controller; it runs on the leader only.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	whole := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: "catalog"}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("catalog").
		Watches(&v1alpha1.ServiceOffering{}, whole).
		Watches(&v1alpha1.AddOnPackage{}, whole).
		Watches(&v1alpha1.ServiceInstance{}, whole, builder.WithPredicates(released)).
		Complete(requeue.OnConflict(c))
	if err != nil {
		return fmt.Errorf("set up the catalog controller: %w", err)
	}
	return nil
}

// released passes the events of instances that may free a plan: only these can make a
// refused change of the catalog acceptable.
var released = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return true },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := Uses{}, Uses{}
		before.Add(e.ObjectOld.(*v1alpha1.ServiceInstance))
		now.Add(e.ObjectNew.(*v1alpha1.ServiceInstance))
		return !equality.Semantic.DeepEqual(before, now)
	},
}

// Reconcile judges all offerings and writes the results.
func (c *Controller) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var list v1alpha1.ServiceOfferingList
	if err := c.Client.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list service offerings: %w", err)
	}
	uses := sync.OnceValues(func() (Uses, error) { return c.countUses(ctx) })
	charts := &keeper{Controller: c, ctx: ctx}
	var packages v1alpha1.AddOnPackageList
	if err := c.Client.List(ctx, &packages, client.InNamespace(c.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the packages of add-ons: %w", err)
	}
	completing := &completion{ctx: ctx, packages: packages.Items, archives: c.Archives}
	verdicts, err := judge(list.Items, charts, completing.addOns, uses)
	if err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	var failures []error
	if result.RequeueAfter, err = c.discardCharts(ctx, list.Items); err != nil {
		failures = append(failures, err)
	}
	if charts.failed || completing.failed {
		result.RequeueAfter = retryCharts
	}
	for i := range list.Items {
		offering := &list.Items[i]
		if offering.DeletionTimestamp != nil {
			err = c.retire(ctx, offering, uses)
		} else {
			err = c.record(ctx, offering, verdicts[i])
		}
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			// The cache was behind; the newer version will trigger again.
			result.RequeueAfter = retryAfterConflict
		case err != nil:
			failures = append(failures, fmt.Errorf("service offering %s: %w", offering.Name, err))
		}
	}
	if len(failures) > 0 {
		return ctrl.Result{}, errors.Join(failures...)
	}
	return result, nil
}

// countUses counts instances on the hub without a cache.
func (c *Controller) countUses(ctx context.Context) (Uses, error) {
	uses := Uses{}
	err := pages.Each(ctx, c.Live, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		uses.Add(o.(*v1alpha1.ServiceInstance))
		return nil
	}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, fmt.Errorf("count instances: %w", err)
	}
	return uses, nil
}

// record writes a verdict to the status of an offering. It adds the finalizer first, so
// that a served offering cannot disappear unnoticed.
func (c *Controller) record(ctx context.Context, offering *v1alpha1.ServiceOffering, v verdict) error {
	if controllerutil.AddFinalizer(offering, v1alpha1.Finalizer) {
		if err := c.Client.Update(ctx, offering); err != nil {
			return fmt.Errorf("add finalizer: %w", err)
		}
	}
	status, reason, message := v.condition(offering)
	before := offering.Status.DeepCopy()
	if v.accepted {
		offering.Status.Accepted = v.spec
	}
	return c.writeStatus(ctx, offering, before, status, reason, message)
}

// retire removes the finalizer of a deleted offering once no instance uses it. One that was never accepted has none, although
// those of another offering may have its id.
func (c *Controller) retire(ctx context.Context, offering *v1alpha1.ServiceOffering, uses func() (Uses, error)) error {
	if !controllerutil.ContainsFinalizer(offering, v1alpha1.Finalizer) {
		return nil
	}
	var used map[string]int
	if offering.Status.Accepted != nil {
		counts, err := uses()
		if err != nil {
			return err
		}
		used = counts[offering.Spec.ID]
	}
	if len(used) > 0 {
		message := "deleted, but still in use; new instances are refused: " + describe(offering, used)
		return c.writeStatus(ctx, offering, offering.Status.DeepCopy(), metav1.ConditionFalse, v1alpha1.ReasonDeleting, message)
	}
	controllerutil.RemoveFinalizer(offering, v1alpha1.Finalizer)
	if err := c.Client.Update(ctx, offering); err != nil {
		return fmt.Errorf("remove finalizer: %w", err)
	}
	log.FromContext(ctx).Info("Service offering is gone", "offering", offering.Name)
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, offering *v1alpha1.ServiceOffering, before *v1alpha1.ServiceOfferingStatus, status metav1.ConditionStatus, reason, message string) error {
	v1alpha1.SetCondition(&offering.Status.Conditions, offering.Generation, v1alpha1.ConditionReady, status, reason, message)
	offering.Status.ObservedGeneration = offering.Generation
	if equality.Semantic.DeepEqual(before, &offering.Status) {
		return nil
	}
	if err := c.Client.Status().Update(ctx, offering); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	log.FromContext(ctx).Info("Service offering judged", "offering", offering.Name, "ready", status, "reason", reason, "message", message)
	return nil
}

// describe names the plans in use with their counts.
func describe(offering *v1alpha1.ServiceOffering, used map[string]int) string {
	names := map[string]string{}
	if accepted := offering.Status.Accepted; accepted != nil {
		for _, p := range accepted.Plans {
			names[p.ID] = p.Name
		}
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(used)) {
		name := names[id]
		if name == "" {
			name = id
		}
		parts = append(parts, fmt.Sprintf("plan %s: %s", name, instances(used[id])))
	}
	return strings.Join(parts, "; ")
}
