package market

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

// TestETagsHoldWhileOthersWrite: nobody is refused because others write what is not in the ETag between the read and the
// write of a change.
func TestETagsHoldWhileOthersWrite(t *testing.T) {
	w := newWorld(t)
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"},
		Spec: v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Provider: "acme"}}
	must(t, w.Create(t.Context(), cluster))
	policy := tagOf(w.policyOf("acme.own", "acme", nil))
	if status := w.put("acme", "db", sell1("db"), ""); status != http.StatusCreated {
		t.Fatalf("acme cannot sell: %d", status)
	}
	offering := w.offering("acme", "db").ETag

	hub, err := client.NewWithWatch(hubtest.Start(t).Config, client.Options{Scheme: w.Scheme()})
	must(t, err)
	updates := 0
	w.options.Hub = interceptor.NewClient(hub, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		if updates++; updates == 1 || updates == 3 { // a policy is tried before it is written
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {"update": "%d"}}}`, updates))
			must(t, c.Patch(ctx, o.DeepCopyObject().(client.Object), patch))
		}
		return c.Update(ctx, o, options...)
	}})
	w.start()
	for _, row := range []struct{ method, path, etag, body string }{
		{"PATCH", "clusters/a", tagOf(cluster), `{"cordoned": true}`},
		{"PUT", "offerings/db", offering, sell1("db")},
		{"POST", "policies/acme.own/check", "", `{"spec": ` + residents + `}`},
		{"PUT", "policies/acme.own", policy, residents},
	} {
		updates = 0
		q := request{method: row.method, path: "/market/v1/" + row.path, with: w.as("provider:acme"), body: row.body, header: map[string]string{"If-Match": row.etag}}
		if answer := w.send(q, nil); answer.StatusCode != http.StatusOK || updates < 2 {
			t.Errorf("%s %s is answered %d, after %d updates", row.method, row.path, answer.StatusCode, updates)
		}
	}
}
