package bindings_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
)

// failures let each request fail once, the first time that it is made. In one pass at most one request fails.
type failures struct {
	spared string // no request fails that has it; empty if all do

	mu     sync.Mutex
	seen   map[string]bool
	failed string // in the present pass
}

// errInjected is the answer to a request that fails.
var errInjected = apierrors.NewInternalError(errors.New("injected"))

// forget lets each request fail once more.
func (f *failures) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = map[string]bool{}
}

// pass begins another pass, and returns the request that failed in the one before; empty if none did.
func (f *failures) pass() (failed string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed, f.failed = f.failed, ""
	return failed
}

// fails reports whether a request fails now.
func (f *failures) fails(request string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != "" || f.seen[request] || f.spared != "" && strings.Contains(request, f.spared) {
		return false
	}
	f.seen[request], f.failed = true, request
	return true
}

// failing is a transport to the hub or a member cluster whose requests fail: the server answers 500.
type failing struct {
	*failures
	next http.RoundTripper
}

func (f *failures) wrap(next http.RoundTripper) http.RoundTripper { return failing{f, next} }

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.fails(r.Method + " " + r.URL.Host + r.URL.Path + "?" + r.URL.RawQuery) {
		return f.next.RoundTrip(r)
	}
	body, err := json.Marshal(errInjected.Status())
	return &http.Response{
		StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, err
}

// passing is a controller whose requests fail.
type passing struct {
	*failures
	hub        client.Reader
	controller *bindings.Controller
}

// bound is until for a bind. That reads the instance again if it cannot: such a pass would go on to the end.
func (p *passing) bound(t *testing.T, b *v1alpha1.ServiceBinding, wanted func(*v1alpha1.ServiceBinding) bool) {
	t.Helper()
	p.spared = "/serviceinstances/"
	p.until(t, b, "bind", wanted)
	p.spared = ""
}

// failingByHand is byHand with a controller whose requests fail.
func (f *fixture) failingByHand(t *testing.T) (*passing, *fixture) {
	t.Helper()
	p := &passing{failures: &failures{}, hub: f.Client}
	config := rest.CopyConfig(hubtest.Start(t).Config)
	config.Wrap(p.wrap)
	p.forget()
	hub := f.newClient(t, config)
	controller, other := f.byHandOn(t, hub, hub, &member.Connections{Reader: f.Client, Namespace: f.namespace, Keys: f.keys, Wrap: p.wrap})
	p.controller = controller
	return p, other
}

// until has the controller look at a binding until one pass meets no failure, and leaves it as wanted. A pass that meets one
// ends with an error, or does not leave the binding as wanted.
func (p *passing) until(t *testing.T, b *v1alpha1.ServiceBinding, what string, wanted func(*v1alpha1.ServiceBinding) bool) {
	t.Helper()
	p.forget()
	p.pass()
	count := 0
	eventually(t, what, func(ctx context.Context) (bool, error) {
		_, err := p.controller.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		failed, now := p.pass(), &v1alpha1.ServiceBinding{}
		if p.hub.Get(ctx, client.ObjectKeyFromObject(b), now) != nil {
			now = nil
		}
		if failed != "" {
			count++
			if err == nil && now != nil && wanted(now) && !isMadeGood(failed) {
				t.Errorf("%s: %s has failed, and nobody says so", what, failed)
			}
			return false, nil
		}
		if err != nil {
			t.Errorf("%s: nothing has failed, and a pass ends with %v", what, err)
		}
		if !wanted(now) {
			return false, nil
		}
		if now != nil {
			now.DeepCopyInto(b)
		}
		return true, nil
	})
	t.Logf("%s: %d requests failed", what, count)
	if count == 0 {
		t.Errorf("%s: no request failed", what)
	}
}

// isMadeGood reports whether a request may fail unnoticed: what a hook has left is deleted later, and a cluster of which it
// cannot be told whether it is the same one is looked at again, for what is left there and for endpoints.
func isMadeGood(request string) bool {
	return strings.HasPrefix(request, "DELETE ") || strings.Contains(request, "/namespaces/kube-system?")
}

func gone(b *v1alpha1.ServiceBinding) bool { return b == nil }

// bindSurvivesFailures has every request of a bind, a renewal, a move and an unbind fail once.
func bindSurvivesFailures(t *testing.T, f *fixture) {
	p, other := f.failingByHand(t)
	instance := other.deliver(t, other.instance(t))
	b := other.bind(t, instance, "binding-1", "edit")
	p.bound(t, b, in(v1alpha1.StateSucceeded))
	accounts := func(cluster string) int {
		var all corev1.ServiceAccountList
		if err := f.admin[cluster].List(t.Context(), &all, client.InNamespace(v1alpha1.MemberNamespace(instance.Name)), client.HasLabels{v1alpha1.LabelBinding}); err != nil {
			t.Fatal(err)
		}
		return len(all.Items)
	}
	works := func(what string) {
		t.Helper()
		c := other.open(t, b)
		for _, name := range clusters {
			if err := listPods(t.Context(), f.consumer(t, c, name), c.Namespace); err != nil {
				t.Errorf("%s: the token for %s: %v", what, name, err)
			}
			if n := accounts(name); n != 1 {
				t.Errorf("%s: %d accounts on %s", what, n, name)
			}
		}
	}
	works("bind")

	before := b.Status.SealedCredentials
	b.AskRenewal()
	if err := f.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	p.until(t, b, "renewal", func(b *v1alpha1.ServiceBinding) bool { return b != nil && !b.RenewalAsked() })
	if slices.Equal(before, b.Status.SealedCredentials) {
		t.Error("the credentials are as before")
	}
	works("renewal")

	other.deliverTo(t, instance, v1alpha1.Placement{Cluster: clusters[0]})
	p.until(t, b, "move", func(b *v1alpha1.ServiceBinding) bool {
		return b != nil && slices.Equal(b.Status.Clusters, clusters[:1])
	})
	if c := other.open(t, b); len(c.Clusters) != 1 || listPods(t.Context(), f.consumer(t, c, ""), c.Namespace) != nil {
		t.Errorf("move: the credentials are for %d clusters, or do not work", len(c.Clusters))
	}

	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	p.until(t, b, "unbind", gone)
	if n := accounts(clusters[0]); n > 0 { // what is left on the other cluster goes with the namespace
		t.Errorf("unbind: %d accounts on %s", n, clusters[0])
	}
}

// hooksSurviveFailures has every request of a bind and an unbind fail once, each of which runs a hook.
func hooksSurviveFailures(t *testing.T, f *fixture) {
	p, other := f.failingByHand(t)
	h := other.deliverWorkload(t, returning(`{"token": "aHVzaC1odXNo", "id": "NDI="}`)) // hush-hush, 42
	b := other.bind(t, h.instance, "1", "")
	p.bound(t, b, in(v1alpha1.StateSucceeded))
	if u := h.user(t, b); len(u.User) != 17 || u.Password != "hush-hush-42" {
		t.Errorf("the credentials are %+v", u)
	}
	h.nothingOf(t)
	if n := h.ran("bind"); n != 1 {
		t.Errorf("the bind hook ran %d times", n)
	}
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	p.until(t, b, "unbind", gone)
	if h.ran("unbind") == 0 { // it may run again after a failure
		t.Error("the unbind hook has not run")
	}
	h.nothingOf(t)
}

// addressesSurviveFailures has every request of a bind and an unbind fail once whose Service has an address by Liqo.
func addressesSurviveFailures(t *testing.T, f *fixture) {
	p, other := f.failingByHand(t)
	other.declarePeering(t, own, provider)
	instance := other.deliverTo(t, other.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	web := f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	b := other.bind(t, instance, "binding-1", "edit")
	p.bound(t, b, func(b *v1alpha1.ServiceBinding) bool {
		return in(v1alpha1.StateSucceeded)(b) && b.Status.EndpointsAbsent == ""
	})
	host := mapped(t, own, provider, "external", f.addressFor(t, provider, namespace, web.Spec.ClusterIP))
	if services := b.Status.Services["web"]; !slices.Equal(services, []string{"tcp://" + host + ":80"}) {
		t.Errorf("the Service is reached at %v, want %s", services, host)
	}
	if n := len(f.ownAddresses(t, provider, b)); n != 1 {
		t.Errorf("%d addresses, want one", n)
	}
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	p.until(t, b, "unbind", gone)
	if n := len(f.ownAddresses(t, provider, b)); n > 0 {
		t.Errorf("%d addresses are left", n)
	}
}
