package bindings

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

// deliveredTo is an instance with these placements.
func deliveredTo(placements ...v1alpha1.Placement) *v1alpha1.ServiceInstance {
	decision := v1alpha1.Decision{Placements: placements}
	return &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-1"},
		Status:     v1alpha1.ServiceInstanceStatus{Decision: &decision, Delivered: &v1alpha1.DeliveredState{Decision: decision}},
	}
}

// Placements as they are reached: on a cluster of its own, by a peering, behind a hub, as a node, made, at a broker, and on a pool.
func plain(cluster string) v1alpha1.Placement { return v1alpha1.Placement{Cluster: cluster} }

func peeredWith(cluster, hub, node string) v1alpha1.Placement {
	return v1alpha1.Placement{Cluster: cluster, Peering: &v1alpha1.PlacementPeering{Consumer: "own", Hub: hub, Node: node}}
}

func madeOn(cluster string) v1alpha1.Placement {
	return v1alpha1.Placement{Cluster: cluster, Shape: &v1alpha1.ClusterShape{}}
}

func atBroker(cluster string) v1alpha1.Placement {
	return v1alpha1.Placement{Cluster: cluster, Upstream: &v1alpha1.PlacementUpstream{}}
}

func onPool(cluster string) v1alpha1.Placement {
	return v1alpha1.Placement{Cluster: cluster, Pool: &v1alpha1.PlacementPool{Instance: "si-2"}}
}

func TestWhereAnInstanceIs(t *testing.T) {
	left := func(i *v1alpha1.ServiceInstance, placements ...v1alpha1.Placement) *v1alpha1.ServiceInstance {
		for _, p := range placements {
			i.Status.Left = append(i.Status.Left, v1alpha1.LeftPlacement{Placement: p})
		}
		return i
	}
	for name, row := range map[string]struct {
		instance                          *v1alpha1.ServiceInstance
		clusters, addressed, left, onNode []string
		peered, made, upstream, pooled    bool
	}{
		"nowhere":         {instance: &v1alpha1.ServiceInstance{}},
		"nothing":         {},
		"on two clusters": {instance: deliveredTo(plain("a"), plain("b")), clusters: []string{"a", "b"}},
		"peered":          {instance: deliveredTo(peeredWith("a", "", "")), clusters: []string{"a"}, addressed: []string{"a"}, peered: true},
		"behind a hub":    {instance: deliveredTo(peeredWith("a", "hub", "n1"), peeredWith("b", "hub", "n2")), clusters: []string{"hub"}, addressed: []string{"hub"}, peered: true},
		"as nodes":        {instance: deliveredTo(peeredWith("a", "", "n1"), peeredWith("b", "", "n2")), onNode: []string{"n1", "n2"}, peered: true},
		"made":            {instance: deliveredTo(madeOn("a")), clusters: []string{"a"}, made: true},
		"at a broker":     {instance: deliveredTo(atBroker("a")), clusters: []string{"a"}, upstream: true},
		"on a pool":       {instance: deliveredTo(onPool("a")), clusters: []string{"a"}, pooled: true},
		"moved":           {instance: left(deliveredTo(plain("b")), plain("a")), clusters: []string{"b"}, left: []string{"a"}},
		"moved behind a hub": {
			instance: left(deliveredTo(peeredWith("b", "hub", "n")), peeredWith("a", "hub", "m"), peeredWith("c", "", "k")),
			clusters: []string{"hub"}, addressed: []string{"hub"}, peered: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := row.instance
			if got := clustersOf(i); !slices.Equal(got, row.clusters) {
				t.Errorf("its namespace is on %q, want %q", got, row.clusters)
			}
			if i == nil {
				return
			}
			if got := addressedOf(i); !slices.Equal(got, row.addressed) {
				t.Errorf("addresses on %q, want %q", got, row.addressed)
			}
			if got := leftOf(i); !slices.Equal(got, row.left) {
				t.Errorf("it has left %q, want %q", got, row.left)
			}
			if got := nodesOf(i); !slices.Equal(got, row.onNode) {
				t.Errorf("nodes %q, want %q", got, row.onNode)
			}
			if isPeered(i) != row.peered || isMade(i) != row.made || (upstreamOf(i) != nil) != row.upstream || (poolOf(i) != nil) != row.pooled || isOrderedOn(i) != (row.upstream || row.pooled) {
				t.Errorf("peered %t, made %t, at a broker %t, on a pool %t", isPeered(i), isMade(i), upstreamOf(i) != nil, poolOf(i) != nil)
			}
			if got, want := len(waysOf(i)), len(placementsOf(i)); got != want {
				t.Errorf("%d ways to %d placements", got, want)
			}
		})
	}
}

// A binding is behind its instance as long as it has something of a cluster, a node or data that the instance has not, or
// lacks something.
func TestBehind(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	later := metav1.NewTime(at.Add(time.Second))
	bound := func(change func(*v1alpha1.ServiceBindingStatus)) *v1alpha1.ServiceBinding {
		b := &v1alpha1.ServiceBinding{Status: v1alpha1.ServiceBindingStatus{
			Operation: &v1alpha1.Operation{Type: v1alpha1.OperationBind, State: v1alpha1.StateSucceeded, FinishedAt: &at},
			Clusters:  []string{"a", "b"}, Issued: []string{"a", "b"},
		}}
		if change != nil {
			change(&b.Status)
		}
		return b
	}
	restored := func(when *metav1.Time) *v1alpha1.ServiceInstance {
		i := deliveredTo(plain("a"), plain("b"))
		i.Status.Restored = &v1alpha1.Restored{At: when}
		return i
	}
	leaving := deliveredTo(plain("a"))
	leaving.Status.Left = []v1alpha1.LeftPlacement{{Placement: plain("b")}}
	for name, row := range map[string]struct {
		binding           *v1alpha1.ServiceBinding
		instance          *v1alpha1.ServiceInstance
		behind, elsewhere bool
	}{
		"as it was bound":               {bound(nil), deliveredTo(plain("a"), plain("b")), false, false},
		"in another order":              {bound(nil), deliveredTo(plain("b"), plain("a")), false, false},
		"on one more cluster":           {bound(nil), deliveredTo(plain("a"), plain("b"), plain("c")), true, true},
		"on one less, which is cleaned": {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Issued = []string{"a"} }), deliveredTo(plain("a")), true, false},
		"on one less, which is not yet": {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Issued = []string{"a"} }), leaving, false, false},
		"as a node":                     {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Clusters, s.Issued = nil, nil }), deliveredTo(peeredWith("a", "", "n")), true, true},
		"as the same node":              {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Clusters, s.Issued, s.Nodes = nil, nil, []string{"n"} }), deliveredTo(peeredWith("a", "", "n")), false, false},
		"peered, without addresses":     {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Clusters, s.Issued = []string{"a"}, []string{"a"} }), deliveredTo(peeredWith("a", "", "")), true, false},
		"peered, with addresses": {bound(func(s *v1alpha1.ServiceBindingStatus) {
			s.Clusters, s.Issued, s.AddressClusters = []string{"a"}, []string{"a"}, []string{"a"}
		}), deliveredTo(peeredWith("a", "", "")), false, false},
		"restored afterwards":              {bound(nil), restored(&later), true, true},
		"restored at the same time":        {bound(nil), restored(&at), true, true},
		"restored before":                  {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Operation.FinishedAt = &later }), restored(&at), false, false},
		"being restored":                   {bound(nil), restored(nil), false, false},
		"bound without a time":             {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Operation.FinishedAt = nil }), restored(&later), false, false},
		"not bound":                        {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Operation.State = v1alpha1.StateFailed }), deliveredTo(plain("c")), false, true},
		"not begun":                        {bound(func(s *v1alpha1.ServiceBindingStatus) { s.Operation = nil }), deliveredTo(plain("c")), false, true},
		"of an instance that is not there": {bound(nil), &v1alpha1.ServiceInstance{}, false, true},
	} {
		if got := behind(row.binding, row.instance); got != row.behind {
			t.Errorf("%s: behind is %t", name, got)
		}
		if got := elsewhere(row.binding, row.instance); got != row.elsewhere {
			t.Errorf("%s: elsewhere is %t", name, got)
		}
	}
}

// A bind is over when it has succeeded or failed for good, for the present generation.
func TestFinished(t *testing.T) {
	for name, row := range map[string]struct {
		operation *v1alpha1.Operation
		want      bool
	}{
		"not begun":           {nil, false},
		"in progress":         {&v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: 2, State: v1alpha1.StateInProgress}, false},
		"succeeded":           {&v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: 2, State: v1alpha1.StateSucceeded}, true},
		"failed":              {&v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: 2, State: v1alpha1.StateFailed}, true},
		"of before":           {&v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: 1, State: v1alpha1.StateFailed}, false},
		"an unbind that ends": {&v1alpha1.Operation{Type: v1alpha1.OperationUnbind, Generation: 2, State: v1alpha1.StateSucceeded}, false},
	} {
		b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: v1alpha1.ServiceBindingStatus{Operation: row.operation}}
		if got := finished(b); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Work on a cluster waits for a place there.
func TestPlaces(t *testing.T) {
	var woken []string
	c := &Controller{places: &member.Places{Most: 1, Wake: func(key string) { woken = append(woken, key) }}}
	leave, err := c.places.Enter("a", "sluice/another")
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	do := func() error { done++; return nil }
	busy := (*member.BusyError)(nil)
	if err := c.on("a", bindingOf("", nil), do); !errors.As(err, &busy) || done != 0 {
		t.Errorf("on a busy cluster: %v, done %d times", err, done)
	}
	if leave(nil); !slices.Equal(woken, []string{"sluice/sb-1"}) {
		t.Errorf("woken are %q", woken)
	}
	if err := c.on("a", bindingOf("", nil), do); err != nil || done != 1 {
		t.Errorf("on a free one: %v, done %d times", err, done)
	}
}
