package controller

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// Indexes for finding the credentials of a cluster, and the clusters of a credential: the hub
// may have many thousands of each. The function of makes their keys.
const (
	fieldConcerns = "sluice.dev/concerns" // of credentials
	fieldTrust    = "sluice.dev/trust"    // of member clusters
)

// everyone is the index key of all clusters that have to prove an offering.
const everyone = ""

// of returns the key of everything that belongs to a provider or a consumer; with more, the key of one
// offering, subject or credential of it.
func of(who v1alpha1.Presenter, more ...string) string {
	return strings.Join(append([]string{who.String()}, more...), " ")
}

// ofProvider is of for a provider.
func ofProvider(name string, more ...string) string {
	return of(v1alpha1.Presenter{Provider: name}, more...)
}

// concerns returns the index keys of a credential. A document with a JSON-LD proof is not
// parsed for this; such documents are few.
func concerns(o client.Object) (keys []string) {
	sd := o.(*v1alpha1.SelfDescription)
	who := sd.Spec.Presenter
	if sd.Spec.Legacy {
		return []string{of(who)}
	}
	c, err := selfdescription.Parse(sd.Spec.Credential)
	if err != nil {
		return nil
	}
	for _, what := range c.Concerns() {
		keys = append(keys, of(who, what))
	}
	if keys == nil {
		keys = []string{of(who)}
	}
	return keys
}

// trusts returns the index keys of a member cluster.
func trusts(o client.Object) []string {
	cluster := o.(*v1alpha1.MemberCluster)
	if cluster.Spec.Trust == nil {
		return nil
	}
	return []string{everyone, ofProvider(cluster.Spec.Provider), ofProvider(cluster.Spec.Provider, cluster.Spec.Trust.Offering)}
}

// touches returns the index keys of the clusters that a credential is relevant for. A
// credential that names another by its digest may be relevant for every cluster of the
// provider.
func touches(sd *v1alpha1.SelfDescription) []string {
	switch sd.Status.Type {
	case selfdescription.TypeLabelCredential, selfdescription.TypeCertification:
		return []string{of(sd.Spec.Presenter)}
	}
	return concerns(sd)
}

// judgedAnew passes updates of credentials only if they changed something that admission reads.
// A verification with the same result does not pass.
var judgedAnew = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*v1alpha1.SelfDescription), e.ObjectNew.(*v1alpha1.SelfDescription)
	return before.Generation != now.Generation || before.Labels[v1alpha1.LabelCluster] != now.Labels[v1alpha1.LabelCluster] ||
		before.Status.State != now.Status.State || !before.Status.ValidUntil.Equal(now.Status.ValidUntil) ||
		(before.Status.VerifiedAt == nil) != (now.Status.VerifiedAt == nil)
}}
