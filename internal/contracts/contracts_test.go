package contracts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)

// instance is one of a platform, with two clusters of two providers.
func instance() *v1alpha1.ServiceInstance {
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-1", UID: "secret-uid"}}
	i.Spec = v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: "db", ServiceID: "service", OrganizationGUID: "org", SpaceGUID: "space"}
	i.Status.Delivered = delivered("2", "secret-berlin", "secret-paris")
	return i
}

func delivered(cpu string, clusters ...string) *v1alpha1.DeliveredState {
	d := &v1alpha1.DeliveredState{State: v1alpha1.InstanceState{PlanID: "small"}}
	d.Decision.Terms = &v1alpha1.Terms{
		At: metav1.NewTime(began.Add(-time.Minute)), By: &v1alpha1.OriginatingIdentity{Value: runtime.RawExtension{Raw: []byte(`{"username":"ann"}`)}},
		ConsumerCredentials: []string{"sha256-secret-consumer"},
		Offering:            "databases", PlanDigest: "sha256-secret-plan", Policies: []v1alpha1.PolicyInForce{{Name: "secret-policy", UID: "u", Digest: "sha256-p"}},
	}
	for _, cluster := range clusters {
		d.Decision.Placements = append(d.Decision.Placements, v1alpha1.Placement{
			Cluster: cluster, Reserved: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")},
			PricePerHour: resource.NewScaledQuantity(250, resource.Milli), Currency: "EUR",
		})
		d.Decision.Terms.Clusters = append(d.Decision.Terms.Clusters, v1alpha1.ClusterEvidence{Cluster: cluster, Provider: cluster + "-owner", Credentials: []string{"sha256-secret-proof"}})
	}
	return d
}

func TestNext(t *testing.T) {
	i, small, large := instance(), delivered("2", "a"), delivered("4", "a")
	context := delivered("2", "a")
	context.State.Context = &runtime.RawExtension{Raw: []byte(`{"x":1}`)}
	one := Next(i, nil, nil, small, began)
	two := Next(i, one, small, large, began.Add(time.Hour))
	for _, row := range []struct {
		name          string
		kept          []v1alpha1.Contract
		before, after *v1alpha1.DeliveredState
		at            time.Duration
		// numbers of all contracts, and whether the last is in force.
		numbers int
		inForce bool
	}{
		{"nothing is delivered", nil, nil, nil, 0, 0, false},
		{"the first delivery", nil, nil, small, 0, 1, true},
		{"the same", one, small, small, time.Hour, 1, true},
		{"another context", one, small, context, time.Hour, 1, true},
		{"other amounts", one, small, large, time.Hour, 2, true},
		{"the end", two, large, nil, 2 * time.Hour, 2, false},
		{"the end again", Next(i, two, large, nil, began.Add(2*time.Hour)), large, nil, 3 * time.Hour, 2, false},
		{"a clock that goes back", two, large, small, -time.Hour, 3, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := Next(i, row.kept, row.before, row.after, began.Add(row.at))
			if len(got) != row.numbers || row.numbers > 0 && v1alpha1.LastContract(got).IsInForce() != row.inForce {
				t.Fatalf("%+v", got)
			}
			for n, c := range got {
				if c.Number != int64(n+1) || n > 0 && (c.Former != Digest(Of(i, got[n-1])) || got[n-1].To.After(c.From.Time)) {
					t.Errorf("contract %d is %+v", n+1, c)
				}
			}
		})
	}
	if one[0].PlanID != "" || !one[0].From.Time.Equal(began.Truncate(time.Second)) || two[0].Placements[0].Reserved.Cpu().Value() != 2 {
		t.Errorf("the stored contracts are %+v, %+v", one, two)
	}
	i.Status.Delivered, i.Status.Contracts = large, two
	whole := Held(i)
	if before := Digest(Of(i, whole[1])); before != Digest(Of(i, Next(i, two, large, nil, began.Add(3*time.Hour))[1])) {
		t.Error("a contract changes when it ends")
	}
	changed := whole[1]
	changed.Placements[0].Reserved = corev1.ResourceList{"cpu": resource.MustParse("5")}
	if Digest(Of(i, changed)) == two[1].Former || Digest(Of(i, changed)) == Digest(Of(i, two[0])) {
		t.Error("the digest does not depend on the amounts")
	}
}

// TestParts: each reader sees what is theirs, by the same digest.
func TestParts(t *testing.T) {
	i := instance()
	i.Status.Contracts = Next(i, nil, nil, i.Status.Delivered, began)
	whole := Of(i, Held(i)[0])
	text := func(d *Document) string {
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	consumer := text(whole.ForConsumer())
	want := `"total":[{"reserved":{"cpu":"4","memory":"2147483648"},"price_per_hour":"0.5","currency":"EUR"}]`
	if strings.Contains(consumer, "secret") || strings.Contains(consumer, "si-1") || !strings.Contains(consumer, want) || !strings.Contains(consumer, `"ordered_by":"ann"`) {
		t.Errorf("the consumer sees %s", consumer)
	}
	provider := text(whole.ForProvider("secret-paris-owner"))
	for _, hidden := range []string{"berlin", "cf", `"db"`, "org", "space", "ann", "secret-policy", "secret-uid", "secret-consumer", "small"} {
		if strings.Contains(provider, hidden) {
			t.Errorf("the provider sees %s in %s", hidden, provider)
		}
	}
	if !strings.Contains(provider, `"cluster":"secret-paris"`) {
		t.Errorf("the provider sees %s", provider)
	}
	if whole.ForProvider("another") != nil || whole.ForProvider("") != nil {
		t.Error("a provider sees what is elsewhere")
	}
	all := []Agreement{{Digest: Digest(whole), Contract: whole}}
	if got := Parts(all, (*Document).ForConsumer); got[0].Digest != Digest(whole) || all[0].Contract != whole {
		t.Errorf("%+v", got)
	}
}

// TestCanonical: members are in order, and nothing is escaped that need not be (RFC 8785, section 3.2).
func TestCanonical(t *testing.T) {
	d := &Document{Number: 1, Instance: Instance{Platform: "<é&>", ID: "x\u2028\u2029\\u2028\"\n"}}
	if got := string(canonical(d)); got != `{"from":"0001-01-01T00:00:00Z","instance":{"id":"x`+"\u2028\u2029"+`\\u2028\"\n","platform":"<é&>"},"number":1}` {
		t.Error(got)
	}
}
