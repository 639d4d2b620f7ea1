package liqo_test

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A cluster that has joined by an invitation gets objects for the inviting cluster only, and other clusters get none for it.
func joinedClustersArePeeredWithNoOther(p *pair) {
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true))
	for _, joined := range []*end{p.provider, p.consumer} {
		cluster := &v1alpha1.MemberCluster{}
		must(p.T, p.hub.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: joined.name}, cluster))
		own := cluster.Spec.Liqo
		cluster.Spec.Liqo = &v1alpha1.LiqoCluster{Joined: &v1alpha1.JoinedPeering{
			With: "another", PublicKey: []byte("key"), Network: v1alpha1.LiqoNetwork{ClusterID: joined.id, PodCIDRs: []string{"10.128.0.0/16"}, ExternalCIDR: "10.70.0.0/16"},
		}}
		must(p.T, p.hub.Update(p.Context(), cluster))
		p.pass(p.Context(), peering)
		if c := ready(peering); c.Reason != "Refused" || !strings.Contains(c.Message, joined.name+" has joined by the invitation of another") {
			p.Errorf("%s has joined: %s %q, want it refused", joined.name, c.Reason, c.Message)
		}
		for _, side := range [][2]*end{{p.consumer, p.provider}, {p.provider, p.consumer}} {
			if side[0].has(p.T, "", side[0].tenant(side[1]), &corev1.Namespace{}) {
				p.Errorf("%s has joined, and %s has a namespace for %s", joined.name, side[0].name, side[1].name)
			}
		}
		cluster.Spec.Liqo = own
		must(p.T, p.hub.Update(p.Context(), cluster))
	}
	p.untilReady(peering)
	must(p.T, p.hub.Delete(p.Context(), peering))
	p.untilGone(peering)
}
