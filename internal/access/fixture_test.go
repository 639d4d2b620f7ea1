package access

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/identity"
	"github.com/sluice-dev/sluice/internal/identity/identitytest"
	"github.com/sluice-dev/sluice/internal/seal"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

const broker = "did:web:broker.example"

// roster is a list of callers' credentials; a name without a role is a platform's.
type roster map[string][][sha256.Size]byte

func (r roster) CredentialsOf(caller Caller) [][sha256.Size]byte {
	return r[strings.TrimPrefix(caller.String(), "platform:")]
}

var (
	first  = sha256.Sum256([]byte("first password"))
	second = sha256.Sum256([]byte("second password"))
)

// world is a hub with an Identity, and tokens on it.
type world struct {
	*testing.T
	client.Client
	*Tokens
	clock     *clocktesting.FakePassiveClock
	platforms roster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)), platforms: roster{"cf": {first, second}, "other": {sha256.Sum256([]byte("x"))}}}
	var err error
	w.Client, err = client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	must(t, err)
	keys, err := seal.Open(t.TempDir() + "/keyset.json")
	must(t, err)
	w.Tokens = &Tokens{Hub: w.Client, Live: w.Client, Writer: w.Client, Namespace: hubtest.Namespace(t), Seal: keys, Platforms: w.platforms, Clock: w.clock}
	w.rotate("first")
	return w
}

// stored returns the Identity.
func (w *world) stored() *v1alpha1.Identity {
	w.Helper()
	id, err := w.identity(w.Context(), w.Client)
	must(w.T, err)
	return id
}

// rotate makes a new key sign, beside those that there are.
func (w *world) rotate(name string) {
	w.Helper()
	identitytest.Rotate(w.T, w.Client, w.Namespace, w.Seal, broker, name)
}

// retire removes a key.
func (w *world) retire(name string) {
	w.Helper()
	id := w.stored()
	id.Spec.Keys = slices.DeleteFunc(id.Spec.Keys, func(k v1alpha1.IdentityKey) bool { return k.ID == name })
	must(w.T, w.Update(w.Context(), id))
}

// provider registers a provider.
func (w *world) provider(name string) *v1alpha1.Provider {
	w.Helper()
	p := &v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: "did:web:" + name + ".example"}}}
	must(w.T, w.Create(w.Context(), p))
	return p
}

// issued returns a token for an hour.
func (w *world) issued(caller Caller) string {
	w.Helper()
	token, err := w.Issue(w.Context(), caller, time.Hour)
	must(w.T, err)
	return token
}

// signingKey returns the broker's private key.
func (w *world) signingKey() jose.JSONWebKey {
	w.Helper()
	key, err := identity.SigningKey(w.stored(), w.Seal)
	must(w.T, err)
	return key
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
