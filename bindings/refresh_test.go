package bindings

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clock "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The younger a binding is, and the sooner its endpoints are expected, the more often it is
// checked.
func TestNextCheck(t *testing.T) {
	peered := &v1alpha1.ServiceInstance{}
	peered.Status.Delivered = &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "a", Peering: &v1alpha1.PlacementPeering{Consumer: "own"}}}}}
	plain := peered.DeepCopy()
	plain.Status.Delivered.Decision.Placements[0].Peering = nil
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		instance *v1alpha1.ServiceInstance
		age      time.Duration
		found    findings
		want     time.Duration
	}{
		"just bound":                  {peered, 0, findings{}, time.Second},
		"bound a while ago":           {peered, 40 * time.Second, findings{}, 10 * time.Second},
		"bound long ago":              {peered, time.Hour, findings{}, 30 * time.Second},
		"an address is about to come": {peered, time.Hour, findings{pending: true}, 500 * time.Millisecond},
		"a peering is about to come":  {peered, time.Hour, findings{unpeered: true}, 5 * time.Second},
		"just bound, without peering": {plain, 0, findings{}, 5 * time.Minute},
	} {
		c := &Controller{Refresh: 30 * time.Second, Clock: clock.NewFakePassiveClock(now)}
		b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-row.age))}}
		if got := c.nextCheck(b, row.instance, row.found).RequeueAfter; got < row.want || got > row.want*11/10 {
			t.Errorf("%s: after %s, want %s and up to a tenth more", name, got, row.want)
		}
	}
}
