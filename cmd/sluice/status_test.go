package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestStatus: everything is counted, and what is not ready is listed with its reason, the oldest first. What is being
// changed needs no attention, unless it waits for room.
func TestStatus(t *testing.T) {
	h, c, _, must := operatedHub(t)
	if out := must("status"); !strings.HasSuffix(out, "\nNothing needs attention.\n") {
		t.Errorf("of an empty hub:\n%s", out)
	}
	condition := func(kind string, is bool, reason string, minutes int) metav1.Condition {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "because of " + reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Duration(minutes) * time.Minute))}
	}
	set := func(object client.Object, into *[]metav1.Condition, conditions ...metav1.Condition) {
		t.Helper()
		*into = conditions
		if err := c.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(is bool, reason string, minutes int) metav1.Condition {
		return condition(v1alpha1.ConditionReady, is, reason, minutes)
	}
	for name, state := range map[string]metav1.Condition{"eu": ready(true, v1alpha1.ReasonReady, 9), "us": ready(false, "Unreachable", 20)} {
		cluster := readyCluster(t, c, h.Namespace, name, 4)
		set(cluster, &cluster.Status.Conditions, state)
	}
	far := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "far"}, Spec: v1alpha1.MemberClusterSpec{
		Driver: v1alpha1.DriverOSB, Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Broker: &v1alpha1.UpstreamBroker{URL: "https://far.example"},
	}}
	if err := c.Create(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	set(far, &far.Status.Conditions, ready(false, "Refused", 12))
	pool := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "small"}, Spec: v1alpha1.MemberClusterSpec{
		Driver: v1alpha1.DriverPool, Pool: &v1alpha1.ClusterPool{Front: "eu"},
	}}
	if err := c.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for name, conditions := range map[string][]metav1.Condition{
		"works":  {ready(true, v1alpha1.ReasonReady, 1)},
		"failed": {ready(false, v1alpha1.ReasonFailed, 50)},
		"busy":   {ready(false, v1alpha1.ReasonInProgress, 2)},
		"waits":  {ready(false, v1alpha1.ReasonInProgress, 40), condition(v1alpha1.ConditionPlaced, false, v1alpha1.ReasonUnplaceable, 30)},
		"new":    nil,
	} {
		i := deliveredInstance(t, c, h.Namespace, name, "eu")
		set(i, &i.Status.Conditions, conditions...)
	}

	words := func(text string) (rows []string) {
		for line := range strings.Lines(text) {
			rows = append(rows, strings.Join(strings.Fields(line), " "))
		}
		return rows
	}
	out := must("status")
	rows := words(out)
	for _, row := range []string{"cluster 2 1 0 1", "broker 1 0 0 1", "pool 1 0 1 0", "instance 5 1 2 2", "binding 0 0 0 0"} {
		if !slices.Contains(rows, row) {
			t.Errorf("no row %q", row)
		}
	}
	listed := rows[slices.Index(rows, "")+2:]
	want := []string{
		"instance cf/failed 50m Failed because of Failed", "instance cf/waits 30m Unplaceable because of Unplaceable",
		"cluster us 20m Unreachable because of Unreachable", "broker far 12m Refused because of Refused",
	}
	if !slices.Equal(listed, want) {
		t.Errorf("listed are\n%s\nwant\n%s\nin\n%s", strings.Join(listed, "\n"), strings.Join(want, "\n"), out)
	}
	if wide := must("status", "-o", "wide"); !strings.Contains(wide, "cf/busy") || !strings.Contains(wide, "cf/new") || strings.Contains(wide, "cf/works") {
		t.Errorf("wide:\n%s", wide)
	}
	if document := must("status", "-o", "json"); strings.Count(document, `"reason"`) != 7 || !strings.Contains(document, fmt.Sprintf("%q: %q", "name", "cf/waits")) {
		t.Errorf("as JSON:\n%s", document)
	}
}
