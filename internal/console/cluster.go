package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement"
)

// clusterData is the data of the page of a cluster.
type clusterData struct {
	*v1alpha1.MemberCluster
	Row       *clusterRow
	Resources []resourceRow
	Prices    []priceRow
	Labels    []string
	// Instances are for operators, Held for the cluster's provider.
	Instances []*instanceRow
	Held      []heldRow
	Pages     pager
	// Events of the cluster, the latest first, for operators.
	Events []eventRow
	// Back is the list that the cluster is in.
	Back section
	// MaySchedule means that the caller may cordon and drain it.
	MaySchedule bool
	// Ask is set on the page that asks before a drain, Loss on the one about what its loss would do.
	Ask, Loss *movesData
	// Refused says why something was not done; empty if nothing was to be.
	Refused string
}

// resourceRow is a resource of a cluster.
type resourceRow struct {
	Name              string
	All, Sold, Others string
	Free              string
	Share             share
}

// mostClusterEvents is how many events of a cluster its page shows, the latest ones.
const mostClusterEvents = 30

// priceRow is the price of a resource.
type priceRow struct{ Name, Price string }

func (s *server) clusterPage(c *call) (*page, error) { return s.showCluster(c, &clusterData{}) }

// showCluster returns the page of a cluster, with what data has beyond it.
func (s *server) showCluster(c *call, data *clusterData) (*page, error) {
	name := c.PathValue("name")
	cluster := &v1alpha1.MemberCluster{}
	if err := s.get(c.Context(), name, cluster); err != nil {
		return nil, orNoSuch(err, "cluster", name)
	}
	if !c.owns(cluster.Spec.Provider) {
		return nil, noSuch("cluster", name)
	}
	f, err := s.fleet(c.Context())
	if err != nil {
		return nil, err
	}
	if f.byName[name] == nil {
		return nil, noSuch("cluster", name) // since a moment ago
	}
	row := *f.byName[name]
	row.State = clusterState(cluster)
	instances, err := s.instances(c.Context(), func(i *v1alpha1.ServiceInstance) bool {
		return slices.ContainsFunc(i.Status.Everywhere(), func(p *v1alpha1.Placement) bool { return p.Needs(name) })
	})
	if err != nil {
		return nil, err
	}
	data.MemberCluster, data.Row, data.Resources = cluster, &row, s.resourcesOf(cluster, instances)
	if c.caller.Role == access.Provider {
		data.Back = section{Title: "My clusters", Path: "supply"}
		data.Held, data.Pages = paged(c, s.heldOn(name, instances))
	} else {
		data.Back, data.MaySchedule = section{Title: "Fleet", Path: "fleet"}, true
		data.Instances, data.Pages = paged(c, s.rows(instances))
		events, err := journal.Of(c.Context(), s.Live, cluster)
		if err != nil {
			return nil, fmt.Errorf("read the journal of cluster %s: %w", name, err)
		}
		for _, e := range slices.Backward(events[max(0, len(events)-mostClusterEvents):]) {
			data.Events = append(data.Events, newEventRow(e))
		}
	}
	if prices := cluster.Spec.Prices; prices != nil {
		for _, of := range slices.Sorted(maps.Keys(prices.PerHour)) {
			data.Prices = append(data.Prices, priceRow{string(of), money(prices.PerHour[of], prices.Currency) + " per " + priced(of) + " and hour"})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(cluster.Labels)) {
		data.Labels = append(data.Labels, key+"="+cluster.Labels[key])
	}
	p := &page{Title: name, template: "cluster", Live: Root + "live", Data: data}
	if data.Ask != nil || data.Loss != nil {
		p.Live = "" // a question stays as it was asked
	}
	if data.Refused != "" {
		p.status = http.StatusUnprocessableEntity
	}
	return p, nil
}

// mostStaying is how many instances that would stay a page names.
const mostStaying = 20

// movesData is the expected result of a drain, or the loss, of a cluster.
type movesData struct {
	// Instances on the cluster, in all.
	Instances int
	Targets   []moveTarget
	// Stay is how many would stay, and Staying the first of them.
	Stay    int
	Staying []stayingRow
	// Untried is how many there was no time for.
	Untried int
}

// More is how many would stay beyond those that are named.
func (d *movesData) More() int { return d.Stay - len(d.Staying) }

// stayingRow is an instance that would stay.
type stayingRow struct{ Name, ID, Why string }

// moveTarget has the clusters to which a number of instances would move.
type moveTarget struct {
	Clusters  []string
	Instances int
}

// drainPage asks before a cluster is drained, and says what that would do.
func (s *server) drainPage(c *call) (*page, error) {
	ask, err := s.moves(c, "drained")
	if err != nil {
		return nil, err
	}
	return s.showCluster(c, &clusterData{Ask: ask})
}

// lossPage says what the loss of a cluster would do.
func (s *server) lossPage(c *call) (*page, error) {
	loss, err := s.moves(c, "lost")
	if err != nil {
		return nil, err
	}
	return s.showCluster(c, &clusterData{Loss: loss})
}

// moves returns what would happen to the instances on a cluster.
func (s *server) moves(c *call, supposed string) (*movesData, error) {
	name := c.PathValue("name")
	var answer struct {
		Moves   []market.Move
		Untried int
	}
	refused, err := s.market(c, http.MethodGet, "clusters/"+url.PathEscape(name)+"/moves?if="+supposed, nil, &answer)
	if err != nil {
		return nil, err
	}
	if refused != "" {
		return nil, noSuch("cluster", name)
	}
	data, targets := &movesData{Instances: len(answer.Moves) + answer.Untried, Untried: answer.Untried}, map[string]*moveTarget{}
	for _, m := range answer.Moves {
		to := strings.Join(m.To, ", ")
		switch {
		case m.Why != "":
			if data.Stay++; data.Stay > mostStaying {
				continue
			}
			i := &v1alpha1.ServiceInstance{}
			if err := s.get(c.Context(), m.Instance, i); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read instance %s: %w", m.Instance, err)
			}
			data.Staying = append(data.Staying, stayingRow{m.Instance, cmp.Or(i.Spec.InstanceID, m.Instance), m.Why})
		case targets[to] == nil:
			targets[to] = &moveTarget{m.To, 1}
		default:
			targets[to].Instances++
		}
	}
	for _, to := range slices.Sorted(maps.Keys(targets)) {
		data.Targets = append(data.Targets, *targets[to])
	}
	return data, nil
}

// schedules has the changes of a cluster in the market by the value of the form with which an operator asks for them.
var schedules = map[string]map[string]bool{
	"cordon": {"cordoned_by_operator": true}, "drain": {"draining": true}, "uncordon": {"cordoned_by_operator": false},
}

// schedule cordons, drains or uncordons a cluster.
func (s *server) schedule(c *call) (*page, error) {
	if c.ParseForm() != nil || schedules[c.PostForm.Get("to")] == nil {
		return nil, errForm
	}
	name := c.PathValue("name")
	refused, err := s.market(c, http.MethodPatch, "clusters/"+url.PathEscape(name), schedules[c.PostForm.Get("to")], nil)
	if err != nil {
		return nil, err
	}
	if refused != "" {
		return s.showCluster(c, &clusterData{Refused: refused})
	}
	return c.seeOther(Root + "clusters/" + url.PathEscape(name))
}

// priced returns what one unit of a price list is.
func priced(name corev1.ResourceName) string {
	switch {
	case name == corev1.ResourceCPU:
		return "core"
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, v1alpha1.IsStorage(name):
		return "GiB"
	}
	return "piece"
}

// resourcesOf returns what a cluster has of each resource, by the rules of placement.
func (s *server) resourcesOf(cluster *v1alpha1.MemberCluster, instances []*v1alpha1.ServiceInstance) []resourceRow {
	known, sold := placement.ClusterOf(cluster, s.Clock.Now()), placement.Resources{}
	for _, i := range instances {
		sold.Add(placement.Ledger(&i.Status)[cluster.Name], 1)
	}
	all := maps.Clone(known.Allocatable)
	maps.Copy(all, sold) // for its names
	var rows []resourceRow
	for _, name := range sorted(all.List()) {
		text := func(n int64) string { return strings.TrimSuffix(amount(name, quantity(name, n)), " "+string(name)) }
		one := shareOf(known, name, sold[name])
		rows = append(rows, resourceRow{Name: string(name), All: text(one.All), Sold: text(one.Sold), Others: text(one.Others), Free: text(one.Free), Share: one})
	}
	return rows
}

// quantity returns an amount in the smallest unit that placement counts in.
func quantity(name corev1.ResourceName, n int64) resource.Quantity {
	return (placement.Resources{name: n}).List()[name]
}

// sorted returns the names in a list of resources, cores and memory first.
func sorted(list corev1.ResourceList) []corev1.ResourceName {
	rank := map[corev1.ResourceName]int{corev1.ResourceCPU: -2, corev1.ResourceMemory: -1}
	return slices.SortedFunc(maps.Keys(list), func(a, b corev1.ResourceName) int {
		return cmp.Or(rank[a]-rank[b], strings.Compare(string(a), string(b)))
	})
}

// get reads one resource from the cache.
func (s *server) get(ctx context.Context, name string, into client.Object) error {
	if len(content.IsPathSegmentName(name)) > 0 { // a name that nothing can have
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("").GroupResource(), name)
	}
	return s.Hub.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, into)
}

// orNoSuch turns "not found" into a page that says so.
func orNoSuch(err error, what, name string) error {
	if apierrors.IsNotFound(err) {
		return noSuch(what, name)
	}
	return fmt.Errorf("read %s %s: %w", what, name, err)
}
