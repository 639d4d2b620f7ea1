package member_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

const namespace = "sluice"

// apiServer answers with the user of a token, and counts the requests for it.
type apiServer struct {
	*httptest.Server
	asked atomic.Int32
	// uid of its namespace kube-system; empty means "uid-1".
	uid atomic.Value
	// secrets by path.
	secrets sync.Map
}

// secret makes the server hold the kubeconfig of a cluster made for an instance: its own.
func (s *apiServer) secret(t *testing.T, instance, token string) {
	t.Helper()
	namespace, name := v1alpha1.MemberNamespace(instance), v1alpha1.InstanceClusterName(instance)+"-kubeconfig"
	body, err := json.Marshal(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string][]byte{"value": s.kubeconfig(t, token)},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.secrets.Store("/api/v1/namespaces/"+namespace+"/secrets/"+name, body)
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/kube-system" {
			w.Header().Set("Content-Type", "application/json")
			uid, ok := s.uid.Load().(string)
			if !ok {
				uid = "uid-1"
			}
			_, _ = w.Write([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"` + uid + `"}}`))
			return
		}
		if body, ok := s.secrets.Load(r.URL.Path); ok {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body.([]byte))
			return
		}
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authentication.k8s.io/v1/selfsubjectreviews" {
			t.Errorf("asked for %s %s", r.Method, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		if token == "expired" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
			return
		}
		s.asked.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"` + token + `"}}}`))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) kubeconfig(t *testing.T, token string) []byte {
	t.Helper()
	out, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "a",
		Contexts:       map[string]*clientcmdapi.Context{"a": {Cluster: "a", AuthInfo: "a"}},
		Clusters: map[string]*clientcmdapi.Cluster{"a": {
			Server:                   s.URL,
			CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"a": {Token: token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fixture reads a hub in memory: nothing here depends on an API server's behaviour.
type fixture struct {
	hub client.Client
	*member.Connections
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(s).Build()
	return &fixture{hub, &member.Connections{Reader: hub, Namespace: namespace, Keys: keys}}
}

func (f *fixture) sealed(t *testing.T, cluster string, kubeconfig []byte) v1alpha1.ClusterAccess {
	t.Helper()
	sealed, err := f.Keys.Seal(kubeconfig, member.Owner(namespace, cluster))
	if err != nil {
		t.Fatal(err)
	}
	return v1alpha1.ClusterAccess{SealedKubeconfig: sealed}
}

func (f *fixture) add(t *testing.T, name string, access v1alpha1.ClusterAccess) *v1alpha1.MemberCluster {
	t.Helper()
	cluster := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.MemberClusterSpec{Access: access},
	}
	if err := f.hub.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func (f *fixture) get(t *testing.T, cluster string) *member.Connection {
	t.Helper()
	connection, err := f.Get(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

func TestGetKeepsAConnectionUntilTheAccessChanges(t *testing.T) {
	f, server := newFixture(t), newAPIServer(t)
	cluster := f.add(t, "cluster-a", f.sealed(t, "cluster-a", server.kubeconfig(t, "first")))
	first := f.get(t, "cluster-a")
	if first.Username != "first" || first.Server != server.URL || first.ConsumerServer != server.URL {
		t.Errorf("connection is %s on %s for %s", first.Username, first.Server, first.ConsumerServer)
	}

	cluster.Spec.Region = "eu-1"
	if err := f.hub.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if f.get(t, "cluster-a") != first || server.asked.Load() != 1 {
		t.Errorf("another region opened another connection; the cluster was asked %d times", server.asked.Load())
	}

	cluster.Spec.Access = f.sealed(t, "cluster-a", server.kubeconfig(t, "second"))
	cluster.Spec.ConsumerServer = "https://public.example"
	if err := f.hub.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	second := f.get(t, "cluster-a")
	if second.Username != "second" || second.ConsumerServer != "https://public.example" {
		t.Errorf("after the change the connection is %s for %s", second.Username, second.ConsumerServer)
	}
	if err := f.hub.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(t.Context(), "cluster-a"); !member.IsUnknown(err) {
		t.Errorf("got %v, want the cluster unknown", err)
	}
}

// The UID recorded on the hub is decisive, also after a restart of Sluice. A connection that
// was opened to another cluster is not used, but opened anew.
func TestOpenRefusesAnotherClusterThanItWas(t *testing.T) {
	f, server := newFixture(t), newAPIServer(t)
	cluster := f.add(t, "cluster-a", f.sealed(t, "cluster-a", server.kubeconfig(t, "sluice")))
	cluster.Status.UID = "uid-1"
	if _, err := f.Open(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	f.Forget("cluster-a")
	server.uid.Store("uid-2")
	for range 2 {
		_, err := f.Open(t.Context(), cluster)
		if !member.IsStranger(err) || !strings.Contains(err.Error(), "uid-2") || !strings.Contains(err.Error(), "sluice cluster remove") {
			t.Fatalf("got %v, want it to say that it is another cluster, and what helps", err)
		}
	}
	server.uid.Store("uid-1")
	if _, err := f.Open(t.Context(), cluster); err != nil {
		t.Errorf("the right one is back: %v", err)
	}
}

// Credentials leave the memory with the cluster, including those of clusters that it has made.
func TestConnectionsToWhatIsGoneAreDropped(t *testing.T) {
	f, server := newFixture(t), newAPIServer(t)
	cluster := f.add(t, "management", f.sealed(t, "management", server.kubeconfig(t, "sluice")))
	made := func(instance string) *member.Connection {
		t.Helper()
		connection, err := f.OfInstance(t.Context(), "management", instance)
		if err != nil {
			t.Fatal(err)
		}
		return connection
	}
	first, second := v1alpha1.InstanceName("p", "first"), v1alpha1.InstanceName("p", "second")
	for _, instance := range []string{first, second} {
		server.secret(t, instance, "admin-of-"+instance)
		made(instance)
	}
	f.ForgetInstance("management", first)
	if before := server.asked.Load(); made(first) == nil || server.asked.Load() == before {
		t.Error("the connection to the cluster made for the first was kept")
	}
	if err := f.hub.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(t.Context(), "management"); !member.IsUnknown(err) {
		t.Fatal(err)
	}
	if open := f.Opened(); len(open) > 0 {
		t.Errorf("open are still %q", open)
	}
}

func TestGetReadsASecretAgainEveryTime(t *testing.T) {
	f, server := newFixture(t), newAPIServer(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "access"},
		Data:       map[string][]byte{"kubeconfig": server.kubeconfig(t, "first")},
	}
	if err := f.hub.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	f.add(t, "cluster-a", v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: "access"}})
	if got := f.get(t, "cluster-a").Username; got != "first" {
		t.Errorf("username is %q, want first", got)
	}
	secret.Data["kubeconfig"] = server.kubeconfig(t, "second")
	if err := f.hub.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if got := f.get(t, "cluster-a").Username; got != "second" {
		t.Errorf("username is %q, want second", got)
	}
}

func TestConcurrentGetsOpenOneConnection(t *testing.T) {
	f, server := newFixture(t), newAPIServer(t)
	f.add(t, "cluster-a", f.sealed(t, "cluster-a", server.kubeconfig(t, "sluice")))
	const callers = 32
	connections := make(chan *member.Connection, callers)
	for range callers {
		go func() {
			connection, err := f.Get(t.Context(), "cluster-a")
			if err != nil {
				t.Error(err)
			}
			connections <- connection
		}()
	}
	first := <-connections
	for range callers - 1 {
		if other := <-connections; other != first {
			t.Error("two callers got two connections")
		}
	}
}

func TestErrorsSayClusterStepAndRemedy(t *testing.T) {
	f, server := newFixture(t), newAPIServer(t)
	f.add(t, "sealed-for-another", f.sealed(t, "other", server.kubeconfig(t, "secret-token")))
	f.add(t, "without-secret", v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: "nowhere"}})
	f.add(t, "not-a-kubeconfig", f.sealed(t, "not-a-kubeconfig", []byte("secret-token")))
	f.add(t, "expired", f.sealed(t, "expired", server.kubeconfig(t, "expired")))
	for _, test := range []struct {
		cluster string
		step    member.Step
		remedy  string
	}{
		{"absent", member.StepFind, "sluice cluster add"},
		{"sealed-for-another", member.StepUnseal, "another hub's keys"},
		{"without-secret", member.StepReadSecret, "create it on the hub"},
		{"not-a-kubeconfig", member.StepKubeconfig, "self-contained"},
		{"expired", member.StepConnect, "not accepted"},
	} {
		t.Run(test.cluster, func(t *testing.T) {
			_, err := f.Get(t.Context(), test.cluster)
			var e *member.Error
			if !errors.As(err, &e) || e.Cluster != test.cluster || e.Step != test.step || !strings.Contains(e.Remedy, test.remedy) {
				t.Fatalf("got %v, want step %q with the remedy %q", err, test.step, test.remedy)
			}
			if strings.Contains(err.Error(), "secret-token") {
				t.Errorf("the error %q shows a credential", err)
			}
			if got, want := member.IsUnknown(err), test.step == member.StepFind; got != want {
				t.Errorf("IsUnknown is %v, want %v", got, want)
			}
		})
	}
}
