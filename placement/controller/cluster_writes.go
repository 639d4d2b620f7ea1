package controller

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

// writes is the results of the last writes to a member cluster. A cluster whose etcd is full
// (etcd documentation, "Space quota") or has lost its quorum still answers reads and /readyz.
type writes struct {
	due time.Time
	// underway receives the result of the current write; nil while there is none.
	underway chan error
	failures int
	// taken is true once a write has succeeded since the cluster was opened.
	taken bool
	// problem is the reason why the cluster takes no placements.
	problem error
	cluster string
}

// toleratedWrites is how many writes in a row must fail before a cluster takes no placements.
const toleratedWrites = 2

// look starts a write with each thorough probe, and with every probe after a failed write. It
// does not wait for the result, which triggers another pass over the cluster.
func (w *writes) look(r *clusterReconciler, cluster string, write func(context.Context) error, now time.Time) {
	if write == nil || w.underway != nil || now.Before(w.due) {
		return
	}
	w.cluster, w.due = cluster, now.Add(r.ProbeEvery)
	if w.failures == 0 {
		w.due = now.Add(thoroughEvery * r.ProbeEvery)
	}
	underway := make(chan error, 1)
	w.underway = underway
	running, wake, patience := r.running, r.wake, r.ProbeTimeout
	go func() {
		ctx, cancel := context.WithTimeout(running, patience)
		defer cancel()
		underway <- write(ctx)
		wake(cluster)
	}()
}

// settle records the result of the current write, if there is one.
func (w *writes) settle() {
	select {
	case err := <-w.underway:
		w.underway = nil
		w.went(err)
	default:
	}
}

func (w *writes) went(err error) {
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) { // Sluice may not write there, which is no fault
		w.failures, w.problem, w.taken = 0, nil, true
		return
	}
	w.failures++
	if w.failures == 1 {
		w.due = time.Time{} // with the next probe
	}
	if w.failures >= toleratedWrites {
		w.problem = &member.Error{
			Cluster: w.cluster, Step: "write to it", Err: err,
			Remedy: "nothing is placed on it until it accepts writes: check whether its etcd is full, slow or without a quorum; instances there are left alone",
		}
	}
}

// renewLease renews Sluice's Lease in the namespace of its own account.
func renewLease(kube kubernetes.Interface, username string) func(context.Context) error {
	namespace, _, err := serviceaccount.SplitUsername(username)
	if err != nil { // another user, not a ServiceAccount
		namespace = metav1.NamespaceDefault
	}
	return func(ctx context.Context) error {
		lease := coordinationv1ac.Lease(v1alpha1.MemberLease, namespace).WithSpec(
			coordinationv1ac.LeaseSpec().WithHolderIdentity(v1alpha1.FieldManager).WithRenewTime(metav1.NowMicro()))
		_, err := kube.CoordinationV1().Leases(namespace).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: v1alpha1.FieldManager, Force: true})
		return err
	}
}
