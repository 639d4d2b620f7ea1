package bindings

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestSucceed: a binding has the credentials of all clusters, sealed, until the first of them ends, and says so; issued
// again, it has the new ones.
func TestSucceed(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	b, writes := bindingOf("", nil), 0
	hub := hubOf(t, &writes, b.DeepCopy())
	c := &Controller{Client: hub, Live: hub, Keys: keys, Clock: clocktesting.NewFakePassiveClock(today), Refresh: time.Minute}
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
		t.Fatal(err)
	}
	one := func(cluster string, hours int, token string) issued {
		return issued{expires: today.Add(time.Duration(hours) * time.Hour), credentials: ClusterCredentials{
			Cluster: cluster, Name: cluster, Server: "https://" + cluster + ".example", Namespace: "n", Token: seal.Redact([]byte(token)),
		}}
	}
	for _, row := range []struct {
		token string
		event v1alpha1.EventType
	}{{"first", v1alpha1.EventBound}, {"second", v1alpha1.EventReissued}} {
		all := []issued{one("a", 10, row.token), one("b", 5, row.token), one("c", 7, row.token)}
		if _, err := c.succeed(t.Context(), b, deliveredTo(plain("a"), plain("b"), plain("c")), all, findings{}); err != nil {
			t.Fatal(err)
		}
		s := b.Status
		object, err := keys.Unseal(s.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
		var shown struct {
			Clusters []struct{ Name, Token string }
		}
		if err == nil {
			err = json.Unmarshal(object.Reveal(), &shown)
		}
		if err != nil || len(shown.Clusters) != 3 || shown.Clusters[2].Name != "c" || shown.Clusters[2].Token != row.token {
			t.Errorf("%s: revealed is %+v, %v", row.token, shown, err)
		}
		if !slices.Equal(s.Issued, []string{"a", "b", "c"}) || len(s.Endpoints) != 3 || !finished(b) || s.Operation.State != v1alpha1.StateSucceeded {
			t.Errorf("%s: %+v", row.token, s)
		}
		if end := today.Add(5 * time.Hour); !s.ExpiresAt.Time.Equal(end) || !s.IssuedAt.Time.Equal(today) || !s.RenewBefore.Time.Equal(today.Add(4*time.Hour)) {
			t.Errorf("%s: issued %s, renew before %s, expires %s; want the end %s", row.token, s.IssuedAt, s.RenewBefore, s.ExpiresAt, end)
		}
		i := slices.IndexFunc(s.Events, func(e v1alpha1.Event) bool { return e.Type == row.event })
		if i < 0 || s.Events[i].Message != "until 2026-11-20T17:00:00Z" || (s.Events[i].After != nil) != (row.event == v1alpha1.EventBound) {
			t.Errorf("%s: events %+v", row.token, s.Events)
		}
	}
	if writes != 2 {
		t.Errorf("%d writes, want one each", writes)
	}
	// On nodes of the consumer's own cluster there is no account, and so nothing that expires.
	if _, err := c.succeed(t.Context(), b, deliveredTo(peeredWith("a", "", "n")), nil, findings{}); err != nil {
		t.Fatal(err)
	}
	if s := b.Status; s.ExpiresAt != nil || s.IssuedAt != nil || s.RenewBefore != nil || s.Issued != nil || !slices.Equal(s.Nodes, []string{"n"}) {
		t.Errorf("on a node: %+v", s)
	}
	if e := b.Status.Events[len(b.Status.Events)-1]; e.Message != "" {
		t.Errorf("on a node: event %+v", e)
	}
}
