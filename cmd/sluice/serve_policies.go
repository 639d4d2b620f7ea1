package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement"
)

// mostUnserved is how many clusters that no longer serve a plan a check lists.
const mostUnserved = 200

// checkTime limits a check, and checksBetween is how many requests are judged between two looks at the clock.
const (
	checkTime     = 5 * time.Second
	checksBetween = 64
)

// shown are the facts about clusters that the market shows to platforms. A rule about others would tell them, one check
// after the other.
var shown = []string{"provider", "region", "labels." + v1alpha1.LabelTier}

// Compile implements market.Policies.
func (supposer) Compile(policy *v1alpha1.PlacementPolicy) error {
	compiled, err := placement.CompilePolicy(policy)
	if err != nil || policy.Spec.Platform == "" {
		return err
	}
	for _, look := range compiled.LooksAtClusters() {
		if !slices.Contains(shown, look.Field) {
			return fmt.Errorf("rule %s: expression: reads cluster.%s, which is the operator's; of clusters, it may read cluster.provider, cluster.region, cluster.tier and claims", look.By, look.Field)
		}
	}
	return nil
}

// policyCheck is a check under way. That of a provider knows nothing of other providers' clusters, or of policies that are
// not about the provider.
type policyCheck struct {
	policy *placement.Policy
	// platform whose policy it is; empty for a provider's.
	platform string
	// clusters that the policy is about: the provider's, or all.
	clusters *placement.Snapshot
	consumer placement.Consumer
	// proofs of a platform's own consumers, or of the one that is supposed.
	proofs placement.Proofs
	at     time.Time
	judged int
}

// Check implements market.Policies.
func (d supposer) Check(ctx context.Context, policy *v1alpha1.PlacementPolicy, by market.Supposed, plans []*catalog.Plan) (*market.PolicyCheck, error) {
	compiled, err := placement.CompilePolicy(policy)
	if err != nil {
		return nil, err
	}
	c := &policyCheck{policy: compiled, platform: policy.Spec.Platform, at: time.Now()}
	if c.platform != "" {
		by.Platform, by.Claims = &c.platform, &[]market.SupposedClaim{} // what its own consumers have proven is known
	}
	if c.consumer, err = supposed(compiled, by); err != nil {
		return nil, err
	}
	if c.proofs, err = d.proofs(ctx, c, ptr.Deref(by.Claims, nil)); err != nil {
		return nil, err
	}
	if c.clusters, err = d.clustersOf(ctx, policy.Spec.Provider, c.at, c.proofs); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	found := &market.PolicyCheck{Unserved: []market.Unserved{}}
	if found.Instances, err = d.instances(ctx, c); err != nil {
		return nil, err
	}
	for _, plan := range plans {
		if err := c.count(ctx); err != nil {
			return nil, err
		}
		unserved, nowhere := c.unserved(plan)
		if nowhere && c.platform != "" {
			found.Nowhere = append(found.Nowhere, market.CheckedPlan{Service: plan.Offering.Name, Plan: plan.Name})
		}
		for _, one := range unserved {
			if len(found.Unserved) < mostUnserved {
				found.Unserved = append(found.Unserved, one)
			} else {
				found.UnservedMore++
			}
		}
	}
	return found, nil
}

// supposed returns the consumer to suppose. The error is a *market.Error if the policy looks at something of it that is
// not given.
func supposed(policy *placement.Policy, by market.Supposed) (placement.Consumer, error) {
	given := map[string]bool{"platform": by.Platform != nil, "organization": by.Organization != nil, "space": by.Space != nil,
		"claims": by.Claims != nil}
	for _, look := range policy.Looks() {
		if !given[look.Field] {
			return placement.Consumer{}, &market.Error{Status: http.StatusUnprocessableEntity, Code: "Invalid", Description: fmt.Sprintf(
				"consumer.%s: want a value, because the policy looks at it (%s); whom it refuses depends on who orders.", look.Field, look.By)}
		}
	}
	return placement.Consumer{Platform: ptr.Deref(by.Platform, ""), Organization: ptr.Deref(by.Organization, ""), Space: ptr.Deref(by.Space, "")}, nil
}

// proofs returns what the consumers of a platform have proven, or what the supposed one has.
func (d supposer) proofs(ctx context.Context, c *policyCheck, claims []market.SupposedClaim) (placement.Proofs, error) {
	if c.platform != "" {
		var consumers v1alpha1.ConsumerList
		err := listCached(ctx, d.hub, d.namespace, &consumers)
		return placement.ProofsOf(consumers.Items, c.at), err
	}
	one := v1alpha1.Consumer{Spec: v1alpha1.ConsumerSpec{Orders: []v1alpha1.ConsumerReference{{
		Platform: c.consumer.Platform, Organization: c.consumer.Organization, Space: c.consumer.Space,
	}}}}
	for _, claim := range claims {
		one.Status.Claims = append(one.Status.Claims, v1alpha1.Claim{
			Name: claim.Name, Value: claim.Value, Assurance: cmp.Or(claim.Assurance, v1alpha1.AssuranceSelf), Issuer: "supposed",
		})
	}
	return placement.ProofsOf([]v1alpha1.Consumer{one}, c.at), nil
}

// clustersOf returns a snapshot of a provider's clusters, with nothing on them, and of the policies about them; of all
// clusters and policies if the name is empty.
func (d supposer) clustersOf(ctx context.Context, provider string, at time.Time, proofs placement.Proofs) (*placement.Snapshot, error) {
	var clusters v1alpha1.MemberClusterList
	var policies v1alpha1.PlacementPolicyList
	if err := errors.Join(listCached(ctx, d.hub, d.namespace, &clusters), listCached(ctx, d.hub, d.namespace, &policies)); err != nil {
		return nil, err
	}
	inventory := placement.NewInventory()
	for i := range clusters.Items {
		if m := &clusters.Items[i]; provider == "" || m.Spec.Provider == provider {
			inventory.UpsertCluster(placement.ClusterOf(m, at))
		}
	}
	inventory.SetPolicies(placement.CompilePolicies(slices.DeleteFunc(policies.Items, func(o v1alpha1.PlacementPolicy) bool { return provider != "" && o.Spec.Provider != provider })))
	inventory.SetProofs(proofs)
	return inventory.Snapshot(), nil
}

// listCached reads resources from a cache. They must not be changed, because they are the cache's.
func listCached(ctx context.Context, cache client.Reader, namespace string, into client.ObjectList) error {
	if err := cache.List(ctx, into, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list %T: %w", into, err)
	}
	return nil
}

// count counts one more request that is judged. The error is a *market.Error once it takes too long.
func (c *policyCheck) count(ctx context.Context) error {
	c.judged++
	if c.judged%checksBetween == 0 && ctx.Err() != nil {
		return &market.Error{Status: http.StatusUnprocessableEntity, Code: "Invalid", Description: fmt.Sprintf("require: evaluating the rules takes longer than %s; make them simpler.", checkTime)}
	}
	return nil
}

// of makes a request one by a consumer.
func (c *policyCheck) of(r placement.Request, consumer placement.Consumer) placement.Request {
	consumer.Plan = r.Consumer.Plan
	r.Consumer, r.At, r.Proven = consumer, c.at, c.proofs.Of(consumer)
	return r
}

// instances counts those on the provider's clusters, or of the platform, that would be refused, by service and plan. Those
// of plans that are not known any more are left out: nobody can order them.
func (d supposer) instances(ctx context.Context, c *policyCheck) ([]market.CheckedInstances, error) {
	served := d.catalog.Snapshot()
	counts := map[*catalog.Plan]*market.CheckedInstances{}
	rules := map[*catalog.Plan]map[string]int{}
	var instances v1alpha1.ServiceInstanceList
	if err := listCached(ctx, d.hub, d.namespace, &instances); err != nil {
		return nil, err
	}
	for n := range instances.Items {
		i := &instances.Items[n]
		if c.platform != "" && i.Spec.Platform != c.platform {
			continue
		}
		clusters, hub := c.placesOf(i)
		if len(clusters) == 0 && hub == "" {
			continue
		}
		plan, err := served.Plan(i.Spec.ServiceID, i.Spec.Desired.PlanID)
		if err != nil {
			continue
		}
		request, err := placement.NewRequest(i.Name, plan, i.Spec.Desired.Raw())
		if err != nil {
			continue
		}
		if counts[plan] == nil {
			counts[plan] = &market.CheckedInstances{Service: plan.Offering.Name, Plan: plan.Name}
			rules[plan] = map[string]int{}
		}
		counts[plan].Present++
		consumer := c.consumer
		if c.platform != "" {
			consumer = placement.ConsumerOf(i) // the platform knows its own
		}
		if refused := c.refusal(c.of(request, consumer), clusters, hub); refused != "" {
			counts[plan].Refused++
			rules[plan][refused]++
		}
		if err := c.count(ctx); err != nil {
			return nil, err
		}
	}
	all := make([]market.CheckedInstances, 0, len(counts))
	for plan, one := range counts {
		one.Rules = []market.RuleCount{}
		for rule, n := range rules[plan] {
			one.Rules = append(one.Rules, market.RuleCount{Rule: rule, Refused: n})
		}
		slices.SortFunc(one.Rules, func(a, b market.RuleCount) int { return cmp.Or(b.Refused-a.Refused, cmp.Compare(a.Rule, b.Rule)) })
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b market.CheckedInstances) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Plan, b.Plan))
	})
	return all, nil
}

// placesOf returns the clusters that an instance is on, of those that the policy is about, and the one through which it is
// reached; "" if there is none.
func (c *policyCheck) placesOf(i *v1alpha1.ServiceInstance) (clusters []string, hub string) {
	decisions := i.Status.Decisions()
	if len(decisions) == 0 {
		return nil, ""
	}
	for _, name := range decisions[0].Clusters() {
		if c.clusters.Cluster(name) != nil {
			clusters = append(clusters, name)
		}
	}
	if through := i.Status.Hub(); c.clusters.Cluster(through) != nil {
		hub = through
	}
	return clusters, hub
}

// refusal returns the first rule that refuses clusters to a request, or a hub; "" if none does.
func (c *policyCheck) refusal(r placement.Request, clusters []string, hub string) string {
	for _, refused := range c.policy.Refuses(r, c.clusters) {
		if slices.Contains(clusters, refused.Cluster) {
			return refused.Rule
		}
	}
	if hub != "" {
		for _, refused := range c.policy.RefusesHubs(r, c.clusters) {
			if refused.Cluster == hub {
				return refused.Rule
			}
		}
	}
	return ""
}

// unserved returns the clusters that serve a plan by the policies that are in force, of those that a provider may know, and
// that the policy refuses to it; nowhere is true if these are all. Of plans whose orders need parameters it knows none.
func (c *policyCheck) unserved(plan *catalog.Plan) (all []market.Unserved, nowhere bool) {
	if plan.Withdrawn || plan.ValidateCreate(nil) != nil {
		return nil, false
	}
	request, err := placement.NewRequest("", plan, nil)
	if err != nil {
		return nil, false
	}
	request = c.of(request, c.consumer)
	refusals := c.policy.Refuses(request, c.clusters)
	if len(refusals) == 0 {
		return nil, false
	}
	suited := placement.Suited(c.clusters.Govern(request, request.Consumer), c.clusters)
	left := len(suited)
	for _, refused := range refusals {
		if slices.Contains(suited, refused.Cluster) {
			left--
			all = append(all, c.describe(market.Unserved{Service: plan.Offering.Name, Plan: plan.Name, Rule: refused.Rule, Why: refused.Message}, refused.Cluster))
		}
	}
	slices.SortStableFunc(all, func(a, b market.Unserved) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Why, b.Why))
	})
	return slices.Compact(all), left == 0 && len(all) > 0
}

// describe says which cluster it is: to its provider by its name, to a platform by where it is.
func (c *policyCheck) describe(one market.Unserved, cluster string) market.Unserved {
	if c.platform == "" {
		one.Cluster = cluster
	} else {
		at := c.clusters.Cluster(cluster)
		one.Provider, one.Region = at.Provider, at.Region
	}
	return one
}
