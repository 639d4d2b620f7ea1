package measure

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/requeue"
)

// Controller makes Sluice's own instances of probes those that the policies ask for. An instance's name follows from its
// cluster, so that there is one for each, whatever is repeated.
type Controller struct {
	// Client writes to the hub, and reads from the cache: a stale read fails when it is written.
	Client client.Client
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Catalog that knows the plans of the probes.
	Catalog *catalog.Catalog
	// Clock; nil means the real one.
	Clock clock.PassiveClock

	// probes selects the instances of probes.
	probes client.ListOption
}

const (
	// field is the index of the manager's cache for the instances of probes.
	field = "measure"
	// lookEvery is how often is looked without an event: the catalog may have changed.
	lookEvery = time.Minute
	// orderAgain is the age at which a probe that could not be placed is ordered again.
	orderAgain = 10 * time.Minute
	// startEvery is the time between two new pods of a probe.
	startEvery = time.Hour
)

// SetupWithManager registers the controller, which runs on the leader only, and its index.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.probes = client.MatchingFields{field: "true"}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.ServiceInstance{}, field, func(o client.Object) []string {
		if isProbe(o) {
			return []string{"true"}
		}
		return nil
	}); err != nil {
		return err
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: "probes"}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("measure").
		Watches(&v1alpha1.PlacementPolicy{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.MemberCluster{}, all, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, reachedAnew))).
		Watches(&v1alpha1.ServiceInstance{}, all, builder.WithPredicates(predicate.NewPredicateFuncs(isProbe))).
		WithOptions(controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](100*time.Millisecond, 30*time.Second)}).
		Complete(requeue.OnConflict(c))
}

func isProbe(o client.Object) bool { return o.(*v1alpha1.ServiceInstance).MeasuredCluster() != "" }

// reachedAnew passes member clusters that answer, or do not any more.
var reachedAnew = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return answers(e.ObjectOld.(*v1alpha1.MemberCluster)) != answers(e.ObjectNew.(*v1alpha1.MemberCluster))
}}

func answers(cluster *v1alpha1.MemberCluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionReachable)
}

// Reconcile orders the probes that are missing, and changes and removes those that are there, as the policies say.
func (c *Controller) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var has v1alpha1.ServiceInstanceList
	if err := c.Client.List(ctx, &has, client.InNamespace(c.Namespace), c.probes); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the probes: %w", err)
	}
	wanted, err := c.wanted(ctx, has.Items)
	if err != nil {
		return ctrl.Result{}, err
	}
	var problems []error
	for i := range has.Items {
		instance := &has.Items[i]
		cluster := instance.MeasuredCluster()
		w := wanted[cluster]
		delete(wanted, cluster)
		if err := c.adjust(ctx, instance, w); err != nil {
			problems = append(problems, fmt.Errorf("probe of cluster %s: %w", cluster, err))
		}
	}
	for cluster, w := range wanted {
		if err := c.order(ctx, w); err != nil {
			problems = append(problems, fmt.Errorf("probe of cluster %s: %w", cluster, err))
		}
	}
	return ctrl.Result{RequeueAfter: lookEvery}, errors.Join(problems...)
}

// wish has the result of all policies for one cluster.
type wish struct {
	// instance to be there; nil if problem says why it is not known.
	instance *v1alpha1.ServiceInstance
	problem  error
	// answers reports whether the cluster does.
	answers bool
}

// wanted returns what the policies ask for, by the names of the clusters. Of several policies that select a cluster the
// first by name counts. The instances are those that are there.
func (c *Controller) wanted(ctx context.Context, has []v1alpha1.ServiceInstance) (map[string]*wish, error) {
	var policies v1alpha1.PlacementPolicyList
	if err := c.Client.List(ctx, &policies, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list placement policies: %w", err)
	}
	measuring := slices.DeleteFunc(policies.Items, func(p v1alpha1.PlacementPolicy) bool { return p.Spec.Measure == nil || !p.DeletionTimestamp.IsZero() })
	wanted := map[string]*wish{}
	if len(measuring) == 0 {
		return wanted, nil
	}
	slices.SortFunc(measuring, func(x, y v1alpha1.PlacementPolicy) int { return strings.Compare(x.Name, y.Name) })
	var clusters v1alpha1.MemberClusterList
	if err := c.Client.List(ctx, &clusters, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list member clusters: %w", err)
	}
	there := map[string]*v1alpha1.ServiceInstance{}
	for i := range has {
		there[has[i].MeasuredCluster()] = &has[i]
	}
	for i := range measuring {
		selector, err := metav1.LabelSelectorAsSelector(&measuring[i].Spec.Measure.Clusters)
		if err != nil {
			return nil, fmt.Errorf("policy %s: measure.clusters: %w", measuring[i].Name, err)
		}
		for j := range clusters.Items {
			cluster := &clusters.Items[j]
			if wanted[cluster.Name] != nil || !takesProbes(cluster) || !selector.Matches(labels.Set(cluster.SelectorLabels())) {
				continue
			}
			w := &wish{answers: answers(cluster)}
			start := ""
			if i := there[cluster.Name]; i != nil {
				start = c.start(i, w.answers)
			}
			if w.instance, w.problem = c.instance(measuring[i].Spec.Measure, cluster.Name, start); w.problem != nil {
				w.problem = fmt.Errorf("policy %s: measure: %w", measuring[i].Name, w.problem)
			}
			wanted[cluster.Name] = w
		}
	}
	return wanted, nil
}

// takesProbes reports whether a cluster runs workloads of others, and stays.
func takesProbes(c *v1alpha1.MemberCluster) bool {
	return c.Sells() && c.DeletionTimestamp.IsZero() && !c.IsDraining()
}

// start returns the start that an instance should have: a new one, so that its pod is replaced, if the last one was asked
// for long enough ago and the cluster answers. It begins with the time, and cannot be guessed before it is written.
func (c *Controller) start(i *v1alpha1.ServiceInstance, answers bool) string {
	last := v1alpha1.CreatedOf(i).Time
	if at, err := time.Parse(time.RFC3339, strings.SplitN(i.ProbeStart(), "/", 2)[0]); err == nil {
		last = at
	}
	if !answers || !i.IsSettled() || c.Clock.Since(last) < startEvery {
		return i.ProbeStart()
	}
	return c.Clock.Now().UTC().Format(time.RFC3339) + "/" + rand.Text()
}

// instance returns the instance of a cluster's probe, with a start if it is not empty and the plan has that parameter.
func (c *Controller) instance(m *v1alpha1.Measure, cluster, start string) (*v1alpha1.ServiceInstance, error) {
	plan, err := c.Catalog.Snapshot().Plan(m.ServiceID, m.PlanID)
	if err != nil {
		return nil, err
	}
	if plan.Workload == nil || !slices.ContainsFunc(plan.Workload.Secrets, func(s v1alpha1.WorkloadSecret) bool { return s.Name == v1alpha1.ProbeSecret }) {
		return nil, fmt.Errorf("plan %s has no workload with a secret %s, so it runs no probe", plan.Name, v1alpha1.ProbeSecret)
	}
	parameters := map[string]any{}
	if m.Parameters != nil {
		if err := json.Unmarshal(m.Parameters.Raw, &parameters); err != nil {
			return nil, fmt.Errorf("parameters: want an object: %w", err)
		}
	}
	if _, takes := plan.Workload.Parameters[v1alpha1.ProbeStart]; takes && start != "" {
		parameters[v1alpha1.ProbeStart] = start
	}
	parameters["selector"] = map[string]string{v1alpha1.LabelCluster: cluster}
	raw, err := json.Marshal(parameters)
	if err != nil {
		return nil, err
	}
	if err := plan.ValidateCreate(raw); err != nil {
		return nil, err
	}
	return plan.Own(c.Namespace, v1alpha1.ProbeID(cluster), map[string]string{v1alpha1.LabelMeasure: cluster}, raw), nil
}

// adjust changes or removes an instance that is there; w is nil if no policy asks for it.
func (c *Controller) adjust(ctx context.Context, instance *v1alpha1.ServiceInstance, w *wish) error {
	switch {
	case !instance.DeletionTimestamp.IsZero():
		return nil // the end of it brings the next look
	case w == nil:
		return c.remove(ctx, instance, "no policy asks for it")
	case w.problem != nil:
		return w.problem // it stays until it is known what is wanted
	case instance.Spec.ServiceID != w.instance.Spec.ServiceID:
		return c.remove(ctx, instance, "another service is asked for")
	case instance.Status.IsFailedProvision() && c.Clock.Since(v1alpha1.CreatedOf(instance).Time) >= orderAgain:
		return c.remove(ctx, instance, instance.Status.Operation.Description)
	case !instance.IsSettled() || isSame(&instance.Spec.Desired, &w.instance.Spec.Desired):
		return nil
	}
	log.FromContext(ctx).Info("Changing a probe", "cluster", instance.MeasuredCluster())
	changed := instance.DeepCopy()
	changed.Spec.Desired = w.instance.Spec.Desired
	return c.Client.Update(ctx, changed)
}

// isSame reports whether a state on the hub, which writes JSON in its own way, is the wanted one.
func isSame(has, want *v1alpha1.InstanceState) bool {
	var x, y any
	return has.PlanID == want.PlanID && has.MaintenanceVersion == want.MaintenanceVersion &&
		json.Unmarshal(has.Raw(), &x) == nil && json.Unmarshal(want.Raw(), &y) == nil && reflect.DeepEqual(x, y)
}

func (c *Controller) remove(ctx context.Context, instance *v1alpha1.ServiceInstance, why string) error {
	log.FromContext(ctx).Info("Removing a probe", "cluster", instance.MeasuredCluster(), "reason", why)
	return client.IgnoreNotFound(c.Client.Delete(ctx, instance, client.Preconditions{UID: ptr.To(instance.UID)})) // not a new one of the same name
}

// order creates an instance, unless its cluster does not answer.
func (c *Controller) order(ctx context.Context, w *wish) error {
	switch {
	case w.problem != nil:
		return w.problem
	case !w.answers:
		return nil
	}
	log.FromContext(ctx).Info("Ordering a probe", "cluster", w.instance.MeasuredCluster())
	if err := c.Client.Create(ctx, w.instance); err != nil && !apierrors.IsAlreadyExists(err) { // the cache may not show it yet
		return err
	}
	return nil
}
