package broker

import (
	"slices"
	"testing"

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
