package liqo_test

import (
	"slices"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// workloadsAreReachedWhereTheySay: the consumer's cluster is let in at the ports that say so, and at no
// others.
func workloadsAreReachedWhereTheySay(p *pair) {
	none := intstr.FromInt32(0) // these control planes have no nodes
	plan := &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{{
		Name:  "db",
		Ports: []v1alpha1.WorkloadPort{{Name: "sql", Port: 5432, Reach: v1alpha1.ReachConsumer}, {Name: "metrics", Port: 9090, Reach: v1alpha1.ReachApplication}},
		Container: &v1alpha1.WorkloadContainer{
			WorkloadProcess: v1alpha1.WorkloadProcess{
				Image: "db", Resources: map[string]intstr.IntOrString{"cpu": intstr.FromString("1"), "memory": intstr.FromString("1Gi")},
			},
			Replicas: &none,
		},
	}}}
	driver, d := p.driver(), p.instance("workload", "1")
	d.Placement.Peering = &v1alpha1.PlacementPeering{Consumer: p.consumer.name}
	d.Instance.Status.Decision.Placements[0] = d.Placement
	must(p.T, p.hub.Status().Update(p.Context(), d.Instance))
	secrets, _ := workload.Secrets(nil).Complete(nil)
	var err error
	d.Workload, err = workload.Of(plan, d.Instance, &d.Instance.Spec.Desired, nil, secrets)
	must(p.T, err)
	p.until("it is delivered", d, driver.Deliver)
	must(p.T, driver.Observe(p.Context(), d))

	var configuration networkingv1beta1.Configuration
	if !p.provider.has(p.T, p.provider.tenant(p.consumer), p.consumer.id, &configuration) {
		p.Fatal("there is no configuration of the network")
	}
	remote := configuration.Status.Remote.CIDR
	var policy networkingv1.NetworkPolicy
	namespace := v1alpha1.MemberNamespace(d.Instance.Name)
	if !p.provider.has(p.T, namespace, "db", &policy) {
		p.Fatal("the component has no policy")
	}
	for _, rule := range policy.Spec.Ingress {
		var ranges []string
		for _, from := range rule.From {
			if from.IPBlock != nil {
				ranges = append(ranges, from.IPBlock.CIDR)
			}
		}
		var want []string
		if len(rule.Ports) == 1 && rule.Ports[0].Port.IntValue() == 5432 {
			for _, cidr := range slices.Concat(remote.Pod, remote.External) {
				want = append(want, string(cidr))
			}
			if len(want) == 0 {
				p.Fatal("the consumer's cluster has no addresses")
			}
		}
		if !slices.Equal(ranges, want) {
			p.Errorf("ports %v are open to %v, want %v", rule.Ports, ranges, want)
		}
	}
	if p.provider.has(p.T, namespace, "sluice-peering", &policy) {
		p.Error("the consumer's cluster is let in at every port")
	}
	p.deprovision(d)
	p.until("it is removed", d, driver.Remove)
	p.deprovisioned(d)
	p.wantNothingLeft()
}
