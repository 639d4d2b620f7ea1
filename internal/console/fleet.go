package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// fleet is all member clusters, and what is sold and free on them.
type fleet struct {
	clusters []*clusterRow // those that are not ready first, then by name
	byName   map[string]*clusterRow
	groups   []*groupRow // by region and provider
}

// clusterRow is a member cluster in a list.
type clusterRow struct {
	Name, Provider, Region, Driver string
	Tier                           v1alpha1.Tier
	State                          state
	CPU, Memory                    share
	Instances                      int
	// earned by what is delivered to it.
	earned earnings
}

// Earns returns the price of an hour of what is delivered there.
func (r *clusterRow) Earns() []string { return r.earned.texts() }

// groupRow sums up the clusters of a provider in a region.
type groupRow struct {
	Region, Provider string
	Clusters, Ready  int
	CPU, Memory      share
}

// state of a resource, in a word and as a sign.
type state struct {
	// Kind selects sign and colour: good, bad, busy or off.
	Kind string
	Word string
	// Why, and since when; empty and zero for one that is good.
	Reason, Message string
	Since           metav1.Time
}

// share is an amount that is divided, in the resource's smallest unit.
type share struct {
	All, Sold, Others, Free int64
}

func (s *share) add(other share) {
	s.All, s.Sold, s.Others, s.Free = s.All+other.All, s.Sold+other.Sold, s.Others+other.Others, s.Free+other.Free
}

// widths of the parts of a bar that is 100 wide.
func (s share) SoldWidth() float64   { return percent(s.Sold, s.All) }
func (s share) OthersWidth() float64 { return min(percent(s.Others, s.All), 100-s.SoldWidth()) }

// shareOf returns how a resource of a cluster is divided, by the rules of placement.
func shareOf(known *placement.Cluster, name corev1.ResourceName, sold int64) share {
	return share{All: known.Allocatable[name], Sold: sold, Others: known.ForeignUse[name], Free: max(0, known.Unreserved(name)-sold)}
}

// add adds a cluster to a sum.
func (g *groupRow) add(row *clusterRow) {
	g.Clusters++
	if row.State.Kind == "good" {
		g.Ready++
	}
	g.CPU.add(row.CPU)
	g.Memory.add(row.Memory)
}

func percent(part, of int64) float64 {
	if of <= 0 {
		return 0
	}
	return float64(max(0, min(part*1000/of, 1000))) / 10
}

// stateOf returns the state of a resource by its condition Ready.
func stateOf(conditions []metav1.Condition, created metav1.Time) state {
	return stateBy(v1alpha1.ConditionReady, conditions, created)
}

// stateBy returns the state of a resource by a condition.
func stateBy(condition string, conditions []metav1.Condition, created metav1.Time) state {
	ready := meta.FindStatusCondition(conditions, condition)
	switch {
	case ready == nil:
		return state{Kind: "busy", Word: "New", Since: created}
	case ready.Status == metav1.ConditionTrue:
		return state{Kind: "good", Word: "Ready", Since: ready.LastTransitionTime}
	}
	s := state{Kind: "bad", Word: "Not ready", Reason: ready.Reason, Message: ready.Message, Since: ready.LastTransitionTime}
	switch ready.Reason {
	case v1alpha1.ReasonInProgress:
		s.Kind, s.Word = "busy", "In progress"
	case v1alpha1.ReasonDeleting:
		s.Kind, s.Word = "busy", "Being deleted"
	case v1alpha1.ReasonFailed:
		s.Word = "Failed"
	}
	return s
}

// ranks of the kinds of states, and rankOf that of a state: the worst comes first.
var ranks = map[string]int{"bad": 0, "busy": 1, "off": 2, "good": 3}

func rankOf(s state) int { return ranks[s.Kind] }

// clusterState adds to it what an operator has decided.
func clusterState(c *v1alpha1.MemberCluster) state {
	s := stateOf(c.Status.Conditions, v1alpha1.CreatedOf(c))
	word := ""
	switch {
	case !c.DeletionTimestamp.IsZero():
		word = "Leaving"
	case c.IsDraining():
		word = "Draining"
	case c.Spec.Unschedulable:
		word = "Cordoned"
	}
	if word != "" && s.Kind == "good" {
		s.Kind, s.Word = "off", word
	} else if word != "" {
		s.Word = word + ", " + strings.ToLower(s.Word)
	}
	return s
}

// list reads all resources of a kind from the cache. They must not be changed.
func (s *server) list(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := s.Hub.List(ctx, into, append(options, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy)...); err != nil {
		return fmt.Errorf("list %T: %w", into, err)
	}
	return nil
}

// fleet returns the clusters, at most a moment old.
func (s *server) fleet(ctx context.Context) (*fleet, error) {
	return s.fleets.get(ctx, s.Clock, func(ctx context.Context) (*fleet, error) {
		var clusters v1alpha1.MemberClusterList
		var instances v1alpha1.ServiceInstanceList
		if err := s.list(ctx, &clusters); err != nil {
			return nil, err
		}
		if err := s.list(ctx, &instances); err != nil {
			return nil, err
		}
		return newFleet(clusters.Items, instances.Items, s.Clock.Now()), nil
	})
}

func newFleet(clusters []v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance, now time.Time) *fleet {
	sold, on, earned := map[string]placement.Resources{}, map[string]int{}, map[string]earnings{}
	for i := range instances {
		for cluster, held := range placement.Ledger(&instances[i].Status) {
			if sold[cluster] == nil {
				sold[cluster] = placement.Resources{}
			}
			sold[cluster].Add(held, 1)
			on[cluster]++
		}
		if delivered := instances[i].Status.Delivered; delivered != nil {
			for n := range delivered.Decision.Placements {
				p := &delivered.Decision.Placements[n]
				if earned[p.Cluster] == nil {
					earned[p.Cluster] = earnings{}
				}
				earned[p.Cluster].add(p)
			}
		}
	}
	f := &fleet{byName: map[string]*clusterRow{}}
	groups := map[[2]string]*groupRow{}
	for i := range clusters {
		c := &clusters[i]
		known, held := placement.ClusterOf(c, now), sold[c.Name]
		row := &clusterRow{
			Name: c.Name, Provider: c.Spec.Provider, Region: c.Spec.Region, Driver: c.DriverName(), Tier: c.Spec.Tier, State: clusterState(c),
			CPU: shareOf(known, corev1.ResourceCPU, held[corev1.ResourceCPU]), Memory: shareOf(known, corev1.ResourceMemory, held[corev1.ResourceMemory]), Instances: on[c.Name], earned: earned[c.Name],
		}
		f.clusters, f.byName[row.Name] = append(f.clusters, row), row
		if row.State.Kind != "good" { // what is free there cannot be sold
			row.CPU.Free, row.Memory.Free = 0, 0
		}
		if c.Spec.Pool != nil {
			continue // what it has is that of its members
		}
		key := [2]string{row.Region, row.Provider}
		group := groups[key]
		if group == nil {
			group = &groupRow{Region: row.Region, Provider: row.Provider}
			groups[key], f.groups = group, append(f.groups, group)
		}
		group.add(row)
	}
	slices.SortFunc(f.clusters, func(a, b *clusterRow) int {
		return cmp.Or(rankOf(a.State)-rankOf(b.State), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.groups, func(a, b *groupRow) int {
		return cmp.Or(strings.Compare(a.Region, b.Region), strings.Compare(a.Provider, b.Provider))
	})
	return f
}

// sum of all groups.
func (f *fleet) sum() (all groupRow) {
	for _, g := range f.groups {
		all.Clusters, all.Ready = all.Clusters+g.Clusters, all.Ready+g.Ready
		all.CPU.add(g.CPU)
		all.Memory.add(g.Memory)
	}
	return all
}

// fleetData is the data of the page of the fleet.
type fleetData struct {
	All    groupRow
	Groups []*groupRow
	// MoreGroups are not shown.
	MoreGroups int
	Filter     filter
	Clusters   []*clusterRow
	Pages      pager
}

// mostGroups is how many sums of a region and a provider a page shows.
const mostGroups = 60

func (s *server) fleetPage(c *call) (*page, error) {
	f, err := s.fleet(c.Context())
	if err != nil {
		return nil, err
	}
	by := filterOf(c, "region", "provider", "state", "text")
	found := slices.DeleteFunc(slices.Clone(f.clusters), func(r *clusterRow) bool {
		return !by.is("region", r.Region) || !by.is("provider", r.Provider) || !by.is("state", r.State.Kind) || !by.has(r.Name, r.Region, r.Provider, r.State.Reason, r.State.Message)
	})
	data := fleetData{All: f.sum(), Filter: by}
	data.Groups = slices.DeleteFunc(slices.Clone(f.groups), func(g *groupRow) bool { return !by.is("region", g.Region) || !by.is("provider", g.Provider) })
	if more := len(data.Groups) - mostGroups; more > 0 {
		data.Groups, data.MoreGroups = data.Groups[:mostGroups], more
	}
	data.Clusters, data.Pages = paged(c, found)
	return &page{Title: "Fleet", template: "fleet", Data: data}, nil
}
