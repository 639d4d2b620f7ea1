package controller

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/osbclient/osbtest"
	"github.com/sluice-dev/sluice/placement"
)

// TestWhatASluiceSaysOfItself: plans that lead back here, or through too many Sluices, are not ordered, and it is said
// why. Of the others, those that offerings order name the Sluices behind them.
func TestWhatASluiceSaysOfItself(t *testing.T) {
	for name, row := range map[string]struct {
		chains   string // of the plans a/one, a/two and so on
		ordered  string // names of the plans that are left
		behind   []string
		withheld string // reason for the last plan
		acyclic  string // reason of the condition
	}{
		"no Sluice":    {`null`, "a/one", nil, "", ""},
		"a Sluice":     {`{"hub":"x","depth":1}`, "a/one", []string{"x"}, "", "Acyclic"},
		"two in a row": {`{"hub":"x","behind":["y"],"depth":2} null`, "a/one a/two", []string{"x", "y"}, "", "Acyclic"},
		"itself":       {`{"hub":"us","depth":1}`, "", nil, "the broker is this one itself", "LoopDetected"},
		"a circle":     {`{"hub":"x","depth":1} {"hub":"x","behind":["us","y"],"depth":3}`, "a/one", []string{"x"}, "the broker orders it from this one, directly or through others (the hubs behind it are us, y): orders would come back", "LoopDetected"},
		"just deep":    {`{"hub":"x","depth":8}`, "a/one", []string{"x"}, "", "Acyclic"},
		"too deep":     {`{"hub":"x","depth":1} {"hub":"x","depth":9}`, "a/one", []string{"x"}, "orders would come through 9 Sluices, at most 8 are allowed", "TooDeep"},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := &osbclient.Catalog{Services: []osbclient.Service{{ID: "a", Name: "a"}}}
			last := ""
			for i, chain := range strings.Fields(row.chains) {
				last = []string{"one", "two"}[i]
				catalog.Services[0].Plans = append(catalog.Services[0].Plans, osbclient.Plan{ID: last, Name: last, Metadata: json.RawMessage(`{"sluice":` + chain + `}`)})
			}
			cluster := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverOSB, Broker: &v1alpha1.UpstreamBroker{}}}
			w := &clusterWatch{hub: "us", catalog: catalog, ordered: map[string]bool{"a/one": true}}
			for range 2 { // it is read again and again
				w.reportBroker(cluster)
			}
			status := cluster.Status.Broker
			if got := strings.Join(namesOf(status.Plans), " "); got != row.ordered || len(status.Vanished) > 0 {
				t.Errorf("it offers %q without %q, want %q", got, status.Vanished, row.ordered)
			}
			if plan := status.Sluice.Plan("a/one"); (plan == nil) != (row.behind == nil) || plan != nil && !slices.Equal(plan.Hubs, row.behind) {
				t.Errorf("behind it is %+v, want %q", plan, row.behind)
			}
			if why := placement.ClusterOf(cluster, time.Now()).Withheld["a/"+last]; why != row.withheld {
				t.Errorf("the last plan is not ordered because %q, want %q", why, row.withheld)
			}
			condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionAcyclic)
			if (condition == nil) != (row.acyclic == "") || condition != nil && (condition.Reason != row.acyclic || !strings.Contains(condition.Message, row.withheld)) {
				t.Errorf("the condition is %+v, want %s", condition, row.acyclic)
			}
		})
	}
}

// TestTheMarketIsRead: what the market says of the plans that offerings order is in the status with the number of
// instances here. A market that cannot be read any more leaves what it said and the time, until it is too old, and the
// broker ready; a later time alone is written once a minute.
func TestTheMarketIsRead(t *testing.T) {
	market := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v2/catalog":
			_, _ = w.Write([]byte(`{"services": [{"id": "1", "name": "a", "plans": [
				{"id": "one-id", "name": "one", "metadata": {"sluice": {"hub": "x", "depth": 1}}}, {"id": "two-id", "name": "two", "metadata": {"sluice": {"hub": "x", "depth": 1}}}]}]}`))
		case "/market/v1/tokens":
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"token": "t", "expires_at": "2999-01-01T00:00:00Z"}`))
		default:
			w.WriteHeader(market)
			_, _ = w.Write([]byte(`{"plans": [{"id": "one-id", "regions": ["eu-de"], "availability": {"known": true, "orders": 0, "reason": "no disk"}}, {"id": "two-id"}]}`))
		}
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster, credentials := osbtest.Broker("eu", server.URL)
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, credentials).Build()
	connections := &member.Connections{Reader: hub, Namespace: "sluice"}
	begin := time.Now().Truncate(time.Second)
	r := newClusterReconciler(hub, hub, Options{
		Namespace: "sluice", HubID: "us", Connections: connections, Brokers: &osbclient.Brokers{Members: connections},
		Clock: testclock.NewFakePassiveClock(begin), // so that its latency never changes
	}.complete(), nil)
	r.Inventory.Reserve(placement.Holding{Instance: "si-a", Held: map[string]placement.Resources{"eu": {v1alpha1.ResourceInstances: 1}}})
	w := r.watchOf("eu")
	w.ordered = map[string]bool{"a/one": true}
	look := func(after time.Duration) *placement.Cluster {
		w.nextProbe = time.Time{}
		w.refresh(t.Context(), r, cluster, begin.Add(after))
		w.report(t.Context(), cluster, nil, nil)
		return placement.ClusterOf(cluster, begin.Add(after))
	}
	full := placement.Market{Known: true, Reason: "no disk", Ordered: 1}
	if c := look(0); c.Markets["a/one"] != full || len(c.Markets) != 1 || c.Region != "eu-de" || c.Labels[v1alpha1.LabelRegion] != "eu-de" {
		t.Errorf("the inventory has %+v", c)
	}
	before := cluster.Status.DeepCopy()
	if look(time.Second); w.worthWriting(before, &cluster.Status, w.wrote.Add(time.Second)) || !w.worthWriting(before, &cluster.Status, w.wrote.Add(time.Minute)) {
		t.Error("another time at which the market was read is written at once, or never")
	}
	market = http.StatusInternalServerError
	if c := look(time.Minute); c.Markets["a/one"] != full || !c.Ready || !strings.Contains(cluster.Status.Broker.Sluice.MarketProblem, "500") {
		t.Errorf("the inventory has %+v, the problem is %q", c, cluster.Status.Broker.Sluice.MarketProblem)
	}
	if c := look(4 * time.Minute); c.Markets["a/one"].Known || !c.Ready {
		t.Errorf("a market of four minutes ago counts: %+v", c)
	}
	market = http.StatusNotFound
	look(5 * time.Minute)
	if problem := cluster.Status.Broker.Sluice.MarketProblem; problem != "its market is not at the URL of the broker" {
		t.Errorf("the problem is %q", problem)
	}
	cluster.Spec.Region = "the operator's"
	if c := look(6 * time.Minute); c.Region != "the operator's" {
		t.Errorf("the region is %q", c.Region)
	}
}
