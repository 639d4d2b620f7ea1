package broker

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// used creates an instance of a platform that was delivered on the tenth of March for so many hours.
func (f *fixture) used(platform, id, plan string, hours int) {
	f.t.Helper()
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.InstanceName(platform, id)}}
	i.Spec.Platform, i.Spec.InstanceID, i.Spec.ServiceID, i.Spec.OrganizationGUID, i.Spec.Desired.PlanID = platform, id, service, "org-1", plan
	if err := f.hub.Create(f.t.Context(), i); err != nil {
		f.t.Fatal(err)
	}
	from := time.Date(2026, 3, 10, 23, 0, 0, 0, time.UTC)
	usage := []v1alpha1.UsagePeriod{{
		Cluster: "secret-cluster", Provider: "secret-provider", From: metav1.NewTime(from), To: &metav1.Time{Time: from.Add(time.Duration(hours) * time.Hour)}, PlanID: plan,
		Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}, PricePerHour: resource.NewScaledQuantity(250, resource.Milli), Currency: "EUR",
	}}
	for { // the fake controller writes the status, too
		i.Status.Usage = usage
		if err := f.hub.Status().Update(f.t.Context(), i); err == nil {
			return
		}
		if err := f.hub.Get(f.t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestUsageForPlatforms: a platform reads what its own instances had and cost, and neither what others had nor where.
func TestUsageForPlatforms(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.used("cf-eu", "a", planSmall, 2)
	f.used("cf-eu", "b", planSmall, 3)
	f.used("k8s", "c", planSmall, 1)
	for _, row := range []struct {
		query, want string
		as          []sending
	}{
		{query: "?month=2026-03", want: `"seconds":18000,"reservedSeconds":{"cpu":"9000"},"cost":"1.25","currency":"EUR"}]`},
		{query: "?month=2026-03&by=organization", want: `"organization":"org-1","seconds":18000`},
		{query: "?month=2026-03&by=instance,plan&per=day", want: `"from":"2026-03-11T00:00:00Z","to":"2026-03-12T00:00:00Z","platform":"cf-eu","serviceID":"service-resources","planID":"plan-small","service":"resources","plan":"small","instance":"b","seconds":7200,`},
		{query: "?month=2026-03", want: `"seconds":3600`, as: []sending{asK8s}},
		{query: "?month=2026-02", want: `"usage":[]`},
		{query: "", want: `"usage":[]`},
	} {
		got := f.in(t).want(http.StatusOK, "GET", "/usage"+row.query, nil, row.as...)
		if text := string(got.raw); !strings.Contains(text, row.want) || strings.Contains(text, "secret") {
			t.Errorf("%s: %s, want %s", row.query, text, row.want)
		}
	}
	for _, query := range []string{"?month=March", "?month=2999-01", "?month=2026-03&month=2026-02", "?mnth=2026-03", "?provider=acme", "?by=cluster", "?by=plan,", "?per=week"} {
		f.in(t).refused(http.StatusBadRequest, codeBadRequest, "GET", "/usage"+query, nil)
	}
	f.in(t).refused(http.StatusMethodNotAllowed, codeMethodNotAllowed, "POST", "/usage", nil)
}

// What is not in the catalog any more goes by its ids.
func TestNamesInReports(t *testing.T) {
	f := &fixture{t: t, catalog: &catalog.Catalog{}}
	f.sell(offerings()...)
	s := &server{Options: Options{Catalog: f.catalog}}
	for ids, want := range map[[2]string][2]string{
		{service, planSmall}: {"resources", "small"}, {service, "gone"}: {service, "gone"}, {"gone", "gone"}: {"gone", "gone"},
	} {
		if offering, plan := s.names(ids[0], ids[1]); [2]string{offering, plan} != want {
			t.Errorf("%q go by %q and %q, want %q", ids, offering, plan, want)
		}
	}
}
