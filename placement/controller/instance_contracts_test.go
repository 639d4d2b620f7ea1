package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// contracts returns those of an instance, as they are read.
func (w *world) contracts(name string) []contracts.Agreement {
	w.Helper()
	all, err := contracts.Read(w.Context(), w.hub, w.namespace, name)
	w.must(err)
	return all
}

// proven adds a cluster whose claims two credentials prove.
func (w *world) proven(name, provider string) {
	w.Helper()
	mc := placementtest.Cluster{Name: name, Has: placementtest.Quantities("cpu=16,memory=100Gi,pods=100")}.MemberCluster()
	mc.Namespace, mc.Spec.Provider, mc.Spec.Trust = w.namespace, provider, &v1alpha1.TrustRequirements{}
	mc.Status.Conditions = append(mc.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAdmitted, Status: metav1.ConditionTrue})
	for _, digest := range []string{"sha256-b", "sha256-a", "sha256-b"} {
		mc.Status.Claims = append(mc.Status.Claims, v1alpha1.Claim{Name: "location", Value: digest, Assurance: "self", Issuer: "did:web:" + provider, Credential: digest})
	}
	w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
}

// TestAContractIsOfTheDecision: it has the plan, the amounts, the policies and the proofs of the decision; other policies
// afterwards change nothing; an update has one of its own that names the former; a kill loses none, nor does the removal.
func TestAContractIsOfTheDecision(t *testing.T) {
	w := newWorld(t)
	w.must(w.reconciler.recovery.ensure(t.Context()))
	w.proven("berlin", "acme")
	strict := v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "strict", UID: "uid-1", Generation: 3}, Spec: v1alpha1.PlacementPolicySpec{
		Match: v1alpha1.PolicyMatch{Platforms: []string{"platform"}}, Require: []v1alpha1.PolicyRule{{Name: "any", Expression: "true"}},
	}}
	others := v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: v1alpha1.PlacementPolicySpec{Match: v1alpha1.PolicyMatch{Platforms: []string{"another"}}}}
	w.inventory.SetPolicies(placement.CompilePolicies([]v1alpha1.PlacementPolicy{strict, others}))
	w.inventory.SetProofs(placement.ProofsOf([]v1alpha1.Consumer{{
		Spec:   v1alpha1.ConsumerSpec{Orders: []v1alpha1.ConsumerReference{{Platform: "platform"}}},
		Status: v1alpha1.ConsumerStatus{Claims: []v1alpha1.Claim{{Name: v1alpha1.ClaimConsumerCountry, Value: "DE", Assurance: "self", Credential: "sha256-c"}}},
	}}, w.clock.Now()))
	w.provision("si-1", "plan-2", "")
	ordered := w.instance("si-1")
	ordered.Spec.OriginatingIdentity = &v1alpha1.OriginatingIdentity{Platform: "cf", Value: runtime.RawExtension{Raw: []byte(`{"user_id":"ann"}`)}}
	w.must(w.hub.Update(t.Context(), ordered))
	delivered := w.passes("si-1").Status.Delivered
	if delivered == nil {
		t.Fatal("it is not delivered")
	}

	w.inventory.SetPolicies(nil)
	w.inventory.SetProofs(nil)
	first := w.contracts("si-1")
	if len(first) != 1 || first[0].EndedAt != nil {
		t.Fatalf("the contracts are %+v", first)
	}
	c := first[0].Contract
	want := contracts.Policy{Name: "strict", UID: "uid-1", Generation: 3, Digest: v1alpha1.DigestOf(strict.Spec)}
	if len(c.Policies) != 1 || c.Policies[0] != want {
		t.Errorf("the policies are %+v, want %+v", c.Policies, want)
	}
	if c.Instance.OrderedBy != "ann" || c.Instance.ID != "si-1" || c.Plan.ID != "plan-2" || c.Plan.Service != "compute" || c.Plan.Digest == "" || c.Number != 1 || c.Former != "" || !slices.Equal(c.Instance.Credentials, []string{"sha256-c"}) {
		t.Errorf("the contract is %+v of %+v for %+v", c, c.Plan, c.Instance)
	}
	on := c.Clusters[0]
	if len(c.Clusters) != 1 || on.Cluster != "berlin" || on.Provider != "acme" || on.Reserved["cpu"] != "2" || !slices.Equal(on.Credentials, []string{"sha256-a", "sha256-b"}) {
		t.Errorf("on the cluster is %+v", c.Clusters)
	}

	// An update, whose first write is lost; the process begins anew.
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.update("si-1", func(state *v1alpha1.InstanceState) { state.PlanID = "plan-4" })
	w.onWrite = func(func() error) error { return errors.New("fake: killed") }
	if _, err := w.pass("si-1"); err == nil {
		t.Fatal("the write was not lost")
	}
	w.onWrite = nil
	w.start()
	w.must(w.reconciler.recovery.ensure(t.Context()))
	w.proven("berlin", "acme")
	w.passes("si-1")
	both := w.contracts("si-1")
	if len(both) != 2 || both[0].Digest != first[0].Digest || both[0].EndedAt == nil || both[1].Contract.Former != first[0].Digest ||
		both[1].Contract.Clusters[0].Reserved["cpu"] != "4" || both[1].Contract.Policies != nil || both[1].EndedAt != nil {
		t.Fatalf("after the update the contracts are %+v", both)
	}

	for range 5 {
		for _, plan := range []string{"plan-2", "plan-4"} {
			w.clock.SetTime(w.clock.Now().Add(time.Hour))
			w.update("si-1", func(state *v1alpha1.InstanceState) { state.PlanID = plan })
			w.passes("si-1")
		}
	}
	if n := len(w.instance("si-1").Status.Contracts); n > v1alpha1.MostContracts+1 {
		t.Errorf("the status has %d contracts", n)
	}
	w.deprovision("si-1")
	if _, err := w.pass("si-1"); err != nil || !w.gone("si-1") {
		t.Fatalf("it is not gone: %v", err)
	}
	all := w.contracts("si-1")
	if len(all) != 12 || all[0].Digest != first[0].Digest || all[11].EndedAt == nil {
		t.Fatalf("after the removal there are %d contracts: %+v", len(all), all)
	}
	for n := range all[1:] {
		if all[n+1].Contract.Former != all[n].Digest {
			t.Errorf("contract %d does not name the former", n+2)
		}
	}
	var journals v1alpha1.JournalList
	w.must(w.hub.List(t.Context(), &journals, client.InNamespace(w.namespace), client.MatchingFields{"spec.name": "si-1"}))
	if len(journals.Items) != 1 {
		t.Errorf("%d journals keep them", len(journals.Items))
	}
}
