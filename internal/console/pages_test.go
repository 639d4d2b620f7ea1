package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/overview"
)

// mostBytes is the greatest size of a page.
const mostBytes = 100_000

// TestOperatorsPages: each page says what an operator needs to know.
func TestOperatorsPages(t *testing.T) {
	c := newConsole(t)
	c.seed()
	operator := c.as(access.Caller{Role: access.Operator})
	orders := v1alpha1.InstanceName("cf-eu", "orders-db")
	for path, want := range map[string][]string{
		"":                                  {"5 things need attention", "peering us-east-1 eu-north-2", "9 of 11", "eu-north-2", "Unreachable.", "its API server does not answer", "nuage.terms", "undeclared reference", "cf-eu/warehouse", "Unplaceable. no cluster fits", "shop/sessions"},
		"fleet":                             {"eu-de acme 2 of 2", "eu-se nuage 0 of 2", "eu-north-1 Cordoned", "eu-north-2 Not ready"},
		"fleet?region=eu-fr":                {"eu-west-1", "eu-west-2"},
		"fleet?state=bad":                   {"eu-north-2 Not ready"},
		"fleet?text=no-such":                {"No cluster is like that"},
		"clusters/eu-central-1":             {"cpu 64 cores 23 cores 3.5 cores 38 cores", "memory 256 GiB", "orders-db", "billing-db", "0.012 EUR per core and hour", "environment=production"},
		"clusters/eu-north-1":               {"Cordoned", "datacenter.country SE certified did:web:auditor.example in"},
		"instances":                         {"warehouse Waits for room", "sessions In progress delivering to eu-central-2", "orders-db Ready cf-eu postgresql / large eu-central-1"},
		"instances?platform=korifi":         {"telemetry", "staging"},
		"instances/" + orders:               {"11 clusters considered", "−4 Policy", "7 left", "us-east-1 eu-only: claim datacenter.country is US", "and 2 more for the same reason", "needs 4 cpu, 1.5 free of 32", "1 of 11 clusters chosen", "91 of 100", "Runner-up eu-west-2 78 of 100", "reserves 8 cores, 32 GiB memory", "0.084 EUR an hour", "shopfront", "by ada@example.com", "after 38 s"},
		"instances/" + orders + "/clusters": {"Every cluster for orders-db", "eu-central-1 Chosen", "the instance is there", "eu-north-2 Not ready", "eu-north-1 Cordoned", "nothing is reserved or changed"},
		"instances/" + orders + "/clusters?leaving=eu-central-1": {"If orders-db left eu-central-1", "eu-central-1 Left", "needs datacenter.country in EU, certified, has no such claim"},
		"instances/" + orders + "/clusters?verdict=Cordoned":     {"eu-north-1"},
		"policies":                     {"eu-only In force Concerns platform cf-eu or shop.", "claim datacenter.country is EU, by assurance certified", "prefers, weight 20", "Each organization holds at most 200 cores, reservations for 3500 EUR a month.", "By the provider nuage, for its own clusters.", "undeclared reference to 'regions'"},
		"consumers":                    {"city Proven DID did:web:city.example Orders platform cf-eu, organization city; platform shop", "consumer.country DE notary did:web:notary.example in 3 days", "LegalPerson Verified", "lab Not proven references: no LegalPerson of did:web:lab.example"},
		"expiring":                     {"2 h ago Credential of a provider LabelCredential nuage, issued by did:web:compliance.example", "Credential of a consumer LegalPerson city, issued by did:web:city.example", "shopfront cf-eu, instance orders-db", "datacenter.country = SE eu-north-1"},
		"journal":                      {"Removed", "old-db", "deprovision of postgresql/small on eu-west-2 after 12 s", "Delivered"},
		"journal?type=Removed":         {"old-db"},
		"journal?type=Lost":            {"eu-north-2", "has not answered three times in a row"},
		"clusters/eu-north-2":          {"Reachable 23 min ago Unreachable.", "Lost 23 min ago has not answered three times in a row"},
		"clusters/no-such":             {"There is no cluster no-such"},
		"instances/" + orders + "-not": {"There is no instance"},
	} {
		got := c.send(operator, Root+path, nil)
		text := words(got.body)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s (%d) has no %q in\n%s", path, got.StatusCode, part, text)
			}
		}
		if n := len(got.body); n > mostBytes {
			t.Errorf("%s has %d bytes", path, n)
		}
	}
	for path, not := range map[string]string{"fleet?region=eu-fr": "us-east-1", "instances?platform=korifi": "orders-db", "journal?type=Removed": "telemetry"} {
		if text := words(c.send(operator, Root+path, nil).body); strings.Contains(text, not) {
			t.Errorf("%s shows %s", path, not)
		}
	}
}

// TestAnEmptyHub: each page says what to do first.
func TestAnEmptyHub(t *testing.T) {
	c := newConsole(t)
	operator, shop := c.as(access.Caller{Role: access.Operator}), c.as(access.Caller{Role: access.Platform, Name: "shop"})
	for path, want := range map[string]string{
		"": "sluice cluster add", "fleet": "sluice cluster add", "instances": "Nobody has ordered anything", "policies": "sluice policy apply", "consumers": "sluice consumer add NAME", "expiring": "Nothing ends soon", "journal": "Nothing has happened yet",
		"market": "Nothing is for sale to you", "mine": "You have no instances", "usage": "Nothing was used",
	} {
		browser := operator
		if path == "market" || path == "mine" || path == "usage" {
			browser = shop
		}
		if got := c.send(browser, Root+path, nil); got.StatusCode != http.StatusOK || !strings.Contains(words(got.body), want) {
			t.Errorf("%s (%d): %s", path, got.StatusCode, words(got.body))
		}
	}
}

// TestLargePages: with 10,000 clusters, or 1,000 plans, a page is small and made at once.
func TestLargePages(t *testing.T) {
	c := newConsole(t)
	var clusters []v1alpha1.MemberCluster
	for n := range 10_000 {
		one := cluster(fmt.Sprintf("cluster-%d", n), fmt.Sprintf("region-%d", n%150), fmt.Sprintf("provider-%d", n%40), "64", "256Gi")
		clusters = append(clusters, *one)
	}
	var instances []v1alpha1.ServiceInstance
	for n := range 20_000 {
		instances = append(instances, *instanceOf("shop", fmt.Sprint(n), "large", fmt.Sprintf("cluster-%d", n/2)))
	}
	var plans []v1alpha1.ServiceOffering
	for n := range 20 {
		var own []v1alpha1.Plan
		for k := range 50 {
			own = append(own, plan(fmt.Sprintf("plan-%d-%d", n, k), strings.Repeat("A plan with a description of some length. ", 10), "1", "1Gi", "19"))
		}
		plans = append(plans, *offering(fmt.Sprintf("service-%d", n), strings.Repeat("A service. ", 30), own...))
	}
	snapshot, err := catalog.Build(plans, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.catalog.Replace(snapshot)
	began := time.Now()
	f := newFleet(clusters, instances, time.Now())
	t.Logf("10,000 clusters and 20,000 instances are summed up in %s", time.Since(began))
	if sum := f.sum(); sum.Clusters != 10_000 || sum.CPU.Sold != 20_000*4000 || len(f.groups) != 600 {
		t.Errorf("the sum is %+v of %d groups", sum, len(f.groups))
	}
	c.console.fleets.value, c.console.fleets.until = f, time.Now().Add(time.Hour)
	operator, shop := c.as(access.Caller{Role: access.Operator}), c.as(access.Caller{Role: access.Platform, Name: "shop"})
	for path, browser := range map[string]*http.Client{"fleet": operator, "fleet?page=200": operator, "fleet?text=cluster-99": operator, "market": shop, "market?page=9": shop} {
		began := time.Now()
		got := c.send(browser, Root+path, nil)
		took := time.Since(began)
		t.Logf("%s: %d bytes in %s", path, len(got.body), took)
		if got.StatusCode != http.StatusOK || len(got.body) > mostBytes || took > 2*time.Second {
			t.Errorf("%s: %d, %d bytes in %s", path, got.StatusCode, len(got.body), took)
		}
	}
}

// TestTheFunnel: the parts of the picture follow one another, and none that is left disappears.
func TestTheFunnel(t *testing.T) {
	d := decisionOf(&v1alpha1.Decision{
		Considered: 10_000, Placements: []v1alpha1.Placement{{Cluster: "a", Score: 90}},
		Rejections: []v1alpha1.Rejection{{Reason: "NotReady", Count: 1}, {Reason: "Policy", Count: 9_990}},
	})
	want := []string{"0,0 1000.0,0 3.0,40 0,40", "0,0 3.0,0 3.0,40 0,40"}
	for n, s := range d.Steps {
		if s.Shape != want[n] {
			t.Errorf("part %d is %q, want %q", n, s.Shape, want[n])
		}
	}
	if d.Fit != 9 || d.Steps[0].Reason != "Policy" || d.Steps[0].Left != 10 || d.Outcome != "1 of 10 000 clusters chosen" {
		t.Errorf("%+v", d)
	}
	if decisionOf(nil) != nil {
		t.Error("there is a picture of no decision")
	}
	if none := decisionOf(&v1alpha1.Decision{}); none.Outcome != "No cluster chosen" || strings.Contains(none.End, "NaN") {
		t.Errorf("of no clusters: %+v", none)
	}
}

// TestTexts: amounts and times as people read them.
func TestTexts(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return momentOf(metav1.NewTime(now.Add(d)), now).About() }
	for got, want := range map[string]string{
		cores(1000): "1 core", cores(250): "0.25 cores", cores(12_345_678): "12 346 cores", binary(0): "0 B", binary(1 << 30): "1 GiB", binary(3 << 29): "1.5 GiB", binary(900 << 40): "900 TiB",
		grouped(-1234567): "−1 234 567", counted(1, "policy"): "1 policy", counted(2000, "policy"): "2 000 policies",
		at(-3 * time.Minute): "3 min ago", at(-2 * time.Second): "just now", at(49 * time.Hour): "in 2 days", at(-90 * time.Minute): "90 min ago", at(-100 * 24 * time.Hour): "3 months ago",
		spaced("InsufficientCPU"): "Insufficient CPU", spaced("NotReady"): "Not ready", spaced("TooSlow"): "Too slow", spaced(""): "", spaced("é"): "É",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	amounts := []string{"0.00001", "0.00002", "12.5", "0"}
	small := totals(amounts, func(i int) (string, string) { return amounts[i], []string{"EUR", "EUR", "USD", "CHF"}[i] })
	if got := strings.Join(small, ", "); got != "0 CHF, less than 0.0001 EUR, 12.5 USD" {
		t.Errorf("the sums are %s", got)
	}
	if m := momentOf("2026-03-01T12:03:00Z", now); m == nil || m.About() != "in 3 min" || momentOf("", now) != nil {
		t.Errorf("a time as text is %v", m)
	}
	if m := momentOf((*metav1.Time)(nil), now); m != nil {
		t.Errorf("no time is %v", m)
	}
	if got := localPath(url.QueryEscape("x")); got != Root {
		t.Errorf("a path of nowhere is %q", got)
	}
}

// TestManyTroubles: the first page counts all that is not ready, and lists some.
func TestManyTroubles(t *testing.T) {
	c := newConsole(t)
	c.console.looks.value = &home{Overview: &overview.Overview{NotReady: make([]overview.Trouble, mostTroubles)}, NotReadyMore: 460}
	c.console.looks.until = time.Now().Add(time.Hour)
	c.shows(c.as(access.Caller{Role: access.Operator}), "", nil, http.StatusOK, "500 things need attention", "And 460 more: sluice status lists them all")
}

// TestUsage: the sum of a month names the month, and that of the present one may grow.
func TestUsage(t *testing.T) {
	c := newConsole(t)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	price, to := resource.MustParse("0.25"), metav1.NewTime(now)
	i := instanceOf("shop", "db", "large", "eu-1")
	i.Status.Usage = []v1alpha1.UsagePeriod{{Cluster: "eu-1", From: metav1.NewTime(month.Add(-2 * time.Hour)), To: &to, PlanID: "large", PricePerHour: &price, Currency: "EUR"}}
	c.create(i)
	shop, last := c.as(access.Caller{Role: access.Platform, Name: "shop"}), month.AddDate(0, -1, 0).Format("2006-01")
	c.shows(shop, "usage", nil, http.StatusOK, "EUR so far this month, for all instances.")
	c.shows(shop, "usage?month="+last, nil, http.StatusOK, "0.5 EUR in "+last+", for all instances.")
}

// TestMovingInstances: a provider sees what an instance has on its cluster until it is removed there.
func TestMovingInstances(t *testing.T) {
	c := newConsole(t)
	c.create(cluster("old", "eu-de", "acme", "64", "256Gi"))
	c.create(cluster("new", "eu-de", "bitfarm", "64", "256Gi"))
	was := instanceOf("shop", "moves", "large", "old").Status.Delivered.Decision
	moves, left := instanceOf("shop", "moves", "large", "new"), instanceOf("shop", "left", "large", "new")
	moves.Status.Delivered.Decision = was
	left.Status.Left = []v1alpha1.LeftPlacement{{Placement: was.Placements[0], Since: since(time.Minute)}}
	c.create(moves)
	c.create(left)
	c.shows(c.as(access.Caller{Role: access.Provider, Name: "acme"}), "clusters/old", nil, http.StatusOK, v1alpha1.MemberNamespace(moves.Name), v1alpha1.MemberNamespace(left.Name))
}

// TestProvidersPages: a provider sees its own clusters, credentials and policies, and nothing of who buys there.
func TestProvidersPages(t *testing.T) {
	c := newConsole(t)
	c.seed()
	acme := c.as(access.Caller{Role: access.Provider, Name: "acme"})
	c.create(&v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Name: "sd-2"}, Spec: v1alpha1.SelfDescriptionSpec{Credential: "a.b.c", Presenter: v1alpha1.Presenter{Provider: "acme"}},
		Status: v1alpha1.SelfDescriptionStatus{
			State: v1alpha1.CredentialRejected, Type: "LegalPerson", Issuer: "did:web:acme.example", Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, false, "Rejected", "signature: the key is not acme's", time.Minute)},
			Report: []v1alpha1.VerificationStep{{Step: "decode", Result: "passed", Message: "a VC-JWT"}, {Step: "signature", Result: "failed", Message: "the key is not acme's"}},
		},
	})
	for path, want := range map[string][]string{
		"supply":                {"eu-central-1 Ready eu-de 2", "us-east-1", "Earns now 0.336 EUR an hour", "63 cores of 640 cores"},
		"clusters/eu-central-1": {"My clusters", "sluice-", "postgresql / large", "8 cores, 32 GiB memory", "0.084 EUR an hour"},
		"credentials":           {"LegalPerson Rejected", "signature: the key is not acme's", "decode a VC-JWT"},
		"policies":              {"Write a policy", "acme.terms In force", "By the provider acme, for its own clusters.", "Change or check"},
		"clusters/eu-west-1":    {"There is no cluster eu-west-1"},
	} {
		text := words(c.send(acme, Root+path, nil).body)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %q in\n%s", path, part, text)
			}
		}
		for _, not := range []string{"nuage", "orders-db", "cf-eu", "ada@example.com"} {
			if strings.Contains(text, not) {
				t.Errorf("%s shows %s", path, not)
			}
		}
	}
	if got := c.send(acme, Root, nil); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != Root+"supply" {
		t.Errorf("the first page: %d %q", got.StatusCode, got.Header.Get("Location"))
	}
}
