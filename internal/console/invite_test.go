package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// TestAddingACluster: a provider that may invites a cluster, sees the command once, and how far the cluster is.
func TestAddingACluster(t *testing.T) {
	c := newConsole(t)
	acme := func() *http.Client { return c.as(access.Caller{Role: access.Provider, Name: "acme"}) }
	shows := func(path string, form url.Values, status int, want ...string) string {
		t.Helper()
		return words(c.shows(acme(), path, form, status, want...))
	}
	p := &v1alpha1.Provider{}
	may := func(joins *v1alpha1.ProviderJoins) {
		t.Helper()
		c.read("acme", p)
		p.Spec.Joins = joins
		if err := c.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	may(nil)
	shows("supply/add", nil, http.StatusForbidden, "--clusters")
	if text := shows("supply", nil, http.StatusOK, "None of your clusters"); strings.Contains(text, "Add a cluster") {
		t.Error("who may add none is asked to")
	}
	may(&v1alpha1.ProviderJoins{AtMost: 2, Proven: true})
	shows("supply", nil, http.StatusOK, "Add a cluster")
	shows("supply/add", nil, http.StatusOK, "nothing is placed there until you have proven it")
	form := url.Values{"cluster": {"acme-1"}, "region": {"eu-de"}, "tier": {"edge"}, "currency": {"EUR"}, "cpu": {"much"}, "offering": {"https://acme.example/one"}}
	shows("supply/add", form, http.StatusUnprocessableEntity, "Body: ", "Name of the cluster")
	form.Set("cpu", "0.02")
	text := shows("supply/add", form, http.StatusOK, "acme-1 is invited", "sluice cluster join - --to "+c.server.URL+" --context CONTEXT <<'END' eyJ")
	token := strings.Fields(text[strings.Index(text, "eyJ"):])[0]
	c.read("acme", p)
	if i, err := c.tokens.Invited(t.Context(), token); err != nil || len(p.Status.Invitations) != 1 || p.Status.Invitations[0].ID != i.ID || p.Status.Invitations[0].Terms.Tier != "edge" {
		t.Errorf("invited %+v by %+v, %v", p.Status.Invitations, i, err)
	}
	shows("supply", nil, http.StatusOK, "acme-1 Invited Joined its owner runs the command", "Withdraw")

	// It joins, becomes ready, and is admitted.
	m := cluster("acme-1", "eu-de", "acme", "8", "32Gi")
	m.Spec.Guarded, m.Spec.Trust = true, &v1alpha1.TrustRequirements{Offering: "https://acme.example/one"}
	ready := m.Status.Conditions
	m.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, false, "NoAnswer", "it does not answer yet", time.Minute)}
	c.create(m)
	p.Status.Invitations[0].Used = true
	if err := c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	is := func(conditions []metav1.Condition, want string) {
		t.Helper()
		c.read("acme-1", m)
		m.Status.Conditions = conditions
		if err := c.Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		c.console.fleets.until = time.Time{} // a moment later
		shows("supply", nil, http.StatusOK, want)
	}
	c.console.fleets.until = time.Time{}
	shows("supply", nil, http.StatusOK, "acme-1 Invited Joined Ready it does not answer yet Admitted Sold")
	is(append(ready, condition(v1alpha1.ConditionAdmitted, false, "NotProven", "no credential of the offering", time.Minute)), "Ready Admitted no credential of the offering Sold")
	is(append(ready, condition(v1alpha1.ConditionAdmitted, true, "Admitted", "", time.Minute)), "Admitted Sold nobody has bought anything there yet")

	// Another invitation is withdrawn.
	form.Set("cluster", "acme-2")
	c.console.URL = "https://broker.example"
	shows("supply/add", form, http.StatusOK, "acme-2 is invited", "--to https://broker.example --context CONTEXT")
	form.Set("cluster", "acme-3")
	shows("supply/add", form, http.StatusUnprocessableEntity, "at most 2")
	shows("supply/withdraw", url.Values{"cluster": {"acme-2"}}, http.StatusSeeOther)
	shows("supply/withdraw", url.Values{"cluster": {"acme-2"}}, http.StatusConflict, "no invitation of a cluster acme-2")
}

// read reads a resource of the hub.
func (c *consoleOf) read(name string, into client.Object) {
	c.Helper()
	if err := c.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, into); err != nil {
		c.Fatal(err)
	}
}
