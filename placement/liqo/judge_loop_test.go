package liqo

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestProvidersThatDoNotAnswerKeepNoOtherOneWaiting(t *testing.T) {
	const namespace, providers = "sluice", 20
	asked, over := make(chan string, 1000), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- strings.Split(r.URL.Path, "/")[1]
		<-over
	}))

	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).Build()
	for i := range providers {
		name := fmt.Sprintf("provider-%d", i)
		kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
			"clusters":[{"name":"c","cluster":{"server":"%s/%s","certificate-authority-data":"%s"}}],"users":[{"name":"u","user":{"token":"t"}}]}`,
			server.URL, name, base64.StdEncoding.EncodeToString(authority))
		cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if cluster.Spec.Access.SealedKubeconfig, err = keys.Seal([]byte(kubeconfig), member.Owner(namespace, name)); err != nil {
			t.Fatal(err)
		}
		peering := &v1alpha1.Peering{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       v1alpha1.PeeringSpec{Consumer: "own", Provider: name, Modules: []v1alpha1.LiqoModule{v1alpha1.ModuleAuthentication}},
			Status:     v1alpha1.PeeringStatus{Consumer: &v1alpha1.LiqoNetwork{ClusterID: "own"}, Provider: &v1alpha1.LiqoNetwork{ClusterID: name}},
		}
		for _, err := range []error{hub.Create(t.Context(), cluster), hub.Create(t.Context(), peering)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	j := &Judge{
		Client: hub, Live: hub, Namespace: namespace, Every: 20 * time.Millisecond,
		Connections: &member.Connections{Reader: hub, Namespace: namespace, Keys: keys},
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- j.Start(ctx) }()
	defer func() {
		stop()
		close(over)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.Close()
	}()
	seen := map[string]bool{}
	patience := time.After(5 * time.Second) // half of what one look may take
	for len(seen) < providers {
		select {
		case name := <-asked:
			seen[name] = true
		case <-patience:
			t.Fatalf("%d of %d providers were asked while none of them answers", len(seen), providers)
		}
	}
}
