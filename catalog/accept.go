package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Reasons why an offering's spec is not served.
const (
	ReasonInvalid  = "Invalid"  // the spec itself is wrong
	ReasonConflict = "Conflict" // another offering has the id or name
	ReasonInUse    = "InUse"    // instances use a plan that the spec omits
)

// Uses counts the instances of each plan, by service id and plan id. An instance that
// changes from one plan to another counts for both.
type Uses map[string]map[string]int

// Add counts one instance.
func (u Uses) Add(instance *v1alpha1.ServiceInstance) {
	plans := u[instance.Spec.ServiceID]
	if plans == nil {
		plans = map[string]int{}
		u[instance.Spec.ServiceID] = plans
	}
	plans[instance.Spec.Desired.PlanID]++
	if d := instance.Status.Delivered; d != nil && d.State.PlanID != instance.Spec.Desired.PlanID {
		plans[d.State.PlanID]++
	}
}

// verdict is the decision whether an offering's spec is served.
type verdict struct {
	accepted bool
	// spec that is served if it is accepted: the offering's, with the parameters of its charts.
	spec    *v1alpha1.ServiceOfferingSpec
	reason  string
	message string
}

// judge decides which specs are served together. A spec is accepted if it is valid alone,
// shares no id or name with the served specs of other offerings, and keeps every plan that an
// instance uses. If two offerings claim the same id or name, the one that is served already
// keeps it, otherwise the older one. An offering that is being deleted keeps its served spec
// and its ids until it is gone.
//
// The result has the order of offerings. uses is called only if the answer depends on it. addOns completes
// the add-ons of a plan; nil means that they are complete.
func judge(offerings []v1alpha1.ServiceOffering, charts workload.Charts, addOns func(*v1alpha1.ClusterPlan) error, uses func() (Uses, error)) ([]verdict, error) {
	order := make([]int, len(offerings))
	served := make([]*v1alpha1.ServiceOfferingSpec, len(offerings))
	for i := range offerings {
		order[i] = i
		served[i] = offerings[i].Status.Accepted
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &offerings[i], &offerings[j]
		return cmp.Or(
			cmp.Compare(boolInt(served[i] == nil), boolInt(served[j] == nil)),
			v1alpha1.CreatedOf(a).Compare(v1alpha1.CreatedOf(b).Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	verdicts := make([]verdict, len(offerings))
	for _, i := range order {
		if offerings[i].DeletionTimestamp != nil {
			continue
		}
		v, err := judgeOne(i, &offerings[i], served, charts, addOns, uses)
		if err != nil {
			return nil, err
		}
		if verdicts[i] = v; v.accepted {
			served[i] = v.spec
		}
	}
	return verdicts, nil
}

func judgeOne(i int, o *v1alpha1.ServiceOffering, served []*v1alpha1.ServiceOfferingSpec, charts workload.Charts, addOns func(*v1alpha1.ClusterPlan) error, uses func() (Uses, error)) (verdict, error) {
	spec := &o.Spec
	err := checkProvided(spec) // before any chart is fetched
	if err == nil {
		spec, err = offered(spec, charts, addOns)
	}
	if err == nil {
		err = checkAlone(spec, charts)
	}
	if before := served[i]; err == nil && !before.HasPlan(spec.ID) && spec.HasPlan(spec.ID) {
		err = fmt.Errorf("plans: the id %q is the offering's", spec.ID)
	}
	if err != nil {
		return verdict{reason: ReasonInvalid, message: err.Error()}, nil
	}
	for j, other := range served {
		if j == i || other == nil {
			continue
		}
		if c := CollisionOf(spec, other, served[i]); c != nil {
			return verdict{reason: ReasonConflict, message: c.Message}, nil
		}
	}
	if before := served[i]; before != nil {
		reason, message, err := change(before, spec, uses)
		if err != nil || reason != "" {
			return verdict{reason: reason, message: message}, err
		}
	}
	return verdict{accepted: true, spec: spec, reason: v1alpha1.ReasonReady, message: "served"}, nil
}

// checkAlone checks what neither the CRD's schema nor checkProvided does.
func checkAlone(spec *v1alpha1.ServiceOfferingSpec, charts workload.Charts) error {
	for i := range spec.Plans {
		plan := &spec.Plans[i]
		if r := plan.Resources; r != nil {
			if err := checkResources(r, plan.Workload != nil); err != nil {
				return fmt.Errorf("plan %s: %w", plan.Name, err)
			}
		}
		if err := checkKind(plan, charts); err != nil {
			return fmt.Errorf("plan %s: %w", plan.Name, err)
		}
		if err := checkCosts(plan.Costs); err != nil {
			return fmt.Errorf("plan %s: %w", plan.Name, err)
		}
	}
	_, err := newOffering(spec, known{}, charts, false)
	return err
}

// checkKind checks the fields that depend on the plan's kind.
func checkKind(plan *v1alpha1.Plan, charts workload.Charts) error {
	role := plan.Credentials.Role
	switch {
	case plan.Kind == v1alpha1.PlanKindCluster && plan.Cluster != nil:
		return checkCluster(plan.Cluster)
	case plan.Kind == v1alpha1.PlanKindUpstream && plan.Upstream != nil:
		return checkUpstream(plan)
	case role != "" && role != "edit" && role != "view":
		return fmt.Errorf("credentials.role: %s is for cluster plans (cluster.roles); want edit or view", role)
	case plan.Kind == v1alpha1.PlanKindWorkload && plan.Workload != nil:
		return checkWorkload(plan, charts)
	}
	return nil
}

// checkExposure checks a plan that lets consumers make public what they run.
func checkExposure(r *v1alpha1.ResourcesPlan, runs bool) error {
	switch {
	case runs:
		return errors.New("does not go with kind: workload, whose ports have a reach")
	case len(r.Components) > 0:
		return errors.New("does not go with components")
	case r.Peering.OnNodes():
		return errors.New("does not go with virtual nodes or hubs: peering needs gives: Network and role: Transparent")
	}
	return nil
}

// checkOpaque checks a plan that is ordered from pools. The pool decides on how many of its members an instance is.
func checkOpaque(r *v1alpha1.ResourcesPlan) error {
	switch {
	case !r.Peering.IsOpaque():
	case r.Clusters > 1 || r.MaxClusters > 1:
		return errors.New("does not go with more than one of clusters or maxClusters: give the plan replicas, which the pool divides over its members")
	case r.Spread != nil:
		return errors.New("does not go with spread, because consumers do not learn which clusters there are")
	case len(r.Components) > 0:
		return errors.New("does not go with components")
	}
	return nil
}

// checkResources checks the resources of a plan, which runs a workload or not.
func checkResources(r *v1alpha1.ResourcesPlan, runs bool) error {
	if err := checkSelector(r.Selector, field.NewPath("selector")); err != nil {
		return err
	}
	if err := checkOpaque(r); err != nil {
		return fmt.Errorf("peering.role: Opaque: %w", err)
	}
	if slices.Contains(r.Adjustable, v1alpha1.AdjustMaxLatency) && r.MaxLatency == nil {
		return errors.New("adjustable: maxLatencyMilliseconds needs maxLatency, which bounds it")
	}
	if err := r.MaxPrice.Check(); err != nil {
		return fmt.Errorf("maxPrice.%w", err)
	}
	if slices.Contains(r.Adjustable, v1alpha1.AdjustMaxPrice) && r.MaxPrice == nil {
		return errors.New("adjustable: maxPricePerHour needs maxPrice, which bounds it")
	}
	keys := map[string][]string{"selectable": r.Selectable}
	if r.Spread != nil {
		if err := checkSpread(r); err != nil {
			return fmt.Errorf("spread: %w", err)
		}
		keys["spread.by"] = r.Spread.By
	}
	for _, affinity := range r.Affinity {
		keys["affinity.by"] = append(keys["affinity.by"], affinity.By)
	}
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		for _, key := range keys[path] {
			if errs := metavalidation.ValidateLabelName(key, field.NewPath(path)); len(errs) > 0 {
				return errs.ToAggregate()
			}
		}
	}
	if err := checkComponents(r, runs); err != nil {
		return err
	}
	if r.Exposure != nil {
		if err := checkExposure(r, runs); err != nil {
			return fmt.Errorf("exposure: %w", err)
		}
	}
	if r.Replicas != nil {
		for i := range r.Replicas.Weights {
			if err := checkSelector(&r.Replicas.Weights[i].Selector, field.NewPath("replicas", "weights").Index(i)); err != nil {
				return err
			}
		}
	}
	if err := v1alpha1.CheckAmounts(r.Limits); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if err := checkDevices(r, runs); err != nil {
		return err
	}
	if err := checkLargestPod(r, runs); err != nil {
		return fmt.Errorf("largestPod: %w", err)
	}
	for class, amount := range r.Storage {
		if amount.Sign() < 0 {
			return fmt.Errorf("storage: %s is negative", class)
		}
		if errs := validation.NameIsDNSSubdomain(class, false); len(errs) > 0 {
			return fmt.Errorf("storage: class %q: %s", class, strings.Join(errs, "; "))
		}
	}
	return nil
}

// checkSelector checks a selector at a path, if there is one.
func checkSelector(selector *metav1.LabelSelector, path *field.Path) error {
	return metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path).ToAggregate()
}

// checkLargestPod checks that a pod is part of what a plan sells on one cluster.
func checkLargestPod(r *v1alpha1.ResourcesPlan, runs bool) error {
	switch {
	case len(r.LargestPod) == 0:
		return nil
	case runs:
		return errors.New("cannot be set, because the pods of a workload are known")
	case len(r.Components) > 0:
		return errors.New("cannot be combined with components")
	}
	if err := v1alpha1.CheckAmounts(r.LargestPod); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.LargestPod)) {
		amount, limit := r.LargestPod[name], r.Limits[name]
		switch {
		case name == corev1.ResourcePods || v1alpha1.IsStorage(name):
			return fmt.Errorf("%s: is not a resource that a pod requests of its node", name)
		case amount.Cmp(limit) > 0:
			return fmt.Errorf("%s %s: is more than the limit of %s", amount.String(), name, limit.String())
		}
	}
	return nil
}

// checkSpread checks that each number of clusters that may be ordered can be in groups within their bounds.
func checkSpread(r *v1alpha1.ResourcesPlan) error {
	s := r.Spread
	if s.Groups == 0 && s.MinGroups == 0 {
		return nil
	}
	for n := max(r.Clusters, 1); n <= max(r.Clusters, r.MaxClusters, 1); n++ {
		fewest, most := min(s.MinGroups, n), n
		if s.Groups > 0 {
			fewest, most = min(s.Groups, n), min(s.Groups, n)
		}
		least, greatest := max(s.MinPerGroup, 1), n
		if s.MaxPerGroup > 0 {
			greatest = s.MaxPerGroup
		}
		if fewest*least > n {
			return fmt.Errorf("%d clusters are too few for %d groups with at least %d in each", n, fewest, least)
		}
		if most = min(most, n/least); most*greatest < n {
			return fmt.Errorf("%d clusters are too many for %d groups with at most %d in each", n, most, greatest)
		}
	}
	return nil
}

// checkComponents checks the components and links of a plan, which runs a workload or not.
func checkComponents(r *v1alpha1.ResourcesPlan, runs bool) error {
	if len(r.Components) == 0 {
		if len(r.Links) > 0 {
			return errors.New("links: cannot be used without components")
		}
		return nil
	}
	if r.Clusters > 1 || r.MaxClusters > 1 || r.Spread != nil || r.Replicas != nil {
		return errors.New("components: cannot be combined with clusters, spread or replicas, because each component is on one cluster")
	}
	var names []string
	for i := range r.Components {
		c := &r.Components[i]
		names = append(names, c.Name)
		if err := checkSelector(c.Selector, field.NewPath("components").Key(c.Name).Child("selector")); err != nil {
			return err
		}
		if err := v1alpha1.CheckAmounts(c.Limits); err != nil {
			return fmt.Errorf("components: %s: %w", c.Name, err)
		}
	}
	for i, link := range r.Links {
		for _, name := range link.Between {
			if !slices.Contains(names, name) {
				return fmt.Errorf("links: there is no component %s", name)
			}
		}
		if link.MaxMilliseconds == nil && !runs {
			return fmt.Errorf("links[%d].maxMilliseconds: is missing; only links of workloads may leave it out", i)
		}
	}
	return nil
}

// condition returns the Ready condition of an offering with this verdict.
func (v verdict) condition(o *v1alpha1.ServiceOffering) (metav1.ConditionStatus, string, string) {
	if v.accepted {
		return metav1.ConditionTrue, v.reason, v.message
	}
	message := v.message + "; not served"
	if o.Status.Accepted != nil {
		message = v.message + "; the last valid version is served"
	}
	return metav1.ConditionFalse, v.reason, message
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
