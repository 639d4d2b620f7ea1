package controller

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// forOperators matches what no consumer may read: clusters, their free capacity, addresses.
var forOperators = regexp.MustCompile(`eu-1|eu-2|https?://|\d+\.\d+\.\d+|\d+ (cpu|memory)|free of`)

// TestConsumersReadWhatTheyCanActOn: consumers read what they can act on, and nothing for
// operators, whatever went wrong.
func TestConsumersReadWhatTheyCanActOn(t *testing.T) {
	cluster := func(name, region string) *placement.Cluster {
		return &placement.Cluster{
			Name: name, Ready: true, AccessVerified: true, Labels: labels.Set{"region": region},
			Allocatable: cores(8), ForeignUse: cores(4),
		}
	}
	region := func(name string) labels.Selector { return labels.SelectorFromSet(labels.Set{"region": name}) }
	here, there := cluster("eu-1", "eu"), cluster("eu-2", "us")
	transport := errors.New(`Get "https://10.0.0.7:6443/api": dial tcp 10.0.0.7:6443: connect: connection refused`)
	for _, row := range []struct {
		name       string
		err        error
		want       string
		repeatable bool
	}{
		{"an API server that does not answer", fmt.Errorf("member cluster eu-1: %w", transport), willBeTried, true},
		{"a cluster known not to answer", &unreachableError{"eu-1", transport.Error()}, willBeTried, true},
		{"something to wait for", &delivery.PendingError{Step: "create namespace on eu-1", Detail: "https://10.0.0.7 says 3 cpu free of 8"}, willBeTried, true},
		{"a delivery that is late", &lateError{&delivery.PendingError{Step: "eu-1", Detail: "out of machines"}}, "not delivered in time; " + onlyOperators, true},
		{"a namespace that its pods keep", &delivery.PendingError{Step: "delete namespace on eu-1", Consumer: "pods: web"}, "pods: web", true},
		{"two clusters, one reason", errors.Join(transport, &unreachableError{"eu-2", "x"}), willBeTried, true},
		{"a refusal for operators", &delivery.RefusedError{Reason: "eu-1 does not serve the kind ClusterClass"}, "a cluster rejected it; " + onlyOperators, false},
		{"a refusal for consumers", &delivery.RefusedError{Reason: "on eu-1", Consumer: "delete workloads first", Repeatable: true}, "delete workloads first", true},
		{"no cluster at all", placeError(t, placement.Request{ID: "i"}), "nothing is on offer at the moment", true},
		{
			"too little free everywhere",
			placeError(t, placement.Request{ID: "i", Resources: cores(16), Selector: region("eu")}, here, there),
			"InsufficientCPU, LabelMismatch", true,
		},
		{
			"an update that is larger than its cluster",
			placeError(t, placement.Request{ID: "i", Resources: cores(16), Current: []string{"eu-1"}}, here, there),
			"they cannot take the change: InsufficientCPU", false,
		},
		{
			"an update for which its cluster has too little left",
			placeError(t, placement.Request{ID: "i", Resources: cores(6), Current: []string{"eu-1"}}, here, there),
			"they cannot take the change: InsufficientCPU", true,
		},
		{
			"an update of the region",
			placeError(t, placement.Request{ID: "i", Selector: region("us"), Current: []string{"eu-1"}}, here, there),
			"they cannot take the change: LabelMismatch", false,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := forConsumer(row.err)
			if !strings.Contains(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if shown := forOperators.FindString(got); shown != "" {
				t.Errorf("%q shows %q", got, shown)
			}
			if repeatable(row.err) != row.repeatable {
				t.Errorf("repeatable %v", !row.repeatable)
			}
		})
	}
}

func cores(n int64) placement.Resources { return placement.Resources{corev1.ResourceCPU: 1000 * n} }

// placeError returns why a request is not placed on these clusters.
func placeError(t *testing.T, r placement.Request, clusters ...*placement.Cluster) error {
	t.Helper()
	inventory := placement.NewInventory()
	for _, c := range clusters {
		inventory.UpsertCluster(c)
	}
	_, err := placement.Place(r, inventory.Snapshot())
	unplaceable, ok := placement.AsUnplaceable(err)
	if !ok {
		t.Fatalf("placed, or %v", err)
	}
	unplaceable.Hopeless = placement.HopelessHere(r, inventory.Snapshot()) && len(r.Current) > 0
	return unplaceable
}
