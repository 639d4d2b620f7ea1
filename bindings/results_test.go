package bindings_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// returning is withUsers with a bind hook that writes the given data as its results.
func returning(data string) string {
	_, after, _ := strings.Cut(withUsers, "  unbind:")
	before, _, _ := strings.Cut(withUsers, "  bind:")
	return before + `
  results: [token, id]
  bind:
    image: db
    command: [patch, $(SLUICE_RESULTS), '{"data": ` + data + `}']
    timeoutSeconds: 5
    resources: {cpu: 10m, memory: 16Mi}
  unbind:` + strings.NewReplacer(
		`NAME: "${binding.name}"`, `ID: "${binding.results.id}"`,
		`password: "${binding.secrets.password}"`, `password: "${binding.results.token}-${binding.results.id}"`,
	).Replace(after)
}

func resultsOfAHook(t *testing.T, f *fixture) {
	h := f.deliverWorkload(t, returning(`{"token": "aHVzaC1odXNo", "id": "NDI="}`)) // hush-hush, 42
	b := f.bound(t, f.bind(t, h.instance, "1", ""))
	if u := h.user(t, b); u.Password != "hush-hush-42" {
		t.Errorf("the credentials have the password %s", u.Password)
	}
	if status, err := json.Marshal(b); err != nil || bytes.Contains(status, []byte("hush-hush")) || bytes.Contains(status, []byte("aHVzaC1odXNo")) {
		t.Errorf("the results are in the binding: %v", err)
	}
	h.nothingOf(t)
	secrets := watchSecrets(t, h)
	f.unbound(t, b)
	if got := secrets("unbind-"); string(got["env.ID"]) != "42" {
		t.Errorf("the unbind hook gets the id %q", got["env.ID"])
	}
	h.nothingOf(t)
}

// watchSecrets returns a function that waits for a Secret that has been made since, by the start of its name.
func watchSecrets(t *testing.T, h *hooked) func(prefix string) map[string][]byte {
	t.Helper()
	seen, err := kubernetes.NewForConfigOrDie(h.planes[h.cluster].Config()).CoreV1().Secrets(h.namespaceThere()).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(seen.Stop)
	return func(prefix string) map[string][]byte {
		for event := range seen.ResultChan() {
			if secret, ok := event.Object.(*corev1.Secret); ok && strings.HasPrefix(secret.Name, prefix) {
				return secret.Data
			}
		}
		t.Fatal("the watch has ended")
		return nil
	}
}

func wrongResults(t *testing.T, f *fixture) {
	large := strings.Repeat("QUFB", 5<<10) // 15 KiB, decoded
	for _, row := range []struct{ name, data, because string }{
		{"nothing", `{}`, "it returned nothing for token"},
		{"not all", `{"token": "QUFB"}`, "it returned nothing for id"},
		{"another", `{"token": "QUFB", "id": "QUFB", "more": "QUFB"}`, `it returned "more", which is not among the results of the plan`},
		{"no text", `{"token": "/w==", "id": "QUFB"}`, "it returned a value for token that is no text"},
		{"too much", `{"token": "` + large + `", "id": "` + large + `"}`, "its results have 30727 bytes, more than 16384"},
		{"another kind", `7`, "exit code 22"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := f.deliverWorkload(t, returning(row.data))
			b := f.bind(t, h.instance, "1", "")
			f.until(t, b, "bind fails", in(v1alpha1.StateFailed))
			if got, want := b.Status.Operation.Description, "the bind hook failed: "+row.because; got != want {
				t.Errorf("it says %q, want %q", got, want)
			}
			f.unbound(t, b)
			h.nothingOf(t)
		})
	}
	t.Run("too late", func(t *testing.T) {
		t.Parallel()
		h := f.deliverWorkload(t, strings.Replace(returning(`{}`), "command: [patch", "command: [sleep", 1))
		b := f.bind(t, h.instance, "1", "")
		f.until(t, b, "bind fails", in(v1alpha1.StateFailed))
		if got, want := b.Status.Operation.Description, "the bind hook failed: it did not end within 5 s"; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		f.unbound(t, b)
		h.nothingOf(t)
	})
}

// rightsOfAHook asks the API server what the account of a hook may do while the hook runs.
func rightsOfAHook(t *testing.T, f *fixture) {
	h := f.deliverWorkload(t, strings.NewReplacer("command: [patch", "command: [sleep", "timeoutSeconds: 5", "timeoutSeconds: 60").Replace(returning(`{}`)))
	b := f.bind(t, h.instance, "1", "")
	admin, namespace := h.admin[h.cluster], h.namespaceThere()
	var pods corev1.PodList
	eventually(t, "the hook runs", func(ctx context.Context) (bool, error) {
		err := admin.List(ctx, &pods, client.InNamespace(namespace), client.HasLabels{batchv1.JobNameLabel})
		return len(pods.Items) > 0, err
	})
	word := strings.TrimPrefix(pods.Items[0].Labels[batchv1.JobNameLabel], "bind-")
	may := func(verb, resource, name string) bool {
		t.Helper()
		review := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + namespace + ":" + pods.Items[0].Spec.ServiceAccountName,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: resource, Name: name},
		}}
		if err := admin.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	if !may("patch", "secrets", "results-"+word) {
		t.Error("it may not write its results")
	}
	for _, no := range [][3]string{
		{"patch", "secrets", "bind-" + word}, {"get", "secrets", "bind-" + word}, {"list", "secrets", ""}, {"create", "secrets", ""},
		{"delete", "secrets", "results-" + word}, {"list", "pods", ""}, {"create", "pods", ""}, {"create", "serviceaccounts/token", pods.Items[0].Spec.ServiceAccountName},
	} {
		if may(no[0], no[1], no[2]) {
			t.Errorf("it may %s %s %s", no[0], no[1], no[2])
		}
	}
	var policy networkingv1.NetworkPolicy
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "bind-" + word}, &policy); err != nil {
		t.Fatal(err)
	}
	var services corev1.Service
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &services); err != nil {
		t.Fatal(err)
	}
	if len(policy.Spec.Egress) != 1 || !slices.ContainsFunc(policy.Spec.Egress[0].To, func(p networkingv1.NetworkPolicyPeer) bool {
		return p.IPBlock != nil && p.IPBlock.CIDR == services.Spec.ClusterIP+"/32"
	}) {
		t.Errorf("it may connect to %v, want the API server at %s", policy.Spec.Egress, services.Spec.ClusterIP)
	}
	f.unbound(t, b)
	h.nothingOf(t)
}
