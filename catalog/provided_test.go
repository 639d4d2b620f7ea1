package catalog

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
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
		"resources.peering.role": plan(func(p *v1alpha1.Plan) { p.Resources.Peering = &v1alpha1.PeeringPlan{Role: v1alpha1.RoleHubAndSpoke} }),
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
	o := offering("test", plan(func(p *v1alpha1.Plan) { p.Resources.PriorityClass = "gold" }), func(o *v1alpha1.ServiceOffering) { o.Spec.Provider = "acme" })
	if err := checkAlone(&o.Spec, nil); err == nil {
		t.Error("the catalog does not ask")
	}
}
