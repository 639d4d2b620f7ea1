package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/reader"
)

// Reasons of a member cluster's conditions, beside those of the API package.
const (
	reasonAnswers    = "Answers"
	reasonVerified   = "Verified"
	reasonDenied     = "Denied"
	reasonWritesFail = "WritesFail"
	reasonUnguarded  = "GuardsMissing"
	reasonRead       = "Read"
	reasonRestored   = "HubRestored"
	reasonCordoned   = "Cordoned"
	reasonUncordoned = "Uncordoned"
	reasonEmpty      = "Empty"
	reasonInUse      = "InUse"
	reasonConnected  = "Connected"
	reasonAway       = "NotConnected"
)

// report writes the state of the watch into the cluster's status: exactly, except the latency,
// which changes only if the new value differs clearly. held is the error of Options.Hold.
func (w *clusterWatch) report(ctx context.Context, cluster *v1alpha1.MemberCluster, leaving []string, held error) {
	status := &cluster.Status
	status.ObservedGeneration = cluster.Generation
	if w.clients.connection != nil {
		status.Server = w.clients.connection.Server
	}
	if w.access.uid != "" {
		status.UID, status.KeyHash, status.KubernetesVersion = w.access.uid, w.access.keyHash, w.access.version
	}
	if median := w.health.median(); median > 0 && (status.Latency == nil || changed(status.Latency.Duration, median)) {
		status.Latency = &metav1.Duration{Duration: median.Round(100 * time.Microsecond)}
	}
	if w.reader != nil {
		reading, err := w.reader.Read(ctx)
		if err == nil {
			reading.Report(status)
		}
		if showsAll := w.source.reader == v1alpha1.ReaderNodes || !cluster.HasServer(); err == nil && held != nil && !showsAll {
			err = &reader.UnknownError{Reason: reasonRestored, Message: held.Error()}
		}
		w.reportReading(cluster, reading, err)
	} else if held != nil {
		w.reportReading(cluster, reader.Reading{}, &reader.UnknownError{Reason: reasonRestored, Message: "not read yet: " + held.Error()})
	}
	if cluster.DriverName() == v1alpha1.DriverOSB {
		w.reportBroker(cluster)
	}
	w.conditions(cluster, leaving)
}

// reportReading writes whether the cluster's capacity is known, and why there is none. If it is not known, the status keeps
// the last reading, and nothing new is placed by it.
func (w *clusterWatch) reportReading(cluster *v1alpha1.MemberCluster, reading reader.Reading, err error) {
	state, reason, message := metav1.ConditionTrue, reasonRead, reading.Source
	if reading.Idle != "" {
		reason, message = v1alpha1.ReasonNoNodes, reading.Idle
	}
	if err != nil {
		state, reason, message = metav1.ConditionFalse, reader.ReasonSyncing, fmt.Sprintf("member cluster %s: %v", w.cluster, err)
	}
	if unknown := (*reader.UnknownError)(nil); errors.As(err, &unknown) {
		reason = unknown.Reason
	}
	v1alpha1.SetCondition(&cluster.Status.Conditions, cluster.Generation, v1alpha1.ConditionCapacityKnown, state, reason, message)
}

// changed reports whether two latencies differ by more than a quarter and a millisecond.
func changed(before, now time.Duration) bool {
	difference := (now - before).Abs()
	return difference > before/4 && difference > time.Millisecond
}

func (w *clusterWatch) conditions(cluster *v1alpha1.MemberCluster, leaving []string) {
	set := func(condition string, ok bool, reason, message string) {
		state := metav1.ConditionFalse
		if ok {
			state = metav1.ConditionTrue
		}
		v1alpha1.SetCondition(&cluster.Status.Conditions, cluster.Generation, condition, state, reason, message)
	}
	before := metav1.ConditionUnknown
	if known := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReachable); known != nil {
		before = known.Status
	}
	reachable := w.health.reachable(before)
	switch {
	case !reachable && w.health.lastErr != nil:
		set(v1alpha1.ConditionReachable, false, v1alpha1.ReasonUnreachable, w.health.lastErr.Error())
	case !reachable:
		set(v1alpha1.ConditionReachable, false, v1alpha1.ReasonUnreachable,
			fmt.Sprintf("member cluster %s: answers again, %d of %d times in a row", w.cluster, w.health.answers, steadyAnswers))
	case w.health.lastErr == nil:
		set(v1alpha1.ConditionReachable, true, reasonAnswers, answersMessage(cluster))
	}
	known := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionAccessVerified)
	wasVerified := known != nil && known.Status == metav1.ConditionTrue && known.ObservedGeneration == cluster.Generation
	switch {
	case w.writes.problem != nil:
		set(v1alpha1.ConditionAccessVerified, false, reasonWritesFail, w.writes.problem.Error())
	case known != nil && known.Reason == reasonWritesFail && w.clients.write != nil && !w.writes.taken:
		// keep the result of another process until this one has made a write
	case w.access.verified:
		set(v1alpha1.ConditionAccessVerified, true, reasonVerified, verifiedMessage(cluster))
	case w.access.problem != nil && !(wasVerified && w.access.isTolerated()):
		set(v1alpha1.ConditionAccessVerified, false, reasonDenied, w.access.problem.Error())
	}

	switch {
	case w.guards.enforced:
		set(v1alpha1.ConditionRulesEnforced, true, reasonVerified, "its admission policies for pods are there")
	case w.guards.problem != nil:
		set(v1alpha1.ConditionRulesEnforced, false, reasonUnguarded, w.guards.problem.Error())
	}

	verified := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionAccessVerified)
	counted := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionCapacityKnown)
	switch {
	case len(leaving) > 0:
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonDeleting,
			fmt.Sprintf("member cluster %s: not removed yet: it is in use by %s (deprovision instances, and end peerings, first)", w.cluster, lists.Some(leaving, 3)))
	case !reachable:
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonUnreachable, meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReachable).Message)
	case verified == nil || verified.Status != metav1.ConditionTrue:
		reason, message := reasonDenied, "not verified yet"
		if verified != nil {
			reason, message = verified.Reason, verified.Message
		}
		set(v1alpha1.ConditionReady, false, reason, message)
	case counted == nil || counted.Status != metav1.ConditionTrue:
		reason, message := reader.ReasonSyncing, "its capacity has not been read yet"
		if counted != nil {
			reason, message = counted.Reason, counted.Message
		}
		set(v1alpha1.ConditionReady, false, reason, message)
	default:
		set(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "takes placements")
	}
}

// reportConnection writes whether the cluster's probe is connected. What is not known yet stays.
func (r *clusterReconciler) reportConnection(cluster *v1alpha1.MemberCluster) {
	conditions := &cluster.Status.Conditions
	switch state, why := r.Connection(cluster.Name); state {
	case "":
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionMeasured)
	case metav1.ConditionTrue:
		v1alpha1.SetCondition(conditions, cluster.Generation, v1alpha1.ConditionMeasured, state, reasonConnected, why)
	case metav1.ConditionFalse:
		v1alpha1.SetCondition(conditions, cluster.Generation, v1alpha1.ConditionMeasured, state, reasonAway, why)
	}
}

// reportCordon writes whether the cluster takes new placements, once it was cordoned, and whether instances are left on it,
// while it is to be drained.
func reportCordon(cluster *v1alpha1.MemberCluster, reservations int) {
	conditions := &cluster.Status.Conditions
	drain := cluster.IsDraining()
	switch {
	case cluster.Spec.Unschedulable && drain:
		v1alpha1.SetCondition(conditions, cluster.Generation, v1alpha1.ConditionCordoned, metav1.ConditionTrue, reasonCordoned, "its instances leave")
	case cluster.Spec.Unschedulable:
		v1alpha1.SetCondition(conditions, cluster.Generation, v1alpha1.ConditionCordoned, metav1.ConditionTrue, reasonCordoned, "its instances stay")
	case meta.FindStatusCondition(*conditions, v1alpha1.ConditionCordoned) != nil:
		v1alpha1.SetCondition(conditions, cluster.Generation, v1alpha1.ConditionCordoned, metav1.ConditionFalse, reasonUncordoned, "")
	}
	switch {
	case !drain:
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionDrained)
	case reservations == 0:
		v1alpha1.SetCondition(conditions, cluster.Generation, v1alpha1.ConditionDrained, metav1.ConditionTrue, reasonEmpty, "no instance is left")
	default:
		v1alpha1.SetCondition(conditions, cluster.Generation, v1alpha1.ConditionDrained, metav1.ConditionFalse, reasonInUse, "instances are left")
	}
}

// worthWriting reports whether a status has changed enough to be written. Foreign use and holes change
// with every pod, so they are written when foreign use changed by a hundredth of what is allocatable,
// and otherwise once a minute, as the time is at which a market was read. The inventory always has the exact value.
func (w *clusterWatch) worthWriting(before, now *v1alpha1.MemberClusterStatus, at time.Time) bool {
	if equality.Semantic.DeepEqual(before, now) {
		return false
	}
	quiet := now.DeepCopy()
	quiet.ForeignUse, quiet.Holes = before.ForeignUse, before.Holes
	if s := quiet.Broker; s != nil && s.Sluice != nil && before.Broker != nil && before.Broker.Sluice != nil {
		s.Sluice.MarketReadAt = before.Broker.Sluice.MarketReadAt
	}
	if !equality.Semantic.DeepEqual(before, quiet) || at.Sub(w.wrote) >= time.Minute {
		return true
	}
	return differs(before.ForeignUse, now.ForeignUse, now.Allocatable)
}

func differs(before, now, allocatable corev1.ResourceList) bool {
	was, is := placement.ResourcesOf(before), placement.ResourcesOf(now)
	for name, all := range placement.ResourcesOf(allocatable) {
		if difference := is[name] - was[name]; difference > all/100 || -difference > all/100 {
			return true
		}
	}
	return false
}
