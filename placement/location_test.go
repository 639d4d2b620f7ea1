package placement

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestDistancesAreThoseOfTheGlobe(t *testing.T) {
	berlin, paris := LocationAt(52.52, 13.405), LocationAt(48.8566, 2.3522)
	for _, row := range []struct {
		name     string
		from, to *Location
		want     int
	}{
		{"Berlin to Paris", berlin, paris, 877},
		{"and back", paris, berlin, 877},
		{"nowhere", berlin, berlin, 0},
		{"across the date line", LocationAt(0, 179), LocationAt(0, -179), 222},
		{"to the antipodes", LocationAt(0, 0), LocationAt(0, 180), 20015},
		{"from pole to pole", LocationAt(90, 0), LocationAt(-90, 123), 20015},
	} {
		if got := row.from.kilometers(row.to); got != row.want {
			t.Errorf("%s: %d km, want %d", row.name, got, row.want)
		}
	}
}

func TestLocationsThatAreNoneAreRefused(t *testing.T) {
	for _, from := range []v1alpha1.Location{{Latitude: "91", Longitude: "0"}, {Latitude: "0", Longitude: "-181"}, {Latitude: "north", Longitude: "0"}, {Latitude: "NaN", Longitude: "0"}} {
		if at, err := locationOf(&from); err == nil {
			t.Errorf("%+v is taken as %+v", from, at)
		}
	}
}

// Liqo's latency between two clusters is used in both directions, unless it has expired or another
// latency has been reported.
func TestLinksHoldByWhatLiqoMeasures(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	said := func(from string, milliseconds int, ago time.Duration) []v1alpha1.MeasuredLatency {
		return []v1alpha1.MeasuredLatency{{
			From: from, Median: metav1.Duration{Duration: time.Duration(milliseconds) * time.Millisecond}, MeasuredAt: metav1.NewTime(now.Add(-ago)),
		}}
	}
	type cluster struct{ typed, observed []v1alpha1.MeasuredLatency }
	for _, row := range []struct {
		name  string
		a, b  cluster
		holds bool
	}{
		{"nobody has measured", cluster{}, cluster{}, false},
		{"observed by the one", cluster{observed: said("b", 9, 0)}, cluster{}, true},
		{"observed by the other", cluster{}, cluster{observed: said("a", 9, 0)}, true},
		{"observed, and too long", cluster{observed: said("b", 11, 0)}, cluster{}, false},
		{"observed by both, and short enough to one", cluster{observed: said("b", 11, 0)}, cluster{observed: said("a", 9, 0)}, true},
		{"observed an hour ago", cluster{observed: said("b", 9, time.Hour)}, cluster{}, true},
		{"observed more than an hour ago", cluster{observed: said("b", 9, time.Hour+time.Second)}, cluster{}, false},
		{"of another cluster", cluster{observed: said("c", 9, 0)}, cluster{}, false},
		{"typed, and shorter than observed", cluster{typed: said("b", 9, 1000*time.Hour), observed: said("b", 11, 0)}, cluster{}, true},
		{"typed, and longer than observed", cluster{typed: said("b", 11, 0), observed: said("b", 9, 0)}, cluster{}, false},
		{"typed of the one, and longer than observed by the other", cluster{typed: said("b", 11, 0)}, cluster{observed: said("a", 9, 0)}, false},
		{"observed by the one, and typed longer of the other", cluster{observed: said("b", 9, 0)}, cluster{typed: said("a", 11, 0)}, false},
	} {
		inventory := NewInventory()
		for name, c := range map[string]cluster{"a": row.a, "b": row.b} {
			mc := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			mc.Spec.Latencies, mc.Status.Latencies = c.typed, c.observed
			mc.Status.Allocatable = Resources{"cpu": 2000}.List()
			for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified} {
				v1alpha1.SetCondition(&mc.Status.Conditions, 1, condition, metav1.ConditionTrue, "Test", "")
			}
			inventory.UpsertCluster(ClusterOf(mc, now))
		}
		_, err := Place(Request{
			ID: "si-new", At: now,
			Components: []Component{{Name: "web", Resources: Resources{"cpu": 2000}}, {Name: "db", Resources: Resources{"cpu": 2000}}},
			Links:      []Link{{Between: [2]int{0, 1}, Most: 10 * time.Millisecond}},
		}, inventory.Snapshot())
		if holds := err == nil; holds != row.holds {
			t.Errorf("%s: placed is %t (%v)", row.name, holds, err)
		}
	}
}

// A latency may be as high as the bound. One that is not known, or was measured too long ago, is none.
func TestABoundOfTheLatency(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	const ms = time.Millisecond
	for name, row := range map[string]struct {
		own, measured time.Duration
		ago           time.Duration
		bound         v1alpha1.LatencyBound
		fits          bool
		says          string
	}{
		"as much":                  {own: 10 * ms, bound: v1alpha1.LatencyBound{Milliseconds: 10}, fits: true},
		"more":                     {own: 10*ms + 1, bound: v1alpha1.LatencyBound{Milliseconds: 10}, says: "is 10.000001ms from Sluice, at most 10ms allowed"},
		"not known":                {measured: ms, bound: v1alpha1.LatencyBound{Milliseconds: 10}, says: "at most 10ms from Sluice allowed, and not measured from there"},
		"as much from elsewhere":   {own: time.Second, measured: 10 * ms, bound: v1alpha1.LatencyBound{Milliseconds: 10, From: "eu"}, fits: true},
		"more from elsewhere":      {own: ms, measured: 11 * ms, bound: v1alpha1.LatencyBound{Milliseconds: 10, From: "eu"}, says: "is 11ms from eu, at most 10ms allowed"},
		"not known from there":     {own: ms, measured: ms, bound: v1alpha1.LatencyBound{Milliseconds: 10, From: "us"}, says: "at most 10ms from us allowed, and not measured from there"},
		"as old as is allowed":     {measured: ms, ago: time.Minute, bound: v1alpha1.LatencyBound{Milliseconds: 10, From: "eu", MaxAgeSeconds: 60}, fits: true},
		"older":                    {measured: ms, ago: time.Minute + time.Second, bound: v1alpha1.LatencyBound{Milliseconds: 10, From: "eu", MaxAgeSeconds: 60}, says: "was last measured from eu 1m1s ago, at most 1m0s allowed"},
		"of any age, and very old": {measured: ms, ago: 1000 * time.Hour, bound: v1alpha1.LatencyBound{Milliseconds: 10, From: "eu"}, fits: true},
	} {
		c := &Cluster{Name: "c", Ready: true, AccessVerified: true, Allocatable: cores(4), Latency: row.own, Latencies: map[string]Measured{"eu": {Median: row.measured, At: now.Add(-row.ago)}}}
		d, err := Place(Request{ID: "si", At: now, Resources: cores(1), MaxLatency: &row.bound}, stock([]*Cluster{c}).Snapshot())
		if (err == nil) != row.fits || err != nil && d.Rejections[0].Examples[0].Message != row.says {
			t.Errorf("%s: %v, want %q", name, err, row.says)
		}
	}
}
