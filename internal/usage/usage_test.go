package usage_test

import (
	"bytes"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/usage"
)

var start = time.Date(2026, 10, 31, 23, 50, 0, 0, time.UTC)

// life is an instance, and what it had in each second, noted second by second.
type life struct {
	*rapid.T
	instance *v1alpha1.ServiceInstance
	clock    time.Time
	had      map[int64]*v1alpha1.DeliveredState
}

// state returns something delivered on a few clusters; nil is nothing.
func (l *life) state() *v1alpha1.DeliveredState {
	of := &v1alpha1.DeliveredState{State: v1alpha1.InstanceState{PlanID: rapid.SampledFrom([]string{"small", "large"}).Draw(l.T, "plan")}}
	for _, cluster := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(l.T, "clusters") {
		p := v1alpha1.Placement{Cluster: cluster, Reserved: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(rapid.SampledFrom([]int64{250, 4000}).Draw(l.T, "cpu"), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(rapid.SampledFrom([]int64{1 << 30, 5 << 40}).Draw(l.T, "memory"), resource.BinarySI),
		}}
		if nano := rapid.SampledFrom([]int64{0, 7, 123_456_789_012}).Draw(l.T, "price"); nano > 0 {
			p.PricePerHour, p.Currency = resource.NewScaledQuantity(nano, resource.Nano), rapid.SampledFrom([]string{"EUR", "USD"}).Draw(l.T, "currency")
		}
		of.Decision.Placements = append(of.Decision.Placements, p)
	}
	return of
}

// change writes another state, or the same. The first attempts may be lost.
func (l *life) change(after *v1alpha1.DeliveredState) {
	before := l.instance.Status
	for range rapid.IntRange(0, 2).Draw(l.T, "lost") {
		usage.Next(before.Usage, before.Delivered, l.state(), l.clock, provider)
		l.wait()
	}
	l.instance.Status.Usage = usage.Next(before.Usage, before.Delivered, after, l.clock, provider)
	l.instance.Status.Delivered = after
}

func provider(cluster string) string { return "provider of " + cluster }

func (l *life) wait() {
	to := l.clock.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 59, 700, 4000}).Draw(l.T, "seconds"))*time.Second + 300*time.Millisecond)
	for second := l.clock.Unix(); second < to.Unix(); second++ {
		l.had[second] = l.instance.Status.Delivered
	}
	l.clock = to
}

// TestUsageIsTheIntegral: what an instance had in each second, added up by hour, is its usage, to the second, the unit of
// each resource and a billionth of the currency: whatever it had and when, on whichever clusters, also if writes are
// lost.
func TestUsageIsTheIntegral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{T: t, instance: &v1alpha1.ServiceInstance{}, clock: start, had: map[int64]*v1alpha1.DeliveredState{}}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			l.change(l.state())
			l.wait()
		}
		if rapid.Bool().Draw(t, "deleted") {
			l.change(nil)
			l.wait()
		}
		window := usage.Window{From: start.Add(-time.Hour), To: l.clock}
		type part struct {
			hour, plan string
			on         *v1alpha1.Placement
		}
		seconds := map[part]int64{}
		for second, state := range l.had {
			for i := 0; state != nil && i < len(state.Decision.Placements); i++ {
				hour := time.Unix(second, 0).UTC().Truncate(time.Hour).Format(time.RFC3339)
				seconds[part{hour, state.State.PlanID, &state.Decision.Placements[i]}]++
			}
		}
		want := map[string]*big.Rat{}
		for in, n := range seconds {
			key := fmt.Sprintf("%s %s %s %s ", in.hour, in.plan, in.on.Cluster, in.on.Currency)
			values := map[string]*big.Rat{
				"seconds": big.NewRat(1, 1), "cpu": big.NewRat(in.on.Reserved.Cpu().MilliValue(), 1000), "memory": big.NewRat(in.on.Reserved.Memory().Value(), 1),
			}
			if in.on.PricePerHour != nil {
				values["cost"] = big.NewRat(in.on.PricePerHour.ScaledValue(resource.Nano), 1e9*3600)
			}
			for what, value := range values {
				if want[key+what] == nil {
					want[key+what] = new(big.Rat)
				}
				want[key+what].Add(want[key+what], value.Mul(value, big.NewRat(n, 1)))
			}
		}
		read := []usage.Metered{{Periods: usage.Of(l.instance)}}
		sums, err := usage.Sums(read, usage.Query{Window: window, By: []usage.Dimension{usage.ByPlan, usage.ByCluster}, Per: usage.PerHour, Names: usage.IDs})
		if err != nil {
			t.Fatal(err)
		}
		for _, sum := range sums {
			key := fmt.Sprintf("%s %s %s %s ", sum.From.Truncate(time.Hour).Format(time.RFC3339), sum.PlanID, sum.Cluster, sum.Currency)
			for what, got := range map[string]*big.Rat{
				"seconds": big.NewRat(sum.Seconds, 1), "cost": sum.Cost.Rat(),
				"cpu": sum.Reserved[corev1.ResourceCPU].Rat(), "memory": sum.Reserved[corev1.ResourceMemory].Rat(),
			} {
				if had := want[key+what]; had == nil && got.Sign() != 0 || had != nil && had.Cmp(got) != 0 {
					t.Fatalf("%s: %s, had %v", key+what, got, had)
				}
				delete(want, key+what)
			}
		}
		if len(want) > 0 {
			t.Fatalf("nothing is measured of %v", want)
		}
	})
}

// TestClockGoesBack: whatever the clock does, nothing is doubled. The periods on a cluster follow each other.
func TestClockGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &life{T: t, instance: &v1alpha1.ServiceInstance{}, clock: start, had: map[int64]*v1alpha1.DeliveredState{}}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			l.change(l.state())
			l.clock = l.clock.Add(time.Duration(rapid.IntRange(-30, 30).Draw(t, "seconds")) * time.Second)
		}
		last := map[string]int64{}
		for _, p := range l.instance.Status.Usage {
			if p.From.Unix() < last[p.Cluster] || p.To != nil && p.To.Unix() <= p.From.Unix() {
				t.Fatalf("%+v", l.instance.Status.Usage)
			}
			if p.To != nil {
				last[p.Cluster] = p.To.Unix()
			}
		}
	})
}

// TestLastPeriodOfADeletion: from the moment at which its deletion is asked for, an instance uses nothing any more, also
// before its controller has seen that.
func TestLastPeriodOfADeletion(t *testing.T) {
	asked := metav1.NewTime(start.Add(90 * time.Second))
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &asked}}
	i.Status.Delivered = &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "a"}}}}
	i.Status.Usage = usage.Next(nil, nil, i.Status.Delivered, start, provider)
	periods := usage.Of(i)
	if len(periods) != 1 || periods[0].To == nil || !periods[0].To.Equal(&asked) || periods[0].Provider != "provider of a" {
		t.Errorf("got %+v", periods)
	}
}

// TestQueriesSelect: of the usage that was read, sums and rows of FOCUS have what the query selects, and a statement says
// what that was.
func TestQueriesSelect(t *testing.T) {
	var read []usage.Metered
	for _, platform := range []string{"cf", "k8s"} {
		of := usage.Metered{EventSubject: v1alpha1.EventSubject{Platform: platform, InstanceID: "one"}}
		for _, provider := range []string{"acme", "rival"} {
			of.Periods = append(of.Periods, v1alpha1.UsagePeriod{Cluster: provider + "-1", Provider: provider, From: metav1.NewTime(start)})
		}
		read = append(read, of)
	}
	for _, row := range []struct{ provider, platform, want string }{
		{"", "", "cf acme, cf rival, k8s acme, k8s rival"}, {"acme", "", "cf acme, k8s acme"}, {"", "k8s", "k8s acme, k8s rival"}, {"rival", "cf", "cf rival"}, {"none", "", ""},
	} {
		q := usage.Query{
			Window: usage.Window{From: start, To: start.Add(time.Minute)}, Provider: row.provider, Platform: row.platform, Names: usage.IDs,
			By: []usage.Dimension{usage.ByPlatform, usage.ByProvider},
		}
		sums, err := usage.Sums(read, q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, sum := range sums {
			got = append(got, sum.Platform+" "+sum.Provider)
		}
		if text := strings.Join(got, ", "); text != row.want {
			t.Errorf("%+v: the sums are of %s", row, text)
		}
		var out bytes.Buffer
		if err := usage.WriteFOCUS(&out, read, q, "Example Cloud"); err != nil {
			t.Fatal(err)
		}
		if rows := strings.Count(out.String(), "\n") - 1; rows != len(got) {
			t.Errorf("%+v: FOCUS has %d rows", row, rows)
		}
		claims := usage.Claims(q, sums)
		for name, want := range map[string]string{"provider": row.provider, "platform": row.platform} {
			if claim, there := claims[name]; there != (want != "") || there && claim != want {
				t.Errorf("%+v: the claim %s is %v", row, name, claim)
			}
		}
	}
}
