package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription"
)

// evidenceLimit is the limit of a SelfDescription's evidence, in bytes.
const evidenceLimit = 262144

// bench sums up probes and signs the results, on a hub that refuses writes on demand.
type bench struct {
	*testing.T
	measurement
	clock   *clocktesting.FakePassiveClock
	refuses error // what the next writes of measurements are answered
	lost    bool  // and whether they are stored all the same
}

func newBench(t *testing.T, window, every time.Duration) *bench {
	t.Helper()
	scheme := clientgoscheme.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(t.TempDir() + "/keyset.json")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, clock: clocktesting.NewFakePassiveClock(start)}
	b.Options = Options{
		Namespace: namespace, DID: "did:web:broker.example", Seal: keys, Clock: b.clock, RotateEvery: 90 * day,
		Measure: Measure{Probes: &Probes{Window: window}, Every: every, Vantage: "fra"},
	}
	id := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IdentityName}, Spec: v1alpha1.IdentitySpec{DID: b.DID}}
	if _, err := (&keyring{Options: b.Options}).turn(id); err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fra"},
		Spec:       v1alpha1.MemberClusterSpec{Provider: "eins", Trust: &v1alpha1.TrustRequirements{Offering: "https://provider.example/k8s"}},
	}
	b.hub = fake.NewClientBuilder().WithScheme(scheme).WithObjects(id, cluster).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if b.refuses == nil || b.lost {
				if err := c.Create(ctx, o, options...); err != nil {
					return err
				}
			}
			return b.refuses
		},
	}).Build()
	b.Measure.Probes.measure("fra")
	return b
}

// probe probes a cluster for some windows from the start on, at an interval.
func (b *bench) probe(windows int) {
	b.Helper()
	p := b.Measure.Probes
	for at := start; at.Before(start.Add(time.Duration(windows) * p.Window)); at = at.Add(b.Measure.Every) {
		p.Probed("fra", at, time.Duration(1+rand.IntN(5000))*time.Millisecond, nil)
	}
	b.clock.SetTime(start.Add(time.Duration(windows) * p.Window))
}

func (b *bench) stored() []v1alpha1.SelfDescription {
	b.Helper()
	var list v1alpha1.SelfDescriptionList
	if err := b.hub.List(b.Context(), &list, client.InNamespace(namespace)); err != nil {
		b.Fatal(err)
	}
	return list.Items
}

// TestEveryProbeIntervalIsMeasured: the expected number of probes follows from the interval,
// and the evidence fits for any interval and window.
func TestEveryProbeIntervalIsMeasured(t *testing.T) {
	for _, row := range []struct{ window, every time.Duration }{
		{day, 10 * time.Second}, {day, 12 * time.Second}, {day, time.Minute},
		{day, 2 * time.Second}, {60 * time.Hour, 10 * time.Second}, {31 * day, 10 * time.Second},
	} {
		t.Run(fmt.Sprintf("%s every %s", row.window, row.every), func(t *testing.T) {
			b := newBench(t, row.window, row.every)
			b.probe(1)
			if err := b.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			stored := b.stored()
			if len(stored) != 1 {
				t.Fatalf("%d measurements are stored, want 1", len(stored))
			}
			if size := len(stored[0].Spec.Evidence); size > evidenceLimit/10 {
				t.Errorf("the evidence has %d bytes", size)
			}
		})
	}
}

// TestTheDataPlaneOfAWindow: a window has a part about the probe on the cluster if that was there for the whole window.
func TestTheDataPlaneOfAWindow(t *testing.T) {
	for name, row := range map[string]struct {
		pinged, answered func(minute int) bool
		transfers        int
		want             string
	}{
		"no probe":                     {never, never, 0, ""},
		"a probe that never came":      {always, never, 0, ""},
		"a probe that came too late":   {func(minute int) bool { return minute >= 7 }, always, 3, ""},
		"a probe that came a bit late": {func(minute int) bool { return minute >= 6 }, always, 0, `{"latency":{"p50Ms":33,"p95Ms":58,"p99Ms":60,"vantage":"fra"},"uptime":{"probes":54,"ratio":1}}`},
		"a probe": {always, always, 3,
			`{"latency":{"p50Ms":30,"p95Ms":57,"p99Ms":60,"vantage":"fra"},"podStart":{"p50Ms":2000,"p95Ms":3000,"starts":3},"throughput":{"mbitPerSecond":41.94,"transfers":3},"uptime":{"probes":60,"ratio":1}}`},
		"a probe that was away for a quarter": {always, func(minute int) bool { return minute >= 15 }, 0,
			`{"latency":{"p50Ms":38,"p95Ms":58,"p99Ms":60,"vantage":"fra"},"uptime":{"probes":60,"ratio":0.75}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, time.Hour, time.Minute)
			for minute := range 60 {
				if at := start.Add(time.Duration(minute) * time.Minute); row.pinged(minute) {
					b.Measure.Probes.Pinged("fra", at, time.Duration(minute+1)*time.Millisecond, failing(!row.answered(minute)))
				}
			}
			for i := range row.transfers { // 1 MiB in 100, 200 and 300 ms, and a pod in ten times as long
				b.Measure.Probes.Started("fra", start.Add(time.Minute), time.Duration(i+1)*time.Second)
				b.Measure.Probes.Transferred("fra", start.Add(time.Minute), time.Duration(i+1)*100*time.Millisecond, nil)
			}
			b.Measure.Probes.Transferred("fra", start.Add(time.Minute), 0, failing(true)) // changes nothing
			b.probe(1)
			if err := b.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			stored := b.stored()
			if len(stored) != 1 {
				t.Fatalf("%d measurements are stored, want 1", len(stored))
			}
			c, err := selfdescription.Parse(stored[0].Spec.Credential)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if part := c.Claims["dataPlane"]; part != nil {
				text, err := json.Marshal(part)
				if err != nil {
					t.Fatal(err)
				}
				got = string(text)
			}
			if got != row.want {
				t.Errorf("the data plane is\n%s, want\n%s", got, row.want)
			}
			if c.Claims["evidenceDigest"] != selfdescription.DigestOf(stored[0].Spec.Evidence).SRI() {
				t.Error("the evidence is another")
			}
			if has := strings.Contains(stored[0].Spec.Evidence, "\ndataPlane milliseconds,probes\n"); has != row.pinged(59) {
				t.Errorf("pings are evidence: %t", has)
			}
		})
	}
}

func always(int) bool { return true }
func never(int) bool  { return false }

func failing(fails bool) error {
	if fails {
		return errors.New("no answer")
	}
	return nil
}

// TestAMeasurementThatCannotBeStoredIsNotLost: it is stored once, when the hub accepts it.
func TestAMeasurementThatCannotBeStoredIsNotLost(t *testing.T) {
	b := newBench(t, time.Hour, time.Minute)
	b.probe(1)
	for name, row := range map[string]struct {
		refuses error
		lost    bool
	}{
		"refused":            {apierrors.NewInternalError(errors.New("etcd has no space")), false},
		"not answered":       {context.DeadlineExceeded, false},
		"stored, unanswered": {context.DeadlineExceeded, true},
	} {
		b.refuses, b.lost = row.refuses, row.lost
		if err := b.look(t.Context()); err == nil && len(b.stored()) == 0 {
			t.Errorf("%s: nothing is said of it", name)
		}
	}
	b.refuses = nil
	for range 2 {
		if err := b.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.stored()); n != 1 {
		t.Errorf("%d measurements are stored, want 1", n)
	}
	if open := b.Measure.Probes.over(b.clock.Now()); len(open) != 0 {
		t.Errorf("%d windows are kept though they are stored", len(open))
	}
}

// TestWindowsAreNotKeptForEver: a window that cannot be stored is dropped once its measurement
// would have ended.
func TestWindowsAreNotKeptForEver(t *testing.T) {
	b := newBench(t, time.Hour, time.Minute)
	b.refuses = errors.New("no")
	b.probe(10)
	if err := b.look(t.Context()); err == nil {
		t.Error("nobody is told that measurements are not stored")
	}
	if kept := len(b.Measure.Probes.over(b.clock.Now())); kept != 2 {
		t.Errorf("%d windows are kept, want the 2 whose measurements would hold", kept)
	}
}

func TestOnlyWhatSomebodyAsksAboutIsSummedUp(t *testing.T) {
	p := &Probes{Window: time.Minute}
	p.measure("asked")
	p.measure("gone")
	p.forget("gone")
	for _, cluster := range []string{"asked", "gone", "never"} {
		p.Probed(cluster, start, time.Millisecond, nil)
	}
	windows := p.over(start.Add(time.Minute))
	if len(windows) != 1 || windows[0].cluster != "asked" {
		t.Errorf("want the window of the cluster that is asked about, got %d", len(windows))
	}
}

func TestLatenciesAreRoundedUpALittle(t *testing.T) {
	sizes := map[uint32]bool{}
	for latency := 50 * time.Microsecond; latency < 200*time.Second; latency += latency/200 + 10*time.Microsecond {
		rounded := size(latency)
		sizes[rounded] = true
		exact := float64(latency) / float64(time.Millisecond)
		got := milliseconds(rounded)
		if latency <= 100*time.Second && (got < exact || got > exact*1.025+0.1) {
			t.Errorf("%s became %v ms", latency, got)
		}
	}
	if len(sizes) > 741 {
		t.Errorf("%d sizes", len(sizes))
	}
}

// TestQuantilesAreThoseOfAllProbes compares them with sorting all latencies.
func TestQuantilesAreThoseOfAllProbes(t *testing.T) {
	w := &tally{}
	var all []uint32
	for range 2000 {
		latency := time.Duration(rand.ExpFloat64() * float64(30*time.Millisecond))
		w.add(latency, true)
		all = append(all, size(latency))
	}
	w.add(0, false)
	slices.Sort(all)
	for _, share := range []float64{0, 0.001, 0.5, 0.95, 0.99, 1} {
		rank := max(int(share*float64(len(all))+0.9999), 1)
		if want := milliseconds(all[rank-1]); w.quantile(share) != want {
			t.Errorf("the %v quantile is %v, want %v", share, w.quantile(share), want)
		}
	}
	if evidence := (&window{api: *w}).evidence(); !strings.HasSuffix(evidence, "\n,1\n") {
		t.Errorf("the probe without an answer is not the last of %q", evidence)
	}
}

// TestADayOfProbesWeighsLittle: a day of 100 clusters with the worst latencies, hardly any of
// which occurs twice. Ten thousand clusters may take 100 MB at most.
func TestADayOfProbesWeighsLittle(t *testing.T) {
	for name, row := range map[string]struct {
		latency func() time.Duration
		most    uint64 // bytes for each cluster
	}{
		"as clusters are":  {func() time.Duration { return 20*time.Millisecond + time.Duration(rand.ExpFloat64()*5)*time.Millisecond }, 2 << 10},
		"as bad as can be": {func() time.Duration { return time.Duration(rand.IntN(100_000)) * time.Millisecond >> rand.IntN(17) }, 10 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			const clusters = 100
			p := &Probes{Window: day}
			before := heap()
			for i := range clusters {
				cluster := fmt.Sprint("cluster-", i)
				p.measure(cluster)
				for at := start; at.Before(start.Add(day)); at = at.Add(10 * time.Second) {
					p.Probed(cluster, at, row.latency(), nil)
				}
			}
			each := (max(heap(), before) - before) / clusters
			t.Logf("%d bytes for each cluster, %d MB for 10,000", each, each*10_000>>20)
			if each > row.most {
				t.Errorf("%d bytes for each cluster, want %d at most", each, row.most)
			}
			runtime.KeepAlive(p)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what pools and finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkProbed measures a probe among ten thousand clusters.
func BenchmarkProbed(b *testing.B) {
	p := &Probes{Window: day}
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("cluster-", i)
		p.measure(names[i])
		p.Probed(names[i], start, time.Millisecond, nil)
	}
	for i := 0; b.Loop(); i++ {
		p.Probed(names[i%len(names)], start, 20*time.Millisecond, nil)
	}
}
