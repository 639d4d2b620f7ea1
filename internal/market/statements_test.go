package market

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
)

// delivers makes an instance of a platform that is delivered to clusters of acme and rival since the begin of a month.
func (w *world) delivers(platform, id string) *v1alpha1.ServiceInstance {
	w.Helper()
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.InstanceName(platform, id)}}
	i.Spec = v1alpha1.ServiceInstanceSpec{Platform: platform, InstanceID: id, ServiceID: "service", Desired: v1alpha1.InstanceState{PlanID: "small"}}
	must(w.T, w.Create(w.Context(), i))
	terms := &v1alpha1.Terms{At: metav1.NewTime(from), Offering: "databases", Policies: []v1alpha1.PolicyInForce{{Name: "strict", Digest: "sha256-p"}}}
	delivered := &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: v1alpha1.Decision{Terms: terms}}
	for _, provider := range []string{"acme", "rival"} {
		cluster := provider + "-1"
		delivered.Decision.Placements = append(delivered.Decision.Placements, v1alpha1.Placement{
			Cluster: cluster, Reserved: corev1.ResourceList{"cpu": resource.MustParse("2")}, PricePerHour: resource.NewScaledQuantity(250, resource.Milli), Currency: "EUR",
		})
		terms.Clusters = append(terms.Clusters, v1alpha1.ClusterEvidence{Cluster: cluster, Provider: provider, Credentials: []string{"sha256-c"}})
		i.Status.Usage = append(i.Status.Usage, v1alpha1.UsagePeriod{Cluster: cluster, Provider: provider, From: metav1.NewTime(from)})
	}
	i.Status.Contracts = contracts.Next(i, nil, nil, delivered, from)
	i.Status.Delivered = delivered
	must(w.T, w.Status().Update(w.Context(), i))
	return i
}

// signed makes statements that are the claims as JSON.
func signed(context.Context) (Sign, error) {
	return func(claims map[string]any) (string, error) {
		raw, err := json.Marshal(claims)
		return string(raw), err
	}, nil
}

// TestContractsByReader: each caller reads, and has signed, its part of the same contract, and no contract of others.
func TestContractsByReader(t *testing.T) {
	w := newWorld(t)
	w.options.SignContract = signed
	w.start()
	must(t, w.Create(t.Context(), &v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "idle"},
		Spec: v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: "did:web:idle.example"}}}))
	i, other := w.delivers("cf", "db"), w.delivers("korifi", "db2")
	digests := map[string]bool{}
	for _, row := range []struct {
		caller, id string
		has, lacks []string
	}{
		{"operator", i.Name, []string{"acme-1", "rival-1", "strict", "sha256-c", `"platform":"cf"`, string(i.UID)}, []string{"korifi"}},
		{"platform:cf", "db", []string{`"total":[{"currency":"EUR","price_per_hour":"0.5","reserved":{"cpu":"4"}}]`, `"id":"db"`, "databases"}, []string{"acme", "rival", "strict", "sha256-c", "korifi", string(i.UID), i.Name}},
		{"provider:acme", i.Name, []string{"acme-1", i.Name, `"price_per_hour":"0.25"`}, []string{"rival", "cf", `"db"`, "strict", "small", "databases", string(i.UID)}},
	} {
		var got struct {
			Contracts []struct {
				Digest    string
				Contract  json.RawMessage
				Statement string
			}
		}
		if answer := w.send(request{method: "GET", path: "/market/v1/contracts/" + row.id, with: w.as(row.caller)}, &got); answer.StatusCode != http.StatusOK || len(got.Contracts) != 1 {
			t.Fatalf("%s is answered %d, %+v", row.caller, answer.StatusCode, got)
		}
		digests[got.Contracts[0].Digest] = true
		var claims map[string]any
		must(t, json.Unmarshal([]byte(got.Contracts[0].Statement), &claims))
		var shown any
		must(t, json.Unmarshal(got.Contracts[0].Contract, &shown))
		plain, err := json.Marshal(shown)
		must(t, err)
		if same, err := json.Marshal(claims["contract"]); err != nil || string(same) != string(plain) || claims["sub"] != got.Contracts[0].Digest {
			t.Errorf("%s: signed is %s, shown %s", row.caller, same, plain)
		}
		for _, text := range row.has {
			if !strings.Contains(string(plain), text) {
				t.Errorf("%s does not see %s in %s", row.caller, text, plain)
			}
		}
		for _, text := range row.lacks {
			if strings.Contains(string(plain), text) {
				t.Errorf("%s sees %s in %s", row.caller, text, plain)
			}
		}
	}
	if len(digests) != 1 {
		t.Errorf("they see different contracts: %v", digests)
	}
	for _, q := range []struct{ caller, id string }{
		{"platform:cf", "db2"}, {"platform:cf", other.Name}, {"platform:cf", i.Name}, {"provider:idle", i.Name}, {"operator", "db"},
	} {
		w.refused(request{method: "GET", path: "/market/v1/contracts/" + q.id, with: w.as(q.caller)}, http.StatusNotFound, "no contract")
	}
	for _, name := range []string{"a%2Fb", "..", "%25"} { // none of them can be the name of a resource
		w.refused(request{method: "GET", path: "/market/v1/contracts/" + name, with: w.as("operator")}, http.StatusNotFound, "no contract")
		w.refused(request{method: "GET", path: "/market/v1/contracts/" + name, with: w.as("platform:cf")}, http.StatusNotFound, "no contract")
		w.refused(request{method: "GET", path: "/market/v1/clusters/" + name + "/moves?if=lost", with: w.as("operator")}, http.StatusNotFound, "no cluster")
		for _, method := range []string{"PATCH", "DELETE"} {
			w.refused(request{method: method, path: "/market/v1/clusters/" + name, with: w.as("provider:acme"), body: "{}"}, http.StatusNotFound, "no cluster")
		}
	}
	w.send(request{method: "GET", path: "/market/v1/contracts/db2", with: w.as("platform:korifi")}, nil)
	w.refused(request{method: "GET", path: "/market/v1/contracts/%FF", with: w.as("platform:cf")}, http.StatusBadRequest, "UTF-8")
}

// TestUsageOfProviders: a provider reads what its clusters had and cost, signed if the broker can, and nothing of others.
func TestUsageOfProviders(t *testing.T) {
	w := newWorld(t)
	w.delivers("cf", "db")
	w.delivers("korifi", "db")
	read := func(caller, query string) (got struct {
		Usage []struct {
			Provider, Cluster, Cost, Platform string
			Seconds                           int64
		}
		Statement string
	}) {
		t.Helper()
		if answer := w.send(request{method: "GET", path: "/market/v1/usage" + query, with: w.as(caller)}, &got); answer.StatusCode != http.StatusOK {
			t.Fatalf("%s is answered %d", caller, answer.StatusCode)
		}
		return got
	}
	w.clock.SetTime(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	got := read("provider:acme", "?month=2026-03")
	if len(got.Usage) != 1 || got.Usage[0].Provider != "acme" || got.Usage[0].Cluster != "acme-1" || got.Usage[0].Cost != "372" || got.Usage[0].Seconds != 2*31*24*3600 || got.Statement != "" {
		t.Errorf("acme reads %+v", got)
	}
	w.options.SignUsage = signed
	w.start()
	got = read("provider:rival", "?month=2026-03&per=day")
	if len(got.Usage) != 31 || strings.Contains(got.Statement, "acme") || strings.Contains(got.Statement, "cf") || !strings.Contains(got.Statement, `"cluster":"rival-1"`) ||
		!strings.Contains(got.Statement, `"provider":"rival","to"`) {
		t.Errorf("rival reads %+v", got)
	}
	if got = read("operator", "?month=2026-03"); len(got.Usage) != 2 || !strings.Contains(got.Statement, `"from":"2026-03-01T00:00:00Z","to"`) {
		t.Errorf("the operator reads %+v", got)
	}
	if got = read("provider:acme", "?month=2026-02"); len(got.Usage) != 0 {
		t.Errorf("of a month before, acme reads %+v", got)
	}
	for query, why := range map[string]string{
		"month=March": "month", "per=week": "per", "month=2099-01": "has not begun", "month=2026-03&month=2026-02": "month: is given 2 times",
		"month=2026-03&provider=acme": `"provider": there is no such parameter`, "mnth=2026-03": "want some of month, per", "by=plan": "no such parameter", "month=%zz": "malformed",
	} {
		w.refused(request{method: "GET", path: "/market/v1/usage?" + query, with: w.as("operator")}, http.StatusBadRequest, why)
	}
}
