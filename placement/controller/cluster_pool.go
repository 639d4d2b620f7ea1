package controller

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement"
)

// A pool is watched like a cluster. Its front is what answers for it, and its members have what it sells; both are in the
// inventory already, so nobody is asked.

// lookAtFront makes the pool as healthy as its front is, at once: whether a cluster answers is decided by its own probes.
func (w *clusterWatch) lookAtFront(r *clusterReconciler, cluster *v1alpha1.MemberCluster, now time.Time) {
	if w.opened.driver != v1alpha1.DriverPool {
		w.close(false)
		w.clients, w.stop = clients{}, func() {}
		w.opened = opening{cluster.UID, cluster.Generation, v1alpha1.DriverPool}
	}
	w.nextProbe = now.Add(r.ProbeEvery)
	w.read(r, cluster)
	w.access, w.guards, w.writes = access{verified: true}, guards{}, writes{}
	front := r.Inventory.Snapshot().Cluster(cluster.Spec.Pool.Front)
	if err := w.frontProblem(cluster.Spec.Pool.Front, front); err != nil {
		w.health = health{failures: toleratedFailures, lastErr: err}
		return
	}
	w.health = health{answers: steadyAnswers}
	if front.Latency > 0 {
		w.health.latencies = []time.Duration{front.Latency}
	}
}

// frontProblem returns why nothing is delivered by way of a pool's front; nil if it can be.
func (w *clusterWatch) frontProblem(name string, front *placement.Cluster) error {
	wrong := func(step member.Step, remedy, format string, of ...any) error {
		return &member.Error{Cluster: w.cluster, Step: step, Err: fmt.Errorf(format, of...), Remedy: remedy}
	}
	switch {
	case front == nil:
		return wrong("find its front", "add that cluster with `sluice cluster add --driver liqo --hub`, or give the pool another front", "%s is not in the inventory", name)
	case front.Liqo == nil || !front.Liqo.Hub:
		return wrong("look at its front", "add that cluster again with `sluice cluster add --driver liqo --hub`, or give the pool another front", "%s is no hub", name)
	case !front.Ready:
		return wrong("look at its front", "see to that cluster", "%s does not answer: %s", name, front.Unready)
	}
	return nil
}
