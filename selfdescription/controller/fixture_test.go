package controller_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/controller"
	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/draft"
	"github.com/sluice-dev/sluice/selfdescription/server"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	hubtest.Main(m)
}

const (
	broker  = "did:web:broker.example"
	uid     = "4fb5f5b1-6a4c-4a39-8e2a-9a4f9f6a0e10"
	keyHash = "sha256-n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="
)

// world is a hub with running controllers, and the server in front.
type world struct {
	*testing.T
	client.Client
	namespace string
	server    *httptest.Server
	options   server.Options // of the server
	probes    *controller.Probes
	cached    client.Reader // as controllers and server see the hub
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, nil)
}

// newWorldOf is the world of a broker whose organisation describes itself.
func newWorldOf(t *testing.T, organisation *draft.Draft) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	hub := hubtest.Start(t)
	w := &world{T: t, namespace: hubtest.Namespace(t), probes: &controller.Probes{Window: time.Minute}}
	var err error
	w.Client, err = client.New(hub.Config, client.Options{Scheme: scheme})
	must(t, err)
	keys, err := seal.Open(t.TempDir() + "/keyset.json")
	must(t, err)
	skip := true // names of controllers are global, and tests make several
	mgr, err := ctrl.NewManager(hub.Config, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	must(t, err)
	book := &trust.Book{}
	resolver := &did.Resolver{Keys: book.Keys, Hosts: book.Hosts}
	must(t, controller.SetupWithManager(mgr, controller.Options{
		Namespace: w.namespace, Book: book, Keys: resolver, DID: broker, Seal: keys, Organisation: organisation,
		Measure: controller.Measure{Probes: w.probes, Every: time.Second, Vantage: "test"},
	}))
	w.options = server.Options{
		Hub: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: w.namespace, DID: broker, Seal: keys, Book: book, Keys: resolver, Clock: clock.RealClock{},
	}
	w.server, w.cached = w.replica(), mgr.GetClient()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not sync")
	}
	return w
}

// replica is another server on the same hub.
func (w *world) replica() *httptest.Server {
	s := httptest.NewServer(server.New(w.options, http.NotFoundHandler()))
	w.Cleanup(s.Close)
	return s
}

// party signs.
type party struct {
	did    string
	signer *selfdescription.Signer
}

func newParty(t *testing.T, name string) party {
	t.Helper()
	return newPartyOf(t, name, "EdDSA")
}

// newPartyOf returns a party that signs with an algorithm.
func newPartyOf(t *testing.T, name, algorithm string) party {
	t.Helper()
	id := "did:web:" + name + ".example"
	key, err := selfdescription.GenerateKey(algorithm, id+"#key-1")
	must(t, err)
	signer, err := selfdescription.NewSigner(key)
	must(t, err)
	return party{id, signer}
}

// identified returns the party with its keys, as an operator configures it.
func (p party) identified(t *testing.T) v1alpha1.Identified {
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.signer.Public()}})
	must(t, err)
	return v1alpha1.Identified{DID: p.did, Keys: &runtime.RawExtension{Raw: raw}}
}

// provider registers a party as a provider, and waits until the server knows it.
func (w *world) provider(name string, p party) {
	w.Helper()
	provider := &v1alpha1.Provider{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.ProviderSpec{Identified: p.identified(w.T)},
	}
	must(w.T, w.Create(w.Context(), provider))
	w.eventually("provider "+name+" is in the cache", func() string {
		if err := w.cached.Get(w.Context(), client.ObjectKeyFromObject(provider), &v1alpha1.Provider{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// cluster is a member cluster of a provider that has to prove an offering, in the state that
// the cluster controller writes.
func (w *world) cluster(name, provider, offering string) {
	w.Helper()
	w.clusterOf(name, provider, offering, uid)
}

// clusterOf is cluster with the UID of another one.
func (w *world) clusterOf(name, provider, offering, uid string) {
	w.Helper()
	cluster := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.MemberClusterSpec{
			Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Provider: provider,
			Trust: &v1alpha1.TrustRequirements{Offering: offering},
		},
	}
	must(w.T, w.Create(w.Context(), cluster))
	cluster.Status.UID, cluster.Status.KeyHash = uid, keyHash
	w.eventually("the cluster is seen", func() string {
		err := w.Status().Update(w.Context(), cluster)
		if err != nil {
			_ = w.Get(w.Context(), client.ObjectKeyFromObject(cluster), cluster)
			cluster.Status.UID, cluster.Status.KeyHash = uid, keyHash
			return err.Error()
		}
		return ""
	})
}

// draftOf returns the draft of a provider with one cluster.
func draftOf(p party, country string) *draft.Draft {
	base := "https://" + strings.TrimPrefix(p.did, "did:web:") + "/sd"
	return &draft.Draft{
		DID: p.did, Base: base, ValidDays: 90,
		Provider: draft.Organisation{Name: "Provider", LegalCountry: country, HeadquartersCountry: country,
			Registration: map[string]string{"vatID": country + "123456789"}, GaiaXTerms: draft.GaiaXTerms},
		Datacenters: []draft.Datacenter{{Name: "main", Country: country}},
		Clusters: []draft.Cluster{{Name: "c", Offering: "Kubernetes", Datacenter: "main", UID: uid, KeyHash: keyHash,
			Terms: draft.Terms{URL: base + "/terms.pdf", SHA256: strings.Repeat("8a", 32)}}},
	}
}

// sign signs everything that a draft says.
func (w *world) sign(p party, d *draft.Draft) (compact []string) {
	w.Helper()
	for _, named := range d.Documents(time.Now()) {
		token, err := p.signer.Credential(named.Document)
		must(w.T, err)
		compact = append(compact, token)
	}
	return compact
}

// certify issues a certification of credentials in the name of a party.
func (w *world) certify(by party, standard string, about ...string) string {
	w.Helper()
	a := draft.Attestation{Type: selfdescription.TypeCertification, ID: "https://certifier.example/1", Standard: standard,
		ValidFrom: time.Now(), ValidUntil: time.Now().Add(time.Hour)}
	for _, compact := range about {
		c, err := selfdescription.Parse(compact)
		must(w.T, err)
		if c.Type == selfdescription.TypeComputeServiceOffering || c.Type == selfdescription.TypeDatacenter {
			a.About = append(a.About, c)
		}
	}
	document, err := a.Document()
	must(w.T, err)
	token, err := by.signer.Credential(document)
	must(w.T, err)
	return token
}

// post sends a body, and decodes the answer. If it calls too often, it waits and repeats.
func (w *world) post(path, contentType, body string, answer any) (status int) {
	w.Helper()
	w.eventually("POST "+path+" is answered", func() string {
		response, err := http.Post(w.server.URL+path, contentType, strings.NewReader(body))
		must(w.T, err)
		defer response.Body.Close()
		if status = response.StatusCode; status == http.StatusTooManyRequests {
			return "too many requests"
		}
		if answer != nil {
			must(w.T, json.NewDecoder(response.Body).Decode(answer))
		}
		return ""
	})
	return status
}

// nonce requests a nonce.
func (w *world) nonce(operation selfdescription.Operation) string {
	w.Helper()
	var challenge struct{ Nonce, Operation string }
	status := w.post("/selfdescriptions/challenges?operation="+string(operation), "", "", &challenge)
	if status != http.StatusCreated || challenge.Operation != string(operation) {
		w.Fatalf("challenge: status %d for %s", status, challenge.Operation)
	}
	return challenge.Nonce
}

// operationOf returns the operation of a path.
func operationOf(path string) selfdescription.Operation {
	switch {
	case strings.HasSuffix(path, "/verify"):
		return selfdescription.OperationVerify
	case strings.HasSuffix(path, "/revoke"):
		return selfdescription.OperationRevoke
	}
	return selfdescription.OperationPresent
}

// presentation returns one of credentials for the broker and a path.
func (w *world) presentation(p party, path string, credentials ...string) string {
	w.Helper()
	operation := operationOf(path)
	token, err := p.signer.Presentation(credentials, selfdescription.Expect{Audience: broker, Nonce: w.nonce(operation), Operation: operation}, time.Now())
	must(w.T, err)
	return token
}

// answer is the server's answer to a presentation.
type answer struct {
	Description string
	Credentials []struct{ Digest, Type, State string }
}

// present signs credentials for the broker, and sends them.
func (w *world) present(p party, path string, credentials ...string) (answer, int) {
	w.Helper()
	var a answer
	status := w.post(path, selfdescription.MediaTypePresentation, w.presentation(p, path, credentials...), &a)
	return a, status
}

// admitted waits until a cluster's condition Admitted has a reason, and returns it.
func (w *world) admitted(cluster, reason string) (message string, claims []v1alpha1.Claim) {
	w.Helper()
	w.eventually("cluster "+cluster+" is admitted: "+reason, func() string {
		mc := &v1alpha1.MemberCluster{}
		must(w.T, w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: cluster}, mc))
		c := meta.FindStatusCondition(mc.Status.Conditions, v1alpha1.ConditionAdmitted)
		if c == nil {
			return "no condition"
		}
		message, claims = c.Message, mc.Status.Claims
		if c.Reason != reason {
			return c.Reason + ": " + c.Message
		}
		return ""
	})
	return message, claims
}

func (w *world) eventually(what string, missing func() string) {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		still := missing()
		if still == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: not yet: %s", what, still)
		}
		select {
		case <-w.Context().Done():
			w.Fatal(w.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
