package market

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
)

// lets lets a provider add clusters.
func (w *world) lets(provider string, joins v1alpha1.ProviderJoins) {
	w.Helper()
	p := &v1alpha1.Provider{}
	must(w.T, w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: provider}, p))
	p.Spec.Joins = &joins
	must(w.T, w.Update(w.Context(), p))
}

// invitation is the request for one.
func (w *world) invitation(provider, body string) request {
	return request{method: "POST", path: "/market/v1/invitations", with: w.as("provider:" + provider), body: body}
}

// invites returns a new invitation.
func (w *world) invites(provider, body string) (got invitationBody) {
	w.Helper()
	if answer := w.send(w.invitation(provider, body), &got); answer.StatusCode != http.StatusCreated || got.Token == "" {
		w.Fatalf("the invitation %s is answered %d, %+v", body, answer.StatusCode, got)
	}
	return got
}

// joining is the request to join by an invitation.
func joining(token, server string) request {
	return request{method: "POST", path: "/market/v1/clusters", with: token, body: fmt.Sprintf(`{"server": %q, "token": "t"}`, server)}
}

// states returns the states of a provider's invitations, by cluster.
func (w *world) states(provider string) string {
	w.Helper()
	var list struct{ Invitations []invitationBody }
	w.send(request{method: "GET", path: "/market/v1/invitations", with: w.as("provider:" + provider)}, &list)
	var all []string
	for _, i := range list.Invitations {
		if i.Token != "" {
			w.Errorf("the token of %s is shown", i.Cluster)
		}
		all = append(all, i.Cluster+" "+i.State)
	}
	return strings.Join(all, ", ")
}

// TestAClusterJoins: by an invitation, once, with the terms of its provider, who removes it when nothing is on it.
func TestAClusterJoins(t *testing.T) {
	w := newWorld(t)
	w.reached["https://one"], w.reached["https://two"] = "uid-1", "uid-2"
	w.refused(w.invitation("acme", `{"cluster": "one"}`), http.StatusForbidden, "--clusters")
	w.lets("acme", v1alpha1.ProviderJoins{AtMost: 5, Proven: true, Types: []string{"LabelCredential"}})
	w.refused(w.invitation("acme", `{"cluster": "one"}`), http.StatusUnprocessableEntity, "offering")
	terms := `{"cluster": "one", "region": "eu-de", "tier": "edge", "offering": "https://acme.example/one", "sell": {"share": 50}, "prices": {"currency": "EUR", "perHour": {"cpu": "0.02"}}}`
	first := w.invites("acme", terms)
	if got := w.states("acme"); got != "one open" {
		t.Errorf("invited: %s", got)
	}
	w.refused(joining(first.Token, "https://away"), http.StatusUnprocessableEntity, "does not answer")
	again := w.invites("acme", terms)
	w.refused(joining(first.Token, "https://one"), http.StatusGone, "withdrawn, or replaced")

	// Of many that come at once with one invitation, one joins.
	answers := make([]int, 4)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = w.send(joining(again.Token, "https://one"), nil).StatusCode })
	}
	all.Wait()
	count := map[int]int{}
	for _, status := range answers {
		count[status]++
	}
	if count[http.StatusCreated] != 1 || count[http.StatusCreated]+count[http.StatusOK]+count[http.StatusGone]+count[http.StatusConflict] != len(answers) {
		t.Errorf("answered %v", answers)
	}
	w.refused(joining(again.Token, "https://two"), http.StatusGone, "has been used")
	m := &v1alpha1.MemberCluster{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "one"}, m))
	if s := m.Spec; !s.Guarded || s.Provider != "acme" || s.Region != "eu-de" || s.Tier != "edge" || s.Sell.Share != 50 || s.Prices.Currency != "EUR" ||
		s.Trust.Offering != "https://acme.example/one" || s.Trust.Types[0] != "LabelCredential" || s.Driver != v1alpha1.DriverKube {
		t.Errorf("joined as %+v", s)
	}
	if got := w.states("acme"); got != "one used" {
		t.Errorf("joined: %s", got)
	}

	// Neither its name nor the cluster is taken again.
	m.Status.UID = "uid-1"
	must(t, w.Status().Update(t.Context(), m))
	w.refused(w.invitation("acme", terms), http.StatusConflict, `a cluster "one" already`)
	w.lets("rival", v1alpha1.ProviderJoins{AtMost: 5})
	other := w.invites("rival", `{"cluster": "other"}`)
	w.refused(joining(other.Token, "https://one"), http.StatusConflict, "registered already")
	must(t, w.Create(t.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "other"},
		Spec: v1alpha1.MemberClusterSpec{Provider: "rival", Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("x")}}}))
	w.refused(joining(other.Token, "https://two"), http.StatusConflict, `a cluster "other" already`)

	remove := func(provider, name string) request {
		m := &v1alpha1.MemberCluster{}
		must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, m))
		return request{method: "DELETE", path: "/market/v1/clusters/" + name, with: w.as("provider:" + provider), header: map[string]string{"If-Match": tagOf(m)}}
	}
	w.refused(remove("rival", "one"), http.StatusForbidden, "not rival's")
	w.refused(remove("rival", "other"), http.StatusConflict, "only the operator")
	instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "si-1"}, Spec: v1alpha1.ServiceInstanceSpec{
		InstanceID: "1", Platform: "cf", ServiceID: "s", Desired: v1alpha1.InstanceState{PlanID: "p"}}}
	must(t, w.Create(t.Context(), instance))
	instance.Status.Decision = &v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "one", Reserved: corev1.ResourceList{}}}}
	must(t, w.Status().Update(t.Context(), instance))
	w.refused(remove("acme", "one"), http.StatusConflict, "has 1 instances")
	must(t, w.Delete(t.Context(), instance))
	if status := w.send(remove("acme", "one"), nil).StatusCode; status != http.StatusNoContent {
		t.Errorf("the removal is answered %d", status)
	}
	w.refused(joining(again.Token, "https://one"), http.StatusGone, "has been used") // it stays so
}

// TestJoinsHoldUpNobody: whoever has an invitation, withdrawn or not, keeps its provider from no write: neither by a body
// that does not end, nor by many requests.
func TestJoinsHoldUpNobody(t *testing.T) {
	w := newWorld(t)
	w.lets("acme", v1alpha1.ProviderJoins{AtMost: 2})
	token := w.invites("acme", `{"cluster": "one"}`).Token
	body, rest := io.Pipe()
	answered := make(chan int)
	go func() {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/market/v1/clusters", body)
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		answered <- answer.Code
	}()
	whole := joining(token, "https://one").body
	_, err := io.WriteString(rest, whole[:1]) // returns when it is read
	must(t, err)
	withdraw := request{method: "DELETE", path: "/market/v1/invitations/one", with: w.as("provider:acme")}
	withdrawn := make(chan int)
	go func() { withdrawn <- w.send(withdraw, nil).StatusCode }()
	select {
	case status := <-withdrawn:
		if status != http.StatusNoContent {
			t.Errorf("the withdrawal is answered %d", status)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the withdrawal waits for the body of a join")
	}
	_, err = io.WriteString(rest, whole[1:])
	must(t, err)
	must(t, rest.Close())
	if status := <-answered; status != http.StatusGone {
		t.Errorf("the join is answered %d", status)
	}
	for range writesAtOnce - 1 {
		w.refused(joining(token, "https://one"), http.StatusGone, "withdrawn")
	}
	if status := w.put("acme", "db", sell1("db"), ""); status != http.StatusCreated {
		t.Errorf("after many joins, the provider is answered %d", status)
	}
}

// TestTurnsAreForgotten: an invitation that writes too often waits, and is no longer known once it has rested.
func TestTurnsAreForgotten(t *testing.T) {
	writes, now := callersWrites{}, time.Now()
	one, other := access.Caller{Role: roleInvitation, Name: "1"}, access.Caller{Role: roleInvitation, Name: "2"}
	for range writesAtOnce {
		end, err := writes.begin(one, now)
		must(t, err)
		end()
	}
	if _, err := writes.begin(one, now); err == nil || !strings.Contains(err.Error(), "Too many changes by this invitation") {
		t.Errorf("one more at once: %v", err)
	}
	now = now.Add(writesAtOnce * time.Second / writesPerSecond)
	end, err := writes.begin(other, now)
	must(t, err)
	if len(writes.turns) != 1 {
		t.Errorf("%d turns are known", len(writes.turns))
	}
	now = now.Add(time.Hour)
	_, err = writes.begin(one, now)
	must(t, err)
	if len(writes.turns) != 2 {
		t.Errorf("a turn that somebody has is forgotten: %d are known", len(writes.turns))
	}
	end()
}

// TestInvitationsRefused: what is wrong about an invitation, or about who comes with one, changes nothing.
func TestInvitationsRefused(t *testing.T) {
	w := newWorld(t)
	w.reached["https://one"] = "uid-1"
	w.lets("acme", v1alpha1.ProviderJoins{AtMost: 2})
	for body, why := range map[string]string{
		`{}`:                                "cluster",
		`{"cluster": "A b"}`:                "cluster",
		`{"cluster": "a/b"}`:                "cluster",
		`{"cluster": "a", "provider": "x"}`: "provider",
		`[]`:                                "Body",
	} {
		w.refused(w.invitation("acme", body), http.StatusBadRequest, why)
	}
	for body, why := range map[string]string{
		`{"cluster": "a", "tier": "sky"}`:                                            "tier",
		`{"cluster": "a", "sell": {"share": 101}}`:                                   "sell.share",
		`{"cluster": "a", "prices": {"currency": "euro", "perHour": {}}}`:            "prices.currency",
		`{"cluster": "a", "prices": {"currency": "EUR", "perHour": {"cpu": "-1"}}}`:  "prices.perHour: cpu: -1",
		`{"cluster": "a", "prices": {"currency": "EUR", "perHour": {"cpu": "10G"}}}`: "prices.perHour: cpu: 10G",
		fmt.Sprintf(`{"cluster": "a", "region": %q}`, strings.Repeat("a", 64)):       "region",
	} {
		w.refused(w.invitation("acme", body), http.StatusUnprocessableEntity, why)
	}
	w.refused(w.invitation("acme", `{"cluster": "`+strings.Repeat("a", maxClusterChange)+`"}`), http.StatusRequestEntityTooLarge, "longer")
	if got := w.states("acme"); got != "" {
		t.Errorf("invited: %s", got)
	}

	open := w.invites("acme", `{"cluster": "one"}`)
	w.invites("acme", `{"cluster": "two"}`)
	w.refused(w.invitation("acme", `{"cluster": "three"}`), http.StatusForbidden, "at most 2")
	w.refused(request{method: "DELETE", path: "/market/v1/invitations/one", with: w.as("provider:rival")}, http.StatusNotFound, "no invitation")
	for name, wrong := range map[string]struct {
		request
		status int
		why    string
	}{
		"no invitation":  {joining("", "https://one"), http.StatusUnauthorized, "Bearer"},
		"a token":        {joining(w.as("provider:acme"), "https://one"), http.StatusUnauthorized, "its type"},
		"no server":      {joining(open.Token, ""), http.StatusBadRequest, "server"},
		"no TLS":         {joining(open.Token, "http://one"), http.StatusBadRequest, "https"},
		"a long body":    {request{method: "POST", path: "/market/v1/clusters", with: open.Token, body: `{"server": "` + strings.Repeat("a", maxClusterChange)}, http.StatusRequestEntityTooLarge, "longer"},
		"something else": {request{method: "POST", path: "/market/v1/clusters", with: open.Token, body: `{"kubeconfig": "x"}`}, http.StatusBadRequest, "kubeconfig"},
	} {
		t.Run(name, func(*testing.T) { w.refused(wrong.request, wrong.status, wrong.why) })
	}
	if status := w.send(request{method: "DELETE", path: "/market/v1/invitations/two", with: w.as("provider:acme")}, nil).StatusCode; status != http.StatusNoContent {
		t.Errorf("a withdrawal is answered %d", status)
	}
	if got := w.states("acme"); got != "one open" {
		t.Errorf("invited: %s", got)
	}
	w.clock.SetTime(w.clock.Now().Add(access.InvitationLifetime))
	w.refused(joining(open.Token, "https://one"), http.StatusUnauthorized, "expired")
	if got := w.states("acme"); got != "one expired" {
		t.Errorf("invited: %s", got)
	}
	w.invites("acme", `{"cluster": "three"}`)
	if got := w.states("acme"); got != "three open" {
		t.Errorf("an invitation that has expired is kept: %s", got)
	}
	last := w.invites("acme", `{"cluster": "four"}`)
	must(t, w.options.Tokens.Revoke(t.Context(), w.Client, access.Caller{Role: access.Provider, Name: "acme"}))
	w.refused(joining(last.Token, "https://one"), http.StatusUnauthorized, "revoked")
	var clusters v1alpha1.MemberClusterList
	must(t, w.List(t.Context(), &clusters, client.InNamespace(w.namespace)))
	if len(clusters.Items) > 0 {
		t.Errorf("%d clusters have joined", len(clusters.Items))
	}
}
