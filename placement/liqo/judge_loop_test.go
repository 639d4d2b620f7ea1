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
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

const namespace = "sluice"

// emptyHub is a hub without resources.
func emptyHub(t *testing.T) (client.WithWatch, *member.Connections) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).Build()
	return hub, &member.Connections{Reader: hub, Namespace: namespace, Keys: keys}
}

// clusterAt is a member cluster at a path of a server, which is its name.
func clusterAt(t *testing.T, connections *member.Connections, name string, server *httptest.Server) *v1alpha1.MemberCluster {
	t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"%s/%s","certificate-authority-data":"%s"}}],"users":[{"name":"u","user":{"token":"t"}}]}`,
		server.URL, name, base64.StdEncoding.EncodeToString(authority))
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	var err error
	if cluster.Spec.Access.SealedKubeconfig, err = connections.Keys.Seal([]byte(kubeconfig), member.Owner(namespace, name)); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// The other cluster of the peering, to which an instance is delivered, keeps its places.
func TestAClusterThatIsKnownNotToAnswerIsAskedNothing(t *testing.T) {
	var asked atomic.Bool
	over := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Store(true)
		<-over
	}))
	defer server.Close()
	defer close(over)
	hub, connections := emptyHub(t)
	cluster := clusterAt(t, connections, "own", server)
	v1alpha1.SetCondition(&cluster.Status.Conditions, 1, v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no route to host")
	if err := hub.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	places := &member.Places{Most: 2, Wake: func(string) {}}
	leave, err := places.Enter("eu", "si-1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = open(ctx, connections, "hub", "own")
	if err == nil || asked.Load() || member.IsUnknown(err) || err.Error() != "own does not answer: no route to host" {
		t.Errorf("%v; it was asked: %v", err, asked.Load())
	}
	leave(err)
	for _, instance := range []string{"si-1", "si-2"} {
		if _, err := places.Enter("eu", instance); err != nil {
			t.Error(err)
		}
	}

	// Its owner has set up the peering, and has to end it there.
	cluster.Spec.Liqo = &v1alpha1.LiqoCluster{Joined: &v1alpha1.JoinedPeering{}}
	if err := hub.Update(ctx, cluster); err != nil {
		t.Fatal(err)
	}
	r := &Peerings{Connections: connections, Hub: "hub"}
	if s, err := r.reopen(ctx, "own", &v1alpha1.LiqoNetwork{}, &v1alpha1.LiqoNetwork{}); s != nil || err != nil || asked.Load() {
		t.Errorf("the end of a peering waits for a joined cluster: %v", err)
	}
}

func TestProvidersThatDoNotAnswerKeepNoOtherOneWaiting(t *testing.T) {
	const providers = 20
	asked, over := make(chan string, 1000), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- strings.Split(r.URL.Path, "/")[1]
		<-over
	}))

	hub, connections := emptyHub(t)
	for i := range providers {
		name := fmt.Sprintf("provider-%d", i)
		cluster := clusterAt(t, connections, name, server)
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
		Client: hub, Live: hub, Namespace: namespace, Every: 20 * time.Millisecond, Connections: connections,
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
	patience := time.After(5 * time.Second) // a third of what one request may take
	for len(seen) < providers {
		select {
		case name := <-asked:
			seen[name] = true
		case <-patience:
			t.Fatalf("%d of %d providers were asked while none of them answers", len(seen), providers)
		}
	}
}

// A look at many namespaces of a cluster that is far away takes long, and has to come to the last of them.
func TestALookIsNotBoundedInTime(t *testing.T) {
	hub, connections := emptyHub(t)
	looks := 0
	connections.Reader = interceptor.NewClient(hub, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			looks++
			if end, is := ctx.Deadline(); is {
				t.Errorf("it ends in %s", time.Until(end))
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	peering := &v1alpha1.Peering{
		Spec:   v1alpha1.PeeringSpec{Consumer: "own", Provider: "eu", Modules: []v1alpha1.LiqoModule{v1alpha1.ModuleAuthentication}},
		Status: v1alpha1.PeeringStatus{Consumer: &v1alpha1.LiqoNetwork{ClusterID: "own"}, Provider: &v1alpha1.LiqoNetwork{ClusterID: "eu"}},
	}
	j := &Judge{Client: hub, Live: hub, Namespace: namespace, Connections: connections}
	if err := j.look(t.Context(), peering, j.agreed()); !member.IsUnknown(err) || looks != 1 {
		t.Errorf("%v after %d looks", err, looks)
	}
}
