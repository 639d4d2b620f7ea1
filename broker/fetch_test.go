package broker

import (
	"context"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Consumers see how many copies work in each group of clusters, and no names of clusters.
func TestCopiesForConsumers(t *testing.T) {
	in := func(cluster, region string, ready bool) v1alpha1.Copy {
		c := v1alpha1.Copy{Cluster: cluster, Ready: ready}
		if region != "" {
			c.Group = map[string]string{"region": region, "provider": "acme"}
		}
		return c
	}
	i := &v1alpha1.ServiceInstance{}
	i.Status.Copies = []v1alpha1.Copy{in("a", "us", true), in("b", "eu", true), in("c", "eu", false), in("d", "", true)}
	if got, want := copiesOf(i), []string{"provider=acme,region=eu: 1 of 2 ready", "provider=acme,region=us: 1 of 1 ready"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A consumer reads where its instance is: clusters in the order of the decision, regions and components sorted.
func TestWhereabouts(t *testing.T) {
	hub := interceptor.NewClient(nil, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
		region, there := map[string]string{"a": "us", "b": "eu", "c": "us", "d": ""}[key.Name]
		if !there || key.Namespace != "hub" {
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		}
		o.(*v1alpha1.MemberCluster).Spec.Region = region
		return nil
	}})
	s, c := &server{Options: Options{Client: hub, Namespace: "hub"}}, &call{Request: httptest.NewRequest("GET", "/", nil)}
	on := func(placements ...v1alpha1.Placement) *v1alpha1.ServiceInstance {
		return &v1alpha1.ServiceInstance{Status: v1alpha1.ServiceInstanceStatus{Delivered: &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Placements: placements}}}}
	}
	copies := on(v1alpha1.Placement{Cluster: "d"})
	copies.Status.Copies = []v1alpha1.Copy{{Cluster: "a", Ready: true, Group: map[string]string{"region": "us"}}, {Cluster: "b", Group: map[string]string{"region": "eu"}}}
	for name, row := range map[string]struct {
		instance *v1alpha1.ServiceInstance
		want     map[string]string
	}{
		"nowhere":    {on(), map[string]string{}},
		"clusters":   {on(v1alpha1.Placement{Cluster: "c"}, v1alpha1.Placement{Cluster: "gone"}, v1alpha1.Placement{Cluster: "b"}, v1alpha1.Placement{Cluster: "a"}), map[string]string{"clusters": "c,gone,b,a", "regions": "eu,us"}},
		"components": {on(v1alpha1.Placement{Cluster: "d", Components: []string{"web", "db"}}, v1alpha1.Placement{Cluster: "gone", Components: []string{"queue"}}), map[string]string{"clusters": "d,gone", "components": "db=d,queue=gone,web=d"}},
		"copies":     {copies, map[string]string{"clusters": "d", "copies": "region=eu: 0 of 1 ready; region=us: 1 of 1 ready"}},
	} {
		if got := s.whereabouts(c, row.instance); !maps.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
