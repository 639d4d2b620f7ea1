package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A plan may divide replicas over clusters: each cluster gets a share, which expressions see as
// cluster.replicas. A component that uses it is divided, whether it is a container, manifests or a chart;
// the others run in full on each cluster.

// replica returns the resources of each further replica on a cluster. They must be the same for each
// replica, up to the most on one cluster, because the resources of shares are computed from them. The
// error is a *RefusedError as of Render, or because the workload cannot be divided.
func (o *Order) replica(charts Charts, most int32) (corev1.ResourceList, error) {
	taken := func(replicas int32) (corev1.ResourceList, error) {
		share := *o
		share.Replicas = replicas
		objects, err := share.Render(charts, Cluster{Exposure: sampleExposure}, "sluice-sample")
		if err != nil {
			return nil, err
		}
		return Taken(objects)
	}
	one, err := taken(1)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(one)) {
		if v1alpha1.IsStorage(name) {
			return nil, refused("replicas of resources: do not go with volumes: a share that moves would start anew with an empty one")
		}
	}
	two, err := taken(2)
	if err != nil {
		return nil, err
	}
	each, atMost := corev1.ResourceList{}, corev1.ResourceList{}
	most = min(most, mostReplicas)
	for _, name := range slices.Sorted(maps.Keys(two)) {
		further := two[name].DeepCopy()
		further.Sub(one[name])
		all := further.DeepCopy()
		all.Mul(int64(most - 1))
		all.Add(one[name])
		atMost[name] = all
		switch further.Sign() {
		case -1:
			return nil, refused("replicas of resources: with two on a cluster it takes less %s than with one", name)
		case 1:
			each[name] = further
		}
	}
	if len(each) == 0 {
		return nil, refused("replicas of resources: are divided by no component: what uses ${cluster.replicas} has its share of them")
	}
	last, err := taken(most)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if amount, expected := last[name], atMost[name]; amount.Cmp(expected) > 0 {
			return nil, refused("replicas of resources: with %d on a cluster it takes %s %s, and %s are expected after the first two: "+
				"each replica must take the same, and so must a rollout (maxSurge as a number)", most, amount.String(), name, expected.String())
		}
	}
	return each, nil
}

// variable returns a cluster as expressions see it, with its share of the replicas.
func (o *Order) variable(c Cluster) map[string]any {
	return map[string]any{
		"name": c.Name, "provider": c.Provider, "region": c.Region, "zone": c.Zone, "tier": c.Tier, "labels": c.Labels,
		"replicas": int64(max(o.Replicas, 1)),
	}
}
