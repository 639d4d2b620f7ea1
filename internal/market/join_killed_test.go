package market

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

// TestJoinKilled: a broker dies after a write of a join, and nobody hears the answer. After its next start the cluster
// joins when it comes again, and no other one does, also not when it was removed.
func TestJoinKilled(t *testing.T) {
	const writes = 3 // for whom the invitation is, the cluster, and that it has joined
	for at := 1; at <= writes+1; at++ {
		w := newWorld(t)
		w.reached["https://one"], w.reached["https://two"] = "uid-1", "uid-2"
		w.lets("acme", v1alpha1.ProviderJoins{AtMost: 5})
		token := w.invites("acme", `{"cluster": "one", "region": "eu-de"}`).Token

		w.diesAfter(at)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/market/v1/clusters", strings.NewReader(joining(token, "https://one").body))
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		if died := answer.Code != http.StatusCreated; died != (at <= writes) {
			t.Errorf("death %d: answered %d, %s", at, answer.Code, answer.Body)
		}

		w.options.Hub = w.Client
		w.start()
		w.refused(joining(token, "https://two"), http.StatusGone, "has been used")
		want := http.StatusOK
		if at == 1 {
			want = http.StatusCreated
		}
		for range 2 {
			if got := w.send(joining(token, "https://one"), nil).StatusCode; got != want {
				t.Errorf("death %d: it comes again, and is answered %d, want %d", at, got, want)
			}
			want = http.StatusOK
		}
		w.refused(joining(token, "https://two"), http.StatusGone, "has been used")
		var all v1alpha1.MemberClusterList
		must(t, w.List(t.Context(), &all, client.InNamespace(w.namespace)))
		if len(all.Items) != 1 || all.Items[0].Name != "one" || all.Items[0].Spec.Region != "eu-de" || string(all.Items[0].Spec.Access.SealedKubeconfig) != "sealed t" {
			t.Fatalf("death %d: joined are %+v", at, all.Items)
		}
		if got := w.states("acme"); got != "one used" {
			t.Errorf("death %d: %s", at, got)
		}
		must(t, w.Delete(t.Context(), &all.Items[0]))
		w.refused(joining(token, "https://one"), http.StatusGone, "has been used")
	}
}

// diesAfter makes the broker die after so many writes to the hub: it does not hear the answer to the last one.
func (w *world) diesAfter(writes int) {
	w.Helper()
	hub, err := client.NewWithWatch(hubtest.Start(w.T).Config, client.Options{Scheme: w.Scheme()})
	must(w.T, err)
	dead := errors.New("the process is dead")
	dies := func(write func() error) error {
		if writes == 0 {
			return dead
		}
		err := write()
		if writes--; writes == 0 {
			return dead
		}
		return err
	}
	w.options.Hub = interceptor.NewClient(hub, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return dies(func() error { return c.Create(ctx, o, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
			return dies(func() error { return c.SubResource(name).Update(ctx, o, options...) })
		},
	})
	w.start()
}
