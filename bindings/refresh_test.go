package bindings

import (
	"slices"
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
		"its own cluster":             {deliveredTo(madeOn("a")), 0, findings{pending: true}, 0},
		"at a broker":                 {deliveredTo(atBroker("a")), 0, findings{pending: true}, 0},
	} {
		c := &Controller{Refresh: 30 * time.Second, Clock: clock.NewFakePassiveClock(now)}
		b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-row.age))}}
		if got := c.nextCheck(b, row.instance, row.found).RequeueAfter; got < row.want || got > row.want*11/10 {
			t.Errorf("%s: after %s, want %s and up to a tenth more", name, got, row.want)
		}
	}
}

// Endpoints through a peering come before the API servers, public ones after them; what is the same is no news.
func TestRecordEndpoints(t *testing.T) {
	found := findings{sockets: []socket{{"10.61.0.9", "80", "tcp", "web"}}, absent: []string{"a", "b"}}
	for peered, want := range map[bool][]string{true: {"10.61.0.9", "a.example"}, false: {"a.example", "10.61.0.9"}} {
		b := &v1alpha1.ServiceBinding{}
		for _, isNew := range []bool{true, false} {
			if changed, err := recordEndpoints(b, []string{"https://a.example"}, found, peered); err != nil || changed != isNew {
				t.Errorf("peered %t: changed is %t, %v; want %t", peered, changed, err, isNew)
			}
		}
		var hosts []string
		for _, e := range b.Status.Endpoints {
			hosts = append(hosts, e.Host)
		}
		if !slices.Equal(hosts, want) || b.Status.EndpointsAbsent != "a; b" || !slices.Equal(b.Status.Services["web"], []string{"tcp://10.61.0.9:80"}) {
			t.Errorf("peered %t: %v, absent %q, Services %v", peered, hosts, b.Status.EndpointsAbsent, b.Status.Services)
		}
		if changed, err := recordEndpoints(b, nil, findings{}, peered); err != nil || !changed || b.Status.Endpoints != nil || b.Status.Services != nil {
			t.Errorf("peered %t: nothing is found any more, %t, %v: %+v", peered, changed, err, b.Status)
		}
	}
	if _, err := recordEndpoints(&v1alpha1.ServiceBinding{}, []string{":"}, findings{}, false); err == nil {
		t.Error("an API server without a URL")
	}
}
