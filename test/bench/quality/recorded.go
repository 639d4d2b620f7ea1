package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/placement/replay"
)

// recorded is the sold capacity of a hub, from a file that `sluice place --record` has written:
// its clusters without what others use there, and a request for the reservation of each instance
// on each cluster. The file does not keep the order in which instances were ordered; here they are
// sorted by name, which is a digest and so as good as a random order.
func recorded(file string) (workload, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return workload{}, err
	}
	r, err := replay.ReadRecording(data)
	if err != nil {
		return workload{}, fmt.Errorf("%s: %w", file, err)
	}
	w := workload{resources: common}
	for i := range r.Clusters {
		mc := &r.Clusters[i]
		c := cluster{name: mc.Name, provider: mc.Spec.Provider, has: make(amounts, 2), used: make(amounts, 2), prices: make(amounts, 2)}
		c.has[cpu] = milli(mc.Status.Allocatable, corev1.ResourceCPU) - milli(mc.Status.ForeignUse, corev1.ResourceCPU)
		c.has[memory] = mebi(mc.Status.Allocatable) - mebi(mc.Status.ForeignUse)
		if prices := mc.Spec.Prices; prices != nil {
			perCore, perGiB := prices.PerHour[corev1.ResourceCPU], prices.PerHour[corev1.ResourceMemory]
			c.prices = amounts{perCore.ScaledValue(-9), perGiB.ScaledValue(-9)}
		}
		if c.has[cpu] > 0 && c.has[memory] > 0 {
			w.fleet = append(w.fleet, c)
		}
	}
	for i := range r.Instances {
		for _, held := range r.Instances[i].Status.Left {
			one := request{id: r.Instances[i].Name + "/" + held.Cluster, asks: amounts{milli(held.Reserved, corev1.ResourceCPU), mebi(held.Reserved)}}
			if one.asks[cpu] > 0 && one.asks[memory] > 0 {
				w.requests = append(w.requests, one)
			}
		}
	}
	if len(w.fleet) == 0 || len(w.requests) == 0 {
		return workload{}, fmt.Errorf("%s: %d clusters and %d reservations with cpu and memory: there is nothing to play", file, len(w.fleet), len(w.requests))
	}
	slices.SortFunc(w.requests, func(a, b request) int { return strings.Compare(a.id, b.id) })
	for i := range w.requests {
		w.requests[i].arrive = i
	}
	return w, nil
}

func milli(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	return quantity.MilliValue()
}

func mebi(list corev1.ResourceList) int64 {
	quantity := list[corev1.ResourceMemory]
	return quantity.Value() >> 20
}
