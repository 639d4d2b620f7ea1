package catalog

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
)

// TestAProvidersPlansAreConfined: to its own clusters, whatever they select.
func TestAProvidersPlansAreConfined(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{
		"nothing":          nil,
		"everything":       {},
		"another provider": {MatchLabels: map[string]string{v1alpha1.LabelProvider: "rival"}},
		"all but its own":  {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.LabelProvider, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"acme"}}}},
	} {
		o := offering("test", func(o *v1alpha1.ServiceOffering) {
			o.Spec.Provider, o.Spec.Plans[0].Resources.Selector = "acme", selector
		}, served)
		snapshot, err := Build([]v1alpha1.ServiceOffering{o}, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		sold, err := metav1.LabelSelectorAsSelector(snapshot.All()[0].Plans[0].Resources.Selector)
		if err != nil {
			t.Fatal(err)
		}
		if sold.Matches(labels.Set{v1alpha1.LabelProvider: "rival"}) || sold.Matches(labels.Set{}) {
			t.Errorf("a plan that selects %s is sold elsewhere: %s", name, sold)
		}
		if own := sold.Matches(labels.Set{v1alpha1.LabelProvider: "acme"}); own != (name == "nothing" || name == "everything") {
			t.Errorf("a plan that selects %s is sold at home: %t", name, own)
		}
		if accepted := o.Status.Accepted.Plans[0].Resources.Selector; accepted.String() != selector.String() {
			t.Errorf("the spec has been changed: %s", accepted)
		}
	}
}

// TestWhatProvidersDoNotSell: what is the operator's.
func TestWhatProvidersDoNotSell(t *testing.T) {
	plan := func(change func(*v1alpha1.Plan)) edit {
		return func(o *v1alpha1.ServiceOffering) { change(&o.Spec.Plans[0]) }
	}
	for want, change := range map[string]edit{
		"": func(*v1alpha1.ServiceOffering) {},
		"dashboardClient": func(o *v1alpha1.ServiceOffering) {
			o.Spec.DashboardClient = &v1alpha1.DashboardClient{ID: "a", Secret: "b"}
		},
		"requires": func(o *v1alpha1.ServiceOffering) { o.Spec.Requires = []string{"syslog_drain"} },
		"kind: providers sell resources and workloads": plan(func(p *v1alpha1.Plan) {
			p.Kind, p.Resources, p.Upstream = v1alpha1.PlanKindUpstream, nil, &v1alpha1.UpstreamPlan{}
		}),
		"resources.priorityClass": plan(func(p *v1alpha1.Plan) { p.Resources.PriorityClass = "gold" }),
		"resources.tolerations": plan(func(p *v1alpha1.Plan) {
			p.Resources.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}),
		"plans[0].workload.components[1].chart: charts are executed by the broker, so only its operator sells them; use a container or manifests in this plan, with the same id; until then the offering takes no orders": plan(func(p *v1alpha1.Plan) {
			p.Kind, p.Workload = v1alpha1.PlanKindWorkload, &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{
				{Name: "db", Container: &v1alpha1.WorkloadContainer{}}, {Name: "web", Chart: &v1alpha1.WorkloadChart{From: "web.tgz"}},
			}}
		}),
		"plans[0].workload.components[0].container.backup: hooks for backups get the credentials of the operator's place for backups, which has those of all consumers": plan(func(p *v1alpha1.Plan) {
			p.Kind, p.Workload = v1alpha1.PlanKindWorkload, &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{
				{Name: "db", Container: &v1alpha1.WorkloadContainer{Backup: &v1alpha1.WorkloadHook{}, Restore: &v1alpha1.WorkloadHook{}}},
			}}
		}),
		"resources.peering.role":       plan(func(p *v1alpha1.Plan) { p.Resources.Peering = &v1alpha1.PeeringPlan{Role: v1alpha1.RoleHubAndSpoke} }),
		"resources.peering.role: hubs": plan(func(p *v1alpha1.Plan) { p.Resources.Peering = &v1alpha1.PeeringPlan{Role: v1alpha1.RoleOpaque} }),
	} {
		for _, provider := range []string{"", "acme"} {
			o := offering("test", change)
			o.Spec.Provider = provider
			err := checkProvided(&o.Spec)
			if refused := err != nil; refused != (want != "" && provider != "") {
				t.Errorf("%q of %q: %v", want, provider, err)
			} else if refused {
				contains(t, err.Error(), want)
			}
		}
	}
}

// noCharts fails the test when a chart is asked for.
type noCharts struct{ *testing.T }

func (t noCharts) Chart(of *v1alpha1.WorkloadChart) (*charts.Chart, error) {
	t.Errorf("the chart %s is fetched", of.From)
	return nil, errors.New("there are no charts")
}

// TestChartsOfProvidersAreNotFetched: the catalog refuses their offerings before it looks for their charts, with the
// operator's credentials for registries.
func TestChartsOfProvidersAreNotFetched(t *testing.T) {
	o := offering("test", sells(t, site("sha256:"+strings.Repeat("0", 64))), func(o *v1alpha1.ServiceOffering) { o.Spec.Provider = "acme" })
	verdicts, err := judge([]v1alpha1.ServiceOffering{o}, noCharts{t}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := verdicts[0]; v.accepted || v.reason != ReasonInvalid {
		t.Errorf("accepted: %t, %s", v.accepted, v.reason)
	} else {
		contains(t, v.message, "plans[0].workload.components[0].chart: charts are executed by the broker")
	}
}

// TestChartsOfProvidersThatAreServedAreWithdrawn: an offering that was accepted when providers could sell charts takes no
// new orders, and its instances live on.
func TestChartsOfProvidersThatAreServedAreWithdrawn(t *testing.T) {
	for provider, sold := range map[string]int{"": 1, "acme": 0} {
		o := offering("test", sells(t, site("sha256:"+strings.Repeat("0", 64))), func(o *v1alpha1.ServiceOffering) { o.Spec.Provider = provider }, served)
		snapshot, err := Build([]v1alpha1.ServiceOffering{o}, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := snapshot.Plan("test-id", "test-small")
		if err != nil || plan.Offering.Retired != (sold == 0) || len(snapshot.All()) != sold {
			t.Errorf("of %q: %d are sold, %v", provider, len(snapshot.All()), err)
		}
	}
}
