package controller

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/draft"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

const (
	namespace = "sluice"
	provider  = "did:web:provider.example"
	day       = 24 * time.Hour
)

var start = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// desk verifies a provider's credentials over time, without a running hub.
type desk struct {
	*testing.T
	clock  *clocktesting.FakePassiveClock
	hub    client.Client
	issuer *issuer
	Options
}

// issuer is a host that publishes a key, and those of imported documents, or does not answer.
type issuer struct {
	signer   *selfdescription.Signer
	imported []jose.JSONWebKey
	fails    error
}

func (i *issuer) Key(_ context.Context, id string) (*did.Key, error) {
	for _, key := range i.imported {
		if key.KeyID == id {
			return &did.Key{ID: id, JWK: key}, i.fails
		}
	}
	return &did.Key{ID: id, JWK: i.signer.Public()}, i.fails
}

var (
	unreachable = &did.UnreachableError{ID: provider, Err: errors.New("no route to host")}
	notListed   = &did.NotListedError{ID: provider + "#key"}
)

func newDesk(t *testing.T) *desk {
	t.Helper()
	key, err := selfdescription.GenerateKey("ES256", provider+"#key")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := selfdescription.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{signer.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	b := &desk{T: t, clock: clocktesting.NewFakePassiveClock(start), issuer: &issuer{signer: signer}}
	b.hub = fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1alpha1.SelfDescription{}, fieldConcerns, concerns).
		WithIndex(&v1alpha1.SelfDescription{}, trust.FieldSigned, trust.Signed).
		WithObjects(&v1alpha1.Provider{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "eins"},
			Spec:       v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: provider, Keys: &runtime.RawExtension{Raw: keys}}},
		}).Build()
	b.Options = Options{Namespace: namespace, Book: &trust.Book{}, Keys: b.issuer, Clock: b.clock}
	if err := b.Book.Refresh(t.Context(), b.hub, namespace); err != nil {
		t.Fatal(err)
	}
	return b
}

// draft returns the draft of a provider with clusters of these names, valid for 30 days.
func (b *desk) draft(clusters ...string) *draft.Draft {
	d := &draft.Draft{
		DID: provider, Base: "https://provider.example/sd", ValidDays: 30,
		Provider: draft.Organisation{Name: "Provider", LegalCountry: "DE", HeadquartersCountry: "DE",
			Registration: map[string]string{"vatID": "DE123456789"}, GaiaXTerms: draft.GaiaXTerms},
		Datacenters: []draft.Datacenter{{Name: "main", Country: "DE"}},
	}
	for _, name := range clusters {
		d.Clusters = append(d.Clusters, draft.Cluster{Name: name, Offering: "Kubernetes", Datacenter: "main", UID: name, KeyHash: keyHash,
			Terms: draft.Terms{URL: "https://provider.example/terms.pdf", SHA256: strings.Repeat("8a", 32)}})
	}
	return d
}

const keyHash = "sha256-n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="

// credentials returns those of a draft, presented and not verified yet.
func (b *desk) credentials(d *draft.Draft) (list []*v1alpha1.SelfDescription) {
	b.Helper()
	for _, named := range d.Documents(start) {
		compact, err := b.issuer.signer.Credential(named.Document)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, presented(compact))
	}
	return list
}

// presented returns a credential that was presented, and is not verified yet.
func presented(credential string) *v1alpha1.SelfDescription {
	return &v1alpha1.SelfDescription{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(credential)), Generation: 1},
		Spec:       v1alpha1.SelfDescriptionSpec{Credential: credential, Presenter: v1alpha1.Presenter{Provider: "eins"}},
	}
}

// look verifies a credential at a time after the start, with the given answer of the issuer.
func (b *desk) look(sd *v1alpha1.SelfDescription, after time.Duration, issuer error) time.Duration {
	b.Helper()
	b.clock.SetTime(start.Add(after))
	b.issuer.fails = issuer
	again, err := (&verification{Options: b.Options, hub: b.hub}).verify(b.Context(), sd)
	if err != nil {
		b.Fatal(err)
	}
	ready := meta.IsStatusConditionTrue(sd.Status.Conditions, v1alpha1.ConditionReady)
	if ready != (sd.Status.State == v1alpha1.CredentialVerified) {
		b.Errorf("after %s: ready is %t in state %s", after, ready, sd.Status.State)
	}
	return again
}

func TestACredentialIsVerifiedAgainAsTimeGoesBy(t *testing.T) {
	const (
		verified = v1alpha1.CredentialVerified
		pending  = v1alpha1.CredentialPending
		rejected = v1alpha1.CredentialRejected
		expired  = v1alpha1.CredentialExpired
		revoked  = v1alpha1.CredentialRevoked
	)
	type look struct {
		after  time.Duration
		issuer error
		revoke bool
		want   v1alpha1.CredentialState
		grace  bool // a cluster with grace may count on it
	}
	for name, looks := range map[string][]look{
		"it stands for a day while its issuer does not answer": {
			{want: verified, grace: true},
			{after: 2 * time.Hour, issuer: unreachable, want: verified, grace: true},
			{after: 25 * time.Hour, issuer: unreachable, want: pending},
			{after: 26 * time.Hour, want: verified, grace: true},
		},
		"it waits for an issuer that does not answer at first": {
			{issuer: unreachable, want: pending},
			{after: time.Minute, want: verified, grace: true},
		},
		"it falls with its key, and rises with it": {
			{want: verified, grace: true},
			{after: time.Hour, issuer: notListed, want: rejected},
			{after: 2 * time.Hour, want: verified, grace: true},
		},
		"it ends, with grace": {
			{want: verified, grace: true},
			{after: 30*day + selfdescription.DefaultSkew - time.Second, want: verified, grace: true},
			{after: 30*day + selfdescription.DefaultSkew, want: expired, grace: true},
			{after: 31 * day, issuer: unreachable, want: expired, grace: true}, // as after a restart
		},
		"it ends while its issuer does not answer": {
			{after: 30*day - time.Hour, want: verified, grace: true},
			{after: 30*day + time.Hour, issuer: unreachable, want: expired, grace: true},
		},
		"it gets no grace if it was withdrawn before": {
			{want: verified, grace: true},
			{after: time.Hour, revoke: true, want: revoked},
			{after: 31 * day, want: expired},
		},
		"it gets no grace if it was refused before": {
			{want: verified, grace: true},
			{after: time.Hour, issuer: notListed, want: rejected},
			{after: 31 * day, want: expired},
		},
		"it gets no grace if it never held": {
			{after: 31 * day, want: expired},
		},
		"it is not valid yet": {
			{after: -day, want: rejected},
			{after: 0, want: verified, grace: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDesk(t)
			sd := b.credentials(b.draft("fra"))[0]
			for _, l := range looks {
				sd.Spec.Revoked = l.revoke
				report, at := sd.Status.Report, sd.Status.VerifiedAt
				b.look(sd, l.after, l.issuer)
				if sd.Status.State != l.want {
					t.Fatalf("after %s it is %s: %v", l.after, sd.Status.State, sd.Status.Report)
				}
				if grace := counts(sd, start); grace != l.grace {
					t.Errorf("after %s, %s: it counts %t in grace", l.after, sd.Status.State, grace)
				}
				if l.issuer == unreachable && l.want == verified && (len(report) == 0 || &sd.Status.Report[0] != &report[0] || !sd.Status.VerifiedAt.Equal(at)) {
					t.Errorf("after %s the result that stands is not the one from before", l.after)
				}
			}
		})
	}
}

func TestACredentialIsLookedAtAgain(t *testing.T) {
	for name, row := range map[string]struct {
		first, after time.Duration // two looks
		issuer       error         // of the second
		want         time.Duration
	}{
		"every hour":                           {0, day, nil, lookAgain},
		"when it ends":                         {0, 30*day - time.Minute, nil, time.Minute + selfdescription.DefaultSkew + time.Second},
		"when it begins":                       {-2 * day, -day, nil, day},
		"soon, if its issuer does not answer":  {0, time.Minute, unreachable, retryUnreachable},
		"later, if he has not for a long time": {0, 20 * time.Hour, unreachable, lookAgain},
		"never, once it has ended":             {0, 31 * day, nil, 0},
		"never, once it was refused":           {0, time.Hour, notListed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDesk(t)
			sd := b.credentials(b.draft("fra"))[0]
			b.look(sd, row.first, nil)
			if got := b.look(sd, row.after, row.issuer); got != row.want {
				t.Errorf("want %s, got %s", row.want, got)
			}
		})
	}
}
