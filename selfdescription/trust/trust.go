package trust

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/go-jose/go-jose/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

// Picture is the state of the Provider, Consumer and TrustedIssuer resources at one time: which DIDs
// the operator knows. It also has the broker itself, as the issuer of its measurements.
type Picture struct {
	// dids maps presenters to DIDs, and presenters maps DIDs to presenters.
	dids       map[v1alpha1.Presenter]string
	presenters map[string]v1alpha1.Presenter
	// broker is the broker's own DID.
	broker string
	// keys that the operator configured, by DID; for these DIDs nothing is fetched.
	keys map[string]*jose.JSONWebKeySet
	// keyHosts are the hosts at which the other DIDs publish their keys, listHosts those at which any known DID may publish
	// status lists.
	keyHosts, listHosts map[string]bool
	// issuers' assurance, by DID and type of credential.
	issuers map[string]map[string]selfdescription.Assurance
}

func blank() *Picture {
	return &Picture{
		dids: map[v1alpha1.Presenter]string{}, presenters: map[string]v1alpha1.Presenter{},
		keys: map[string]*jose.JSONWebKeySet{}, keyHosts: map[string]bool{}, listHosts: map[string]bool{},
		issuers: map[string]map[string]selfdescription.Assurance{},
	}
}

// resources of the hub from which a picture is built.
type resources struct {
	providers []v1alpha1.Provider
	consumers []v1alpha1.Consumer
	issuers   []v1alpha1.TrustedIssuer
	broker    []v1alpha1.Identity
}

func read(ctx context.Context, hub client.Reader, namespace string) (*resources, error) {
	var providers v1alpha1.ProviderList
	if err := hub.List(ctx, &providers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	var consumers v1alpha1.ConsumerList
	if err := hub.List(ctx, &consumers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	var issuers v1alpha1.TrustedIssuerList
	if err := hub.List(ctx, &issuers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list trusted issuers: %w", err)
	}
	var broker v1alpha1.IdentityList
	if err := hub.List(ctx, &broker, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read the broker's identity: %w", err)
	}
	return &resources{providers.Items, consumers.Items, issuers.Items, broker.Items}, nil
}

// version is a checksum of the resources that changes when they do. It does not depend on their
// order.
func (r *resources) version() (sum uint64) {
	add := func(o metav1.Object) {
		sum += maphash.String(seed, string(o.GetUID())+o.GetResourceVersion())
	}
	for i := range r.providers {
		add(&r.providers[i])
	}
	for i := range r.consumers {
		add(&r.consumers[i])
	}
	for i := range r.issuers {
		add(&r.issuers[i])
	}
	for i := range r.broker {
		add(&r.broker[i])
	}
	return sum
}

var seed = maphash.MakeSeed()

// picture makes the picture. If two providers have the same DID, its presentations count for
// the one whose name comes first; if a consumer has it too, for the provider.
func (r *resources) picture() *Picture {
	t := blank()
	add := func(who v1alpha1.Presenter, is *v1alpha1.Identified) {
		t.dids[who] = is.DID
		other, known := t.presenters[is.DID]
		if !known || cmp.Or(strings.Compare(who.Consumer, other.Consumer), strings.Compare(who.Provider, other.Provider)) < 0 {
			t.presenters[is.DID] = who
		}
		t.know(is)
	}
	for i := range r.consumers {
		add(v1alpha1.Presenter{Consumer: r.consumers[i].Name}, &r.consumers[i].Spec.Identified)
	}
	for i := range r.providers {
		add(v1alpha1.Presenter{Provider: r.providers[i].Name}, &r.providers[i].Spec.Identified)
	}
	for i := range r.issuers {
		issuer := &r.issuers[i].Spec
		t.know(&issuer.Identified)
		for _, kind := range issuer.Types {
			t.grant(issuer.DID, kind, selfdescription.Assurance(issuer.Assurance))
		}
	}
	for i := range r.broker {
		if r.broker[i].Name == v1alpha1.IdentityName {
			t.knowBroker(&r.broker[i].Spec)
		}
	}
	return t
}

// know records where the keys and the status lists of a DID are. Configured keys that cannot be parsed count as
// none.
func (t *Picture) know(who *v1alpha1.Identified) {
	host, err := did.WebHost(who.DID)
	if err == nil {
		t.listHosts[host] = true
	}
	if who.Keys != nil {
		set := &jose.JSONWebKeySet{}
		if err := json.Unmarshal(who.Keys.Raw, set); err != nil {
			set = &jose.JSONWebKeySet{}
		}
		t.keys[who.DID] = set
		return
	}
	if err == nil {
		t.keyHosts[host] = true
	}
}

// knowBroker adds the broker's own keys and makes it an issuer, if it has a DID.
func (t *Picture) knowBroker(identity *v1alpha1.IdentitySpec) {
	if identity.DID == "" {
		return
	}
	set := &jose.JSONWebKeySet{}
	for i := range identity.Keys {
		key := jose.JSONWebKey{}
		if json.Unmarshal(identity.Keys[i].Public.Raw, &key) == nil {
			set.Keys = append(set.Keys, key)
		}
	}
	t.broker, t.keys[identity.DID] = identity.DID, set
	t.grant(identity.DID, selfdescription.TypeClusterMeasurement, selfdescription.Measured)
}

func (t *Picture) grant(issuer, kind string, assurance selfdescription.Assurance) {
	if t.issuers[issuer] == nil {
		t.issuers[issuer] = map[string]selfdescription.Assurance{}
	}
	t.issuers[issuer][kind] = assurance
}

// Issuers returns the assurance of an issuer for a type of credential. A trusted issuer has the
// assurance that the operator configured, for the types that he configured. A provider, a consumer,
// and the broker, may issue credentials about itself. Only the broker may issue measurements.
func (t *Picture) Issuers(issuer, kind string) (selfdescription.Assurance, bool) {
	if assurance, ok := t.issuers[issuer][kind]; ok {
		return assurance, true
	}
	if _, known := t.PresenterOf(issuer); !known && (issuer == "" || issuer != t.broker) {
		return "", false
	}
	return selfdescription.Self, kind != selfdescription.TypeClusterMeasurement
}

// DID returns the DID of a provider or a consumer.
func (t *Picture) DID(of v1alpha1.Presenter) (did string, ok bool) {
	did, ok = t.dids[of]
	return did, ok
}

// PresenterOf returns the provider or the consumer with a DID.
func (t *Picture) PresenterOf(did string) (of v1alpha1.Presenter, ok bool) {
	of, ok = t.presenters[did]
	return of, ok
}
