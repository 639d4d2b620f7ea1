package controller

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// Indexes by which a cluster finds its credentials, and a credential its clusters: a
// provider may have many thousands of each. Their keys are made by of.
const (
	fieldConcerns = "sluice.dev/concerns" // of credentials
	fieldTrust    = "sluice.dev/trust"    // of member clusters
)

// everyone is the key of all clusters that must prove what they are.
const everyone = ""

// of is the key of what is a provider's; with more, of what concerns that alone.
func of(provider string, more ...string) string {
	return strings.Join(append([]string{"provider", provider}, more...), " ")
}

// concerns are the keys of a credential. A document with a JSON-LD proof is not read
// for its index; there are few of them.
func concerns(o client.Object) (keys []string) {
	sd := o.(*v1alpha1.SelfDescription)
	provider := sd.Spec.Provider
	if sd.Spec.Legacy {
		return []string{of(provider)}
	}
	c, err := selfdescription.Parse(sd.Spec.Credential)
	if err != nil {
		return nil
	}
	for _, what := range c.Concerns() {
		keys = append(keys, of(provider, what))
	}
	if keys == nil {
		keys = []string{of(provider)}
	}
	return keys
}

// trusts are the keys of a member cluster.
func trusts(o client.Object) []string {
	cluster := o.(*v1alpha1.MemberCluster)
	if cluster.Spec.Trust == nil {
		return nil
	}
	return []string{everyone, of(cluster.Spec.Provider), of(cluster.Spec.Provider, cluster.Spec.Trust.Offering)}
}

// touches are the keys of the clusters that a credential matters for. What names a
// credential by its digest may matter for every cluster of the provider.
func touches(sd *v1alpha1.SelfDescription) []string {
	switch sd.Status.Type {
	case selfdescription.TypeLabelCredential, selfdescription.TypeCertification:
		return []string{of(sd.Spec.Provider)}
	}
	return concerns(sd)
}

// judgedAnew passes credentials of which something changed that admission reads, and
// not those that were only found to hold once more.
var judgedAnew = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*v1alpha1.SelfDescription), e.ObjectNew.(*v1alpha1.SelfDescription)
	return before.Generation != now.Generation || before.Labels[v1alpha1.LabelCluster] != now.Labels[v1alpha1.LabelCluster] ||
		before.Status.State != now.Status.State || !before.Status.ValidUntil.Equal(now.Status.ValidUntil) ||
		(before.Status.VerifiedAt == nil) != (now.Status.VerifiedAt == nil)
}}
