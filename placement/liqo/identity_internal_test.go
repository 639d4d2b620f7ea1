package liqo

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// TestLiqoGetsNoForeignKubeconfig: whatever answer is stored, Liqo at the inviting cluster gets a server and inline
// credentials. It would run commands and send the files that a kubeconfig names, and may read all Secrets there.
func TestLiqoGetsNoForeignKubeconfig(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	const (
		head = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nclusters:\n" +
			"- {name: a, cluster: {server: https://theirs.example}}\n- {name: b, cluster: {server: http://b.example}}\nusers:\n" +
			"- {name: b, user: {tokenFile: /etc/passwd}}\n"
		user = head + "- {name: a, user: {token: secret-token"
	)
	for name, row := range map[string]struct{ given, says string }{
		"as accept writes it": {user + "}}", ""},
		"an exec plugin":      {user + ", exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}}", "exec plugins are not allowed"},
		"a file":              {user + ", tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}", "tokenFile"},
		"a proxy":             {strings.Replace(user+"}}", "theirs.example}", "theirs.example, proxy-url: 'http://b.example'}", 1), "proxy-url is not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "theirs"}}
			theirs.Spec.Liqo = &v1alpha1.LiqoCluster{Joined: &v1alpha1.JoinedPeering{With: "ours"}}
			sealed, err := keys.Seal([]byte(row.given), member.Owner("sluice", v1alpha1.JoinedIdentity(theirs).Name))
			if err != nil {
				t.Fatal(err)
			}
			theirs.Spec.Liqo.Joined.Identity = &v1alpha1.ClusterAccess{SealedKubeconfig: sealed}
			consumer := &side{
				Client: fake.NewClientBuilder().WithScheme(names.Scheme).Build(), hub: "hub-1",
				cluster: &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "ours"}},
				own:     v1alpha1.LiqoNetwork{ClusterID: "our-id"}, remote: v1alpha1.LiqoNetwork{ClusterID: "their-id"},
			}
			_, err = authenticate(t.Context(), consumer, &side{cluster: theirs}, &member.Connections{Namespace: "sluice", Keys: keys}, time.Now())
			var secret corev1.Secret
			held := consumer.Client.Get(t.Context(), client.ObjectKey{Namespace: consumer.namespace(), Name: consumer.identityName()}, &secret)
			if row.says != "" {
				if !errors.As(err, new(*delivery.RefusedError)) || !strings.Contains(err.Error(), row.says) || !apierrors.IsNotFound(held) {
					t.Errorf("got %v, and the Secret %v", err, held)
				}
				return
			}
			if err != nil || held != nil {
				t.Fatalf("got %v, and the Secret %v", err, held)
			}
			if text := string(secret.Data[consts.KubeconfigSecretField]); !strings.Contains(text, "token: secret-token") || !strings.Contains(text, "server: https://theirs.example") || strings.Contains(text, "b.example") || strings.Contains(text, "/etc/passwd") {
				t.Errorf("Liqo gets\n%s", text)
			}
		})
	}
}
