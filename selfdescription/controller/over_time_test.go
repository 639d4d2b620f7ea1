package controller

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// store verifies the credentials at the start, and keeps them.
func (b *desk) store(list []*v1alpha1.SelfDescription) {
	b.Helper()
	for _, sd := range list {
		b.look(sd, 0, nil)
		if err := b.hub.Create(b.Context(), sd); err != nil {
			b.Fatal(err)
		}
	}
}

// lookAtAll verifies all of them at a time after the start.
func (b *desk) lookAtAll(after time.Duration) {
	b.Helper()
	var list v1alpha1.SelfDescriptionList
	if err := b.hub.List(b.Context(), &list); err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		b.look(&list.Items[i], after, nil)
		if err := b.hub.Update(b.Context(), &list.Items[i]); err != nil {
			b.Fatal(err)
		}
	}
}

// admit runs the admission of a cluster now, and returns its condition and claims.
func (b *desk) admit(cluster *v1alpha1.MemberCluster) (*metav1.Condition, []v1alpha1.Claim, time.Duration) {
	b.Helper()
	again, err := (&admission{Options: b.Options, hub: b.hub}).admit(b.Context(), cluster)
	if err != nil {
		b.Fatal(err)
	}
	return admitted(&cluster.Status), cluster.Status.Claims, again
}

func clusterOf(name, offering string, grace time.Duration) *v1alpha1.MemberCluster {
	return &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.MemberClusterSpec{Provider: "eins",
			Trust: &v1alpha1.TrustRequirements{Offering: offering, GraceSeconds: int64(grace / time.Second)}},
		Status: v1alpha1.MemberClusterStatus{UID: name, KeyHash: keyHash},
	}
}

func TestGraceLetsClaimsCountOn(t *testing.T) {
	b := newDesk(t)
	draft := b.draft("fra")
	b.store(b.credentials(draft))
	strict, lenient := clusterOf("fra", draft.Offering("fra"), 0), clusterOf("fra", draft.Offering("fra"), day)
	for _, row := range []struct {
		after           time.Duration
		strict, lenient string
	}{
		{0, v1alpha1.ReasonReady, v1alpha1.ReasonReady},
		{30*day - time.Second, v1alpha1.ReasonReady, v1alpha1.ReasonReady},
		{30*day + time.Hour, "NotProven", v1alpha1.ReasonReady},
		{31*day + time.Second, "NotProven", "NotProven"},
	} {
		b.lookAtAll(row.after)
		for cluster, want := range map[*v1alpha1.MemberCluster]string{strict: row.strict, lenient: row.lenient} {
			condition, claims, again := b.admit(cluster)
			if condition.Reason != want {
				t.Errorf("after %s, grace %ds: want %s, got %s: %s", row.after, cluster.Spec.Trust.GraceSeconds, want, condition.Reason, condition.Message)
			}
			ends := start.Add(30*day + time.Duration(cluster.Spec.Trust.GraceSeconds)*time.Second)
			for _, claim := range claims {
				if !claim.ExpiresAt.Time.Equal(ends) {
					t.Errorf("claim %s ends at %s, want %s", claim.Name, claim.ExpiresAt, ends)
				}
			}
			if left := max(ends.Sub(b.clock.Now()), time.Second); len(claims) > 0 && again != left {
				t.Errorf("after %s it is looked at again after %s, want %s", row.after, again, left)
			}
		}
	}
}

func TestWhatWasWithdrawnGetsNoGrace(t *testing.T) {
	b := newDesk(t)
	draft := b.draft("fra")
	list := b.credentials(draft)
	b.store(list)
	cluster := clusterOf("fra", draft.Offering("fra"), day)
	binding := list[slices.IndexFunc(list, func(sd *v1alpha1.SelfDescription) bool { return sd.Status.Type == selfdescription.TypeClusterBinding })]
	binding.Spec.Revoked = true
	if err := b.hub.Update(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{time.Hour, 30*day + time.Hour} {
		b.lookAtAll(after)
		if condition, claims, _ := b.admit(cluster); condition.Reason != "NotProven" || len(claims) > 0 {
			t.Errorf("after %s: %s with claims %v", after, condition.Reason, claims)
		}
	}
}

// A credential that its provider presents again, or that another takes over, counts until it
// has been verified again: its content cannot have changed.
func TestNothingDisappearsWhileACredentialIsLookedAtAgain(t *testing.T) {
	b := newDesk(t)
	draft := b.draft("fra")
	list := b.credentials(draft)
	for _, sd := range list {
		sd.Spec.Provider = "rival"
	}
	b.store(list)
	for _, sd := range list {
		sd.Spec.Provider, sd.Generation = "eins", sd.Generation+1
		if err := b.hub.Update(t.Context(), sd); err != nil {
			t.Fatal(err)
		}
	}
	if condition, _, _ := b.admit(clusterOf("fra", draft.Offering("fra"), 0)); condition.Status != metav1.ConditionTrue {
		t.Errorf("%s: %s", condition.Reason, condition.Message)
	}
}

func TestClustersOfOneProviderRestOnTheirOwnCredentials(t *testing.T) {
	b := newDesk(t)
	draft := b.draft("fra", "muc")
	b.store(b.credentials(draft))
	r := &admission{Options: b.Options, hub: b.hub}
	for _, name := range []string{"fra", "muc"} {
		cluster := clusterOf(name, draft.Offering(name), 0)
		set, err := r.credentials(t.Context(), b.hub, v1alpha1.Presenter{Provider: cluster.Spec.Provider}, cluster, start)
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, c := range set {
			if c.Type == selfdescription.TypeComputeServiceOffering && c.Subject != draft.Offering(name) {
				t.Errorf("%s looks at the offering %s", name, c.Subject)
			}
			types = append(types, c.Type)
		}
		slices.Sort(types)
		if bindings := len(slices.DeleteFunc(types, func(kind string) bool { return kind != selfdescription.TypeClusterBinding })); bindings != 1 {
			t.Errorf("%s looks at %d bindings", name, bindings)
		}
		if condition, _, _ := b.admit(cluster); !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionAdmitted) {
			t.Errorf("%s: %s", name, condition.Message)
		}
	}
}
