package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// A broker is watched like a cluster. Its catalog is what is read of it: whether it answers, whether it
// accepts Sluice's credentials, and what may be ordered.

const (
	// catalogTimeout bounds one read of a catalog.
	catalogTimeout = 15 * time.Second
	// maxOffered is the number of plans that the status may list, and maxVanished of those that are gone.
	maxOffered, maxVanished = 2000, 100
	// unbounded is the number of instances that may be ordered from a broker whose operator gives none.
	unbounded = 1_000_000
)

// readCatalog reads the broker's catalog. An answer that is no catalog, or refuses Sluice, is an answer: the
// broker then gets no new instances.
func (w *clusterWatch) readCatalog(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
	defer cancel()
	latency, err := w.askCatalog(ctx, r, cluster)
	refused := (*osbclient.Error)(nil)
	answers := err == nil || errors.As(err, &refused) && refused.Status != 0 && !refused.Repeatable()
	if !answers {
		r.Probed(w.cluster, now, latency, err)
		w.health.failed(err)
		return
	}
	r.Probed(w.cluster, now, latency, nil)
	w.health.answered(latency)
	w.access.verified, w.access.problem = err == nil, err
	steady := w.health.answers >= steadyAnswers || cluster.Status.Broker == nil
	if err == nil && steady {
		w.nextProbe = now.Add(time.Duration(cmp.Or(cluster.Spec.Broker.RefreshSeconds, 60)) * time.Second)
	}
	if err == nil {
		w.readMarket(ctx, r, now)
	}
}

func (w *clusterWatch) askCatalog(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster) (time.Duration, error) {
	if err := w.connect(ctx, r, cluster, true); err != nil {
		return 0, err
	}
	start := r.Clock.Now()
	catalog, err := w.clients.broker.Catalog(ctx)
	latency := r.Clock.Since(start)
	if err != nil {
		return latency, &member.Error{Cluster: w.cluster, Step: "order from it", Err: err, Remedy: remedyForBroker(err)}
	}
	w.catalog = catalog
	return latency, nil
}

func remedyForBroker(err error) string {
	refused := (*osbclient.Error)(nil)
	switch {
	case errors.As(err, &refused) && refused.Unauthorized():
		return "its credentials are not accepted: give it others with `sluice broker add`"
	case refused != nil && refused.Malformed:
		return "check that its URL leads to an OSB broker, and tell its operator"
	case refused != nil && refused.Status != 0:
		return "check its URL and that it is an OSB broker"
	default:
		return "check that it is running and reachable from Sluice, and that its addresses are allowed"
	}
}

// reportBroker writes what may be ordered into the status.
func (w *clusterWatch) reportBroker(cluster *v1alpha1.MemberCluster) {
	status := &cluster.Status
	status.Server = cluster.Spec.Broker.URL
	defer reportAcyclic(cluster)
	if w.catalog != nil {
		status.Broker = offeredBy(cluster.Spec.Broker, w.catalog, w.ordered, status.Broker)
		status.Broker.Schemas = schemasOf(w.catalog, w.ordered, status.Broker.Schemas)
		reportSluice(status.Broker, w.catalog, w.ordered, w.hub)
		w.market.report(status.Broker.Sluice)
	}
}

// orderFailed makes an order count against its broker that was refused or not carried out.
func (r *clusterReconciler) orderFailed(broker string, order v1alpha1.OrderFailure) {
	w := r.watchOf(broker)
	r.mu.Lock()
	w.failures = append(w.failures, order)
	r.mu.Unlock()
	r.wake(broker)
}

// reportFailures writes which orders have failed lately into the status.
func (r *clusterReconciler) reportFailures(w *clusterWatch, status *v1alpha1.UpstreamBrokerStatus, now time.Time) {
	if status == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	status.AddFailures(now, w.failures...)
	w.failures = slices.Clone(status.Failures) // until the status is written
}

// offeredBy returns the status of a broker with a catalog, after the status before, which may be nil. If there are more plans
// than the status can hold, those that offerings order come first.
func offeredBy(broker *v1alpha1.UpstreamBroker, catalog *osbclient.Catalog, ordered map[string]bool, before *v1alpha1.UpstreamBrokerStatus) *v1alpha1.UpstreamBrokerStatus {
	now := &v1alpha1.UpstreamBrokerStatus{Digest: catalog.Digest, ChangedAt: metav1.Now()}
	if before != nil && before.Digest == now.Digest {
		now.ChangedAt = before.ChangedAt
	}
	var others []v1alpha1.OfferedPlan
	for i := range catalog.Services {
		s := &catalog.Services[i]
		for k := range s.Plans {
			switch p := offered(s, &s.Plans[k]); {
			case !broker.Admits(p.Service, p.Plan):
				now.LeftOut++
			case ordered[p.Name()]:
				now.Plans = append(now.Plans, p)
			default:
				others = append(others, p)
			}
		}
	}
	now.Plans = append(now.Plans, others...)
	if more := len(now.Plans) - maxOffered; more > 0 {
		now.Plans, now.LeftOut = now.Plans[:maxOffered], now.LeftOut+int32(more)
	}
	slices.SortFunc(now.Plans, func(a, b v1alpha1.OfferedPlan) int { return strings.Compare(a.Name(), b.Name()) })
	if before != nil {
		now.Vanished, now.Failures, now.Schemas = vanished(catalog, before), before.Failures, before.Schemas
	}
	return now
}

// vanished returns the plans that were in an earlier catalog and are not in this one, the latest last.
func vanished(catalog *osbclient.Catalog, before *v1alpha1.UpstreamBrokerStatus) []string {
	has := map[string]bool{}
	for i := range catalog.Services {
		for _, p := range catalog.Services[i].Plans {
			has[catalog.Services[i].Name+"/"+p.Name] = true
		}
	}
	var gone []string
	for _, name := range slices.Concat(before.Vanished, namesOf(before.Plans)) {
		if !has[name] {
			gone = append(gone, name)
		}
	}
	return gone[max(len(gone)-maxVanished, 0):]
}

func offered(s *osbclient.Service, p *osbclient.Plan) v1alpha1.OfferedPlan {
	o := v1alpha1.OfferedPlan{
		Service: s.Name, Plan: p.Name, ServiceID: s.ID, PlanID: p.ID, PollingSeconds: p.MaximumPollingDuration,
		InstancesRetrievable: s.InstancesRetrievable, BindingsRetrievable: s.BindingsRetrievable, BindingRotatable: p.BindingRotatable,
		NotBindable: !s.IsBindable(p), NotUpdateable: !s.IsUpdateable(p),
	}
	if p.MaintenanceInfo != nil {
		o.MaintenanceVersion = p.MaintenanceInfo.Version
	}
	return o
}

func namesOf(plans []v1alpha1.OfferedPlan) []string {
	names := make([]string, 0, len(plans))
	for i := range plans {
		names = append(names, plans[i].Name())
	}
	return names
}

func answersMessage(cluster *v1alpha1.MemberCluster) string {
	switch cluster.DriverName() {
	case v1alpha1.DriverOSB:
		return "the broker answers"
	case v1alpha1.DriverPool:
		return "its front answers"
	}
	return "its API server answers"
}

func verifiedMessage(cluster *v1alpha1.MemberCluster) string {
	switch cluster.DriverName() {
	case v1alpha1.DriverOSB:
		return "the broker accepts Sluice's credentials, and its catalog is valid"
	case v1alpha1.DriverPool:
		return "a pool needs no access of its own"
	}
	return "Sluice has all rights there that its driver needs"
}
