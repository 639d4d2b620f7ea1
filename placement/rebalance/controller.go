package rebalance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/placement"
)

// Controller applies proposals automatically, to instances under a policy with a schedule,
// within the policy's windows. It runs on the leader only.
type Controller struct {
	// Client writes to the hub, Live reads it.
	Client client.Client
	Live   client.Reader
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Catalog that knows the instances' plans.
	Catalog *catalog.Catalog
	// Clock; nil means the real one.
	Clock clock.WithTicker
}

// checkEvery is how often the windows are checked.
const checkEvery = time.Minute

// NeedLeaderElection returns true: only the leader moves instances.
func (*Controller) NeedLeaderElection() bool { return true }

// Start checks every minute, until the context ends.
func (r *Controller) Start(ctx context.Context) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	tick := r.Clock.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			if err := r.Check(ctx); err != nil {
				log.FromContext(ctx).Error(err, "Could not rebalance")
			}
		}
	}
}

// Check applies what the policies allow now.
func (r *Controller) Check(ctx context.Context) error {
	var policies v1alpha1.PlacementPolicyList
	if err := r.Client.List(ctx, &policies, client.InNamespace(r.Namespace)); err != nil {
		return fmt.Errorf("list placement policies: %w", err)
	}
	now := r.Clock.Now()
	var failures []error
	for i := range policies.Items {
		policy := &policies.Items[i]
		if policy.Spec.Rebalance == nil {
			continue
		}
		opened, open, err := Window(policy.Spec.Rebalance, now)
		if err != nil || !open {
			continue // the policy's status reports the error
		}
		if err := r.apply(ctx, policy, opened, now); err != nil {
			failures = append(failures, fmt.Errorf("policy %s: %w", policy.Name, err))
		}
	}
	return errors.Join(failures...)
}

// Window reports whether a window is open, and since when.
func Window(of *v1alpha1.Rebalance, now time.Time) (opened time.Time, open bool, err error) {
	schedule, err := cron.ParseStandard(of.Schedule)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("rebalance.schedule: %w", err)
	}
	length := time.Duration(max(of.WindowSeconds, 60)) * time.Second
	opened = schedule.Next(now.UTC().Add(-length))
	return opened, !opened.IsZero() && !opened.After(now), nil
}

// apply requests instances to leave, as many as the policy allows in a window. The instances'
// annotations and statuses show how many were requested already.
func (r *Controller) apply(ctx context.Context, policy *v1alpha1.PlacementPolicy, opened, now time.Time) error {
	compiled, err := placement.CompilePolicy(policy)
	if err != nil {
		return nil // the policy's status says it
	}
	moved := int32(0)
	of := func(instance *v1alpha1.ServiceInstance) bool {
		if !compiled.Concerns(placement.ConsumerOf(instance)) {
			return false
		}
		return instance.Status.Moved == nil || instance.Status.Moved.DecidedAt.Time.Before(opened) // once in a window
	}
	err = pages.Each(ctx, r.Live, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		instance := o.(*v1alpha1.ServiceInstance)
		if _, asked := instance.Annotations[v1alpha1.AnnotationLeave]; compiled.Concerns(placement.ConsumerOf(instance)) && (asked || !of(instance)) {
			moved++
		}
		return nil
	}, client.InNamespace(r.Namespace))
	if err != nil {
		return err
	}
	limit := max(policy.Spec.Rebalance.AtMost, 1) - moved
	if limit <= 0 {
		return nil
	}
	proposals, err := Proposals(ctx, r.Live, r.Namespace, r.Catalog.Snapshot(), now, max(policy.Spec.Rebalance.LeastGain, 1), int(limit), of)
	if err != nil {
		return err
	}
	for _, p := range proposals {
		log.FromContext(ctx).Info("Rebalancing", "policy", policy.Name, "instance", p.Instance, "from", p.From, "to", p.To, "gain", p.Gain)
		if err := Apply(ctx, r.Client, r.Namespace, p); err != nil {
			return err
		}
	}
	return nil
}

// Apply requests an instance to leave the clusters of the proposal. Its new clusters
// are decided anew, by the state at that time. It is idempotent.
func Apply(ctx context.Context, c client.Client, namespace string, p placement.Proposal) error {
	instance := &v1alpha1.ServiceInstance{}
	instance.Namespace, instance.Name = namespace, p.Instance
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationLeave, strings.Join(p.From, ","))
	if err := c.Patch(ctx, instance, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("ask %s to leave %s: %w", p.Instance, strings.Join(p.From, ", "), err)
	}
	return nil
}
