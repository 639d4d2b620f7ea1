package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// peer peers two clusters, with a latency that the provider's Liqo has measured; why says that it is not ready.
func (c *consoleOf) peer(consumer, provider string, took time.Duration, why string) {
	c.Helper()
	ready, ends := condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "", time.Hour), metav1.NewTime(time.Now().Add(300*24*time.Hour))
	if why != "" {
		ready = condition(v1alpha1.ConditionReady, false, "NotConnected", why, time.Hour)
	}
	c.create(&v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringName(consumer, provider)},
		Spec:       v1alpha1.PeeringSpec{Consumer: consumer, Provider: provider, Modules: []v1alpha1.LiqoModule{v1alpha1.ModuleNetworking, v1alpha1.ModuleAuthentication, v1alpha1.ModuleOffloading}},
		Status:     v1alpha1.PeeringStatus{Conditions: []metav1.Condition{ready}, IdentityExpiresAt: &ends},
	})
	if took > 0 {
		m := &v1alpha1.MemberCluster{}
		c.read(provider, m)
		m.Status.Latencies = append(m.Status.Latencies, v1alpha1.MeasuredLatency{From: consumer, Median: metav1.Duration{Duration: took}, MeasuredAt: metav1.Now()})
		if err := c.Status().Update(c.Context(), m); err != nil {
			c.Fatal(err)
		}
	}
}

// TestPeerings: an operator sees which clusters are peered, how they are, and how far from each other.
func TestPeerings(t *testing.T) {
	c := newConsole(t)
	operator := c.as(access.Caller{Role: access.Operator})
	if text := words(c.send(operator, Root+"peerings", nil).body); !strings.Contains(text, "No clusters are peered") {
		t.Errorf("without any it says %s", text)
	}
	for _, name := range []string{"home", "hub", "far"} {
		c.create(cluster(name, "eu", "acme", "8", "32Gi"))
	}
	c.peer("home", "hub", 1234*time.Microsecond, "")
	c.peer("hub", "far", 91500*time.Microsecond, "its gateway does not answer")
	body := c.send(operator, Root+"peerings", nil).body
	for _, want := range []string{"hub far Not ready its gateway does not answer 91.5ms", "home hub Ready 1.23ms"} {
		if text := words(body); !strings.Contains(text, want) {
			t.Errorf("the page has no %q: %s", want, text)
		}
	}
	for _, want := range []string{`<title>hub uses far: Not ready</title>`, `<text class="label"`, `aria-label="Peerings: `} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the drawing has no %s", want)
		}
	}
}

// TestTheDrawingOfPeerings: clusters do not overlap; each peering begins on the right of its consumer, ends on the left of its
// provider, and no two have an end in common; and all is in the picture.
func TestTheDrawingOfPeerings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows []*peeringRow
		known := map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "peerings") {
			from, to := rapid.IntRange(0, 9).Draw(t, "from"), rapid.IntRange(0, 9).Draw(t, "to")
			if name := fmt.Sprint(from, "-", to); from != to && !known[name] {
				known[name] = true
				rows = append(rows, &peeringRow{Consumer: fmt.Sprint("c", from), Provider: fmt.Sprint("c", to)})
			}
		}
		g := draw(rows)
		if len(rows) == 0 {
			if g != nil {
				t.Fatal("nothing is drawn")
			}
			return
		}
		at := map[string]*node{}
		for i, n := range g.Nodes {
			if at[n.Name] = n; n.X < 0 || n.Y < 0 || n.X+n.Width > g.Width || n.Y+n.Height > g.Height {
				t.Fatalf("%+v is not in the picture of %d × %d", n, g.Width, g.Height)
			}
			for _, other := range g.Nodes[:i] {
				if n.X < other.X+other.Width && other.X < n.X+n.Width && n.Y < other.Y+other.Height && other.Y < n.Y+n.Height {
					t.Fatalf("%+v is upon %+v", n, other)
				}
			}
		}
		ends := map[[3]int]bool{}
		for i, e := range g.Edges {
			var x1, y1, x2, y2, bend int
			if _, err := fmt.Sscanf(e.Path, "M%d %dC%d %d %d %d %d %d", &x1, &y1, &bend, &bend, &bend, &bend, &x2, &y2); err != nil {
				t.Fatal(err)
			}
			from, to := at[rows[i].Consumer], at[rows[i].Provider]
			if x1 != from.X+from.Width || y1 <= from.Y || y1 >= from.Y+from.Height || x2 != to.X || y2 <= to.Y || y2 >= to.Y+to.Height {
				t.Fatalf("%s does not lead from %+v to %+v", e.Path, from, to)
			}
			for _, end := range [][3]int{{0, x1, y1}, {1, x2, y2}} {
				if ends[end] {
					t.Fatalf("two end at %v", end)
				}
				ends[end] = true
			}
		}
	})
	var many []*peeringRow
	for i := range mostNodes {
		many = append(many, &peeringRow{Consumer: "hub", Provider: fmt.Sprint("c", i)})
	}
	if draw(many) != nil {
		t.Error("more clusters are drawn than can be told apart")
	}
}
