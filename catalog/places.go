package catalog

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// Places of a plan: of the clusters on which its instances can be, by its selector.
type Places struct {
	// Providers that run one of the clusters, and the clusters' regions, sorted.
	Providers, Regions []string
}

// Places returns where a plan's instances can be; nil if there are no clusters, or they have not been read yet. Callers must not change
// the result.
func (s *Snapshot) Places(planID string) *Places { return s.places[planID] }

// locate adds the places to a snapshot that is not published yet. Plans with equal selectors share them.
func (s *Snapshot) locate(clusters []v1alpha1.MemberCluster) {
	s.places = make(map[string]*Places, len(s.plans))
	bySelector := map[string]*Places{}
	for id, p := range s.plans {
		kind, among := selection(p)
		selector := labels.Everything()
		if among != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(among); err != nil {
				continue // the plan is not served then
			}
		}
		if p.Upstream != nil {
			s.places[id] = placesOf(clusters, func(c *v1alpha1.MemberCluster) bool {
				return p.isCandidate(c.Name) && selector.Matches(labels.Set(c.SelectorLabels()))
			})
			continue
		}
		key := kind + " " + selector.String()
		if bySelector[key] == nil {
			bySelector[key] = placesOf(clusters, func(c *v1alpha1.MemberCluster) bool {
				fits := c.Sells()
				if kind != "" {
					fits = c.DriverName() == kind
				}
				return fits && selector.Matches(labels.Set(c.SelectorLabels()))
			})
		}
		s.places[id] = bySelector[key]
	}
}

// selection returns the driver of the clusters on which a plan's instances can be, "" for those that run pods, and the
// selector of the plan; nil selects all.
func selection(p *Plan) (driver string, selector *metav1.LabelSelector) {
	switch {
	case p.Upstream != nil:
		return v1alpha1.DriverOSB, p.Upstream.Selector
	case p.Kind == v1alpha1.PlanKindCluster && p.Cluster != nil:
		return v1alpha1.DriverCAPI, p.Cluster.Selector
	case p.Resources != nil && p.Resources.Peering.IsOpaque():
		return v1alpha1.DriverPool, p.Resources.Selector
	case p.Resources != nil:
		return "", p.Resources.Selector
	}
	return "", nil
}

// isCandidate reports whether an upstream plan may be ordered from a broker.
func (p *Plan) isCandidate(broker string) bool {
	return slices.ContainsFunc(p.Upstream.Candidates, func(c v1alpha1.UpstreamCandidate) bool { return c.Broker == broker })
}

func placesOf(clusters []v1alpha1.MemberCluster, has func(*v1alpha1.MemberCluster) bool) *Places {
	places := &Places{}
	for i := range clusters {
		c := &clusters[i]
		if c.DeletionTimestamp != nil || !has(c) {
			continue
		}
		if c.Spec.Provider != "" {
			places.Providers = append(places.Providers, c.Spec.Provider)
		}
		if region := c.Region(); region != "" {
			places.Regions = append(places.Regions, region)
		}
	}
	places.Providers, places.Regions = lists.Sorted(places.Providers), lists.Sorted(places.Regions)
	return places
}
