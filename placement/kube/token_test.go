package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// answers are an API server's answers to successive reads of the Secret; the last is repeated.
type answers struct {
	client.Reader
	list []func(*corev1.Secret) error
}

func (a *answers) Get(ctx context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	answer := a.list[0]
	if len(a.list) > 1 {
		a.list = a.list[1:]
	}
	return answer(object.(*corev1.Secret))
}

// TestAwaitToken: one lost answer does not fail a registration, and a token that never comes is an error with
// its cause.
func TestAwaitToken(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	empty := func(*corev1.Secret) error { return nil }
	token := func(s *corev1.Secret) error { s.Data = map[string][]byte{"token": []byte("t")}; return nil }
	lost := func(*corev1.Secret) error { return errors.New("connection reset by peer") }
	denied := func(*corev1.Secret) error { return apierrors.NewForbidden(resource, tokenSecretName, errors.New("no")) }
	absent := func(*corev1.Secret) error { return apierrors.NewNotFound(resource, tokenSecretName) }
	for _, row := range []struct {
		name string
		list []func(*corev1.Secret) error
		says string // the token if empty
	}{
		{"at once", []func(*corev1.Secret) error{token}, ""},
		{"after a while", []func(*corev1.Secret) error{absent, empty, token}, ""},
		{"after lost answers", []func(*corev1.Secret) error{empty, lost, lost, token}, ""},
		{"no token controller", []func(*corev1.Secret) error{empty}, "kube-controller-manager"},
		{"no answer any more", []func(*corev1.Secret) error{empty, lost}, "connection reset by peer"},
		{"forbidden", []func(*corev1.Secret) error{denied}, "forbidden"},
	} {
		t.Run(row.name, func(t *testing.T) {
			secret, err := awaitToken(t.Context(), &answers{list: row.list}, "sluice-system", 500*time.Millisecond)
			if row.says == "" {
				if err != nil || string(secret.Data["token"]) != "t" {
					t.Errorf("got %v, %v", secret, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), "rate limiter") {
				t.Errorf("got %v, want %q", err, row.says)
			}
		})
	}
}
