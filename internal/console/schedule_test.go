package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement/replay"
)

// moves plays a drain or a loss, as cmd/sluice has the market do. There is no time for the last c.untried instances.
func (c *consoleOf) moves(ctx context.Context, cluster string, lost bool) (told []market.Move, untried int, err error) {
	fleet, err := replay.ReadFleet(ctx, c.Client, c.namespace)
	if err != nil {
		return nil, 0, err
	}
	moves, untried, err := fleet.Leave(ctx, c.catalog.Snapshot(), cluster, lost, time.Now())
	for _, m := range moves[:max(0, len(moves)-c.untried)] {
		told = append(told, market.Move(m))
	}
	return told, untried + len(moves) - len(told), err
}

// TestDrainingACluster: an operator cordons a cluster, drains it once it has been asked, and lets it take placements
// again.
func TestDrainingACluster(t *testing.T) {
	c := newConsole(t)
	c.selling()
	c.create(cluster("us-1", "us", "globex", "64", "256Gi"))
	c.create(instanceOf("shop", "db", "large", "eu-1"))
	operator, acme := c.as(access.Caller{Role: access.Operator}), c.as(access.Caller{Role: access.Provider, Name: "acme"})
	at, asks, does := Root+"clusters/eu-1", Root+"clusters/eu-1/drain", Root+"clusters/eu-1/schedule"
	m := &v1alpha1.MemberCluster{}
	for _, row := range []struct {
		to                string
		status            int
		cordoned, drained bool
		shows, showsNot   string
	}{
		{"cordon", http.StatusSeeOther, true, false, "eu-1 Cordoned", "Stop draining"},
		{"drain", http.StatusSeeOther, true, true, "Stop draining, and uncordon 1 instance left", "Drain…"},
		{"everything", http.StatusBadRequest, true, true, "eu-1 Draining", "Drain…"},
		{"uncordon", http.StatusSeeOther, false, false, "Cordon Drain… If it were lost…", "Uncordon"},
	} {
		if got := c.send(operator, does, url.Values{"to": {row.to}}); got.StatusCode != row.status {
			t.Errorf("%s is answered %d: %s", row.to, got.StatusCode, words(got.body))
		}
		if c.read("eu-1", m); m.Spec.Unschedulable != row.cordoned || m.IsDraining() != row.drained {
			t.Errorf("%s: the cluster is %+v", row.to, m.Spec)
		}
		if text := words(c.send(operator, at, nil).body); !strings.Contains(text, row.shows) || strings.Contains(text, row.showsNot) {
			t.Errorf("%s: the page is %s", row.to, text)
		}
	}
	if text := words(c.send(operator, asks, nil).body); !strings.Contains(text, "Drain eu-1? It takes no new placements") || !strings.Contains(text, "Of 1 instance on it, as things are now: 1 would move to us-1") {
		t.Errorf("before a drain it asks %s", text)
	}
	if text := words(c.send(acme, at, nil).body); strings.Contains(text, "Drain") || strings.Contains(text, "Cordon") {
		t.Errorf("a provider may drain: %s", text)
	}

	if text := words(c.send(operator, Root+"clusters/eu-1/loss", nil).body); !strings.Contains(text, "If eu-1 were lost") || !strings.Contains(text, "Of 1 instance on it, as things are now: 1 would move to us-1") {
		t.Errorf("of its loss it says %s", text)
	}
	if got := c.send(acme, Root+"clusters/eu-1/loss", nil); got.StatusCode != http.StatusForbidden {
		t.Errorf("a provider asks about it: %d", got.StatusCode)
	}

	// What the market says against it is on the page.
	pinned := instanceOf("shop", "pinned", "large", "eu-1")
	pinned.Status.Delivered.Decision.Workload = &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{{Name: "db"}}}
	pinned.Status.Delivered.Decision.Placements[0].Reserved["fast.storageclass.storage.k8s.io/requests.storage"] = resource.MustParse("1Gi")
	c.create(pinned)
	if text := words(c.send(operator, asks, nil).body); !strings.Contains(text, "Of 2 instances on it, as things are now: 1 would move to us-1 1 would stay: pinned it has volumes there") {
		t.Errorf("before a drain it asks %s", text)
	}
	c.untried = 1
	c.shows(operator, "clusters/eu-1/drain", nil, http.StatusOK, "Of 2 instances on it, as things are now: 1 would move to us-1 There was no time for the other 1")
	got := c.send(operator, does, url.Values{"to": {"drain"}})
	if text := words(got.body); got.StatusCode != http.StatusUnprocessableEntity || got.isLive() || !strings.Contains(text, "volumes on eu-1 whose data would be lost by a move: "+pinned.Name) {
		t.Errorf("a drain that would lose data is answered %d: %s", got.StatusCode, text)
	}
	if got := c.send(operator, Root+"clusters/absent/drain", nil); got.StatusCode != http.StatusNotFound {
		t.Errorf("before a drain of no cluster: %d", got.StatusCode)
	}
	if got := c.send(operator, Root+"clusters/absent/schedule", url.Values{"to": {"drain"}}); got.StatusCode != http.StatusNotFound {
		t.Errorf("of no cluster: %d", got.StatusCode)
	}
}
