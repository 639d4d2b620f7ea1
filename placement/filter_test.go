package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The rules of Kubernetes ("Taints and Tolerations").
func TestTolerated(t *testing.T) {
	taint := &corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}
	for name, row := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"of the same value":          {corev1.Toleration{Key: "k", Value: "v"}, true},
		"the same, spelled out":      {corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "v", Effect: corev1.TaintEffectNoSchedule}, true},
		"of another value":           {corev1.Toleration{Key: "k", Value: "w"}, false},
		"of another key":             {corev1.Toleration{Key: "l", Value: "v"}, false},
		"of another effect":          {corev1.Toleration{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute}, false},
		"of any value":               {corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}, true},
		"of everything":              {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"of a value without a key":   {corev1.Toleration{Value: "v"}, false},
		"with an operator of others": {corev1.Toleration{Key: "k", Operator: "Gt", Value: "v"}, false},
	} {
		if got := tolerated([]corev1.Toleration{row.toleration}, taint); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The rejection of a cluster without a group names the label that it lacks.
func TestUngroupedNamesTheLabel(t *testing.T) {
	spread := &Spread{By: []string{"region", "zone"}}
	for lacks, labels := range map[string]map[string]string{
		"region": {"zone": "z"},
		"zone":   {"region": "r"},
	} {
		c := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(4), Labels: labels}
		if _, ok := spread.groupOf(c); ok {
			t.Errorf("%v is a group of %v", labels, spread.By)
		}
		_, err := Place(Request{ID: "si", Resources: cores(1), Spread: spread}, stock([]*Cluster{c}).Snapshot())
		if err == nil || !strings.Contains(err.Error(), "has no label "+lacks+",") {
			t.Errorf("%v: %v", labels, err)
		}
	}
}

// What keeps new instances away from a cluster lets those stay that are there. All of it may pass by itself, so that an
// order waits.
func TestWhatOnlyNewInstancesMeet(t *testing.T) {
	consumer := Consumer{Platform: "cf", Space: "s"}
	for reason, row := range map[Reason]struct {
		cluster func(*Cluster)
		request func(*Request)
		held    bool // by another instance
		room    bool // is being made for another one
	}{
		ReasonNotReady:          {cluster: func(c *Cluster) { c.Ready = false }},
		ReasonAccessNotVerified: {cluster: func(c *Cluster) { c.AccessVerified = false }},
		ReasonCapacityUnknown:   {cluster: func(c *Cluster) { c.CapacityUnknown = "its reader is silent" }},
		ReasonNotAdmitted:       {cluster: func(c *Cluster) { c.Unproven = "nothing was presented" }},
		ReasonCordoned:          {cluster: func(c *Cluster) { c.Cordoned = true }},
		ReasonTainted:           {cluster: func(c *Cluster) { c.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }},
		ReasonTooSlow:           {request: func(r *Request) { r.MaxLatency = &v1alpha1.LatencyBound{Milliseconds: 1} }},
		ReasonTooFragmented:     {cluster: func(c *Cluster) { c.Holes = HolesOf([]Resources{cores(1)}) }, request: func(r *Request) { r.LargestPods = []Resources{cores(2)} }},
		ReasonNotApart: {held: true, request: func(r *Request) {
			r.Affinity = []v1alpha1.Affinity{{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: true}}
		}},
		ReasonSpokenFor: {room: true},
	} {
		c := inRegion("eu", "eu", 8000)
		if row.cluster != nil {
			row.cluster(c)
		}
		inventory := stock([]*Cluster{c})
		if row.held {
			inventory.Reserve(Holding{Instance: "si-other", Consumer: consumer, Held: map[string]Resources{"eu": cores(1)}})
		}
		if row.room {
			inventory.Preempt("si-other", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu"}})
		}
		r := Request{ID: "si", Consumer: consumer, Resources: cores(2)}
		if row.request != nil {
			row.request(&r)
		}
		d, err := Place(r, inventory.Snapshot())
		if err == nil || len(d.Rejections) != 1 || d.Rejections[0].Reason != reason || Hopeless(r, inventory.Snapshot()) {
			t.Errorf("%s: a new instance is rejected by %+v, or in vain: %v", reason, d.Rejections, err)
		}
		r.Current = []string{"eu"}
		inventory.Reserve(Holding{Instance: r.ID, Consumer: consumer, Held: map[string]Resources{"eu": cores(2)}})
		if _, err := Place(r, inventory.Snapshot()); err != nil {
			t.Errorf("%s: one that is there has to go: %v", reason, err)
		}
	}
}
