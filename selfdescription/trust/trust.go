package trust

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"

	"github.com/go-jose/go-jose/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

// Picture is whom the operator knows: a picture of the Provider and TrustedIssuer
// resources at one time. The broker itself is known for its measurements.
type Picture struct {
	// providers' DIDs, by the names of their resources, and the other way round.
	providers, names map[string]string
	// broker is the broker's own DID.
	broker string
	// keys that the operator configured, by DID; nothing is fetched in their place.
	keys map[string]*jose.JSONWebKeySet
	// hosts at which the others publish theirs.
	hosts map[string]bool
	// issuers' assurance, by DID and type of credential.
	issuers map[string]map[string]selfdescription.Assurance
}

func blank() *Picture {
	return &Picture{
		providers: map[string]string{}, names: map[string]string{}, keys: map[string]*jose.JSONWebKeySet{}, hosts: map[string]bool{},
		issuers: map[string]map[string]selfdescription.Assurance{},
	}
}

// resources are what a picture is taken of.
type resources struct {
	providers []v1alpha1.Provider
	issuers   []v1alpha1.TrustedIssuer
	broker    []v1alpha1.Identity
}

func read(ctx context.Context, hub client.Reader, namespace string) (*resources, error) {
	var providers v1alpha1.ProviderList
	if err := hub.List(ctx, &providers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	var issuers v1alpha1.TrustedIssuerList
	if err := hub.List(ctx, &issuers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list trusted issuers: %w", err)
	}
	var broker v1alpha1.IdentityList
	if err := hub.List(ctx, &broker, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read the broker's identity: %w", err)
	}
	return &resources{providers.Items, issuers.Items, broker.Items}, nil
}

// version tells two states of the resources apart. It does not depend on their order.
func (r *resources) version() (sum uint64) {
	add := func(o metav1.Object) {
		sum += maphash.String(seed, string(o.GetUID())+o.GetResourceVersion())
	}
	for i := range r.providers {
		add(&r.providers[i])
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

// picture of the resources. Of two providers with one DID, what its holder presents
// is of the one whose name comes first.
func (r *resources) picture() *Picture {
	t := blank()
	for i := range r.providers {
		p := &r.providers[i]
		t.providers[p.Name] = p.Spec.DID
		if other, ok := t.names[p.Spec.DID]; !ok || p.Name < other {
			t.names[p.Spec.DID] = p.Name
		}
		t.know(&p.Spec.Identified)
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

// know notes where somebody's keys are. Configured ones that cannot be read are none.
func (t *Picture) know(who *v1alpha1.Identified) {
	if who.Keys != nil {
		set := &jose.JSONWebKeySet{}
		if err := json.Unmarshal(who.Keys.Raw, set); err != nil {
			set = &jose.JSONWebKeySet{}
		}
		t.keys[who.DID] = set
		return
	}
	if host, err := did.WebHost(who.DID); err == nil {
		t.hosts[host] = true
	}
}

// knowBroker makes the broker's own keys and word count.
func (t *Picture) knowBroker(identity *v1alpha1.IdentitySpec) {
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

// Issuers says what the word of an issuer counts for: that of a trusted issuer what
// the operator said, of the types he said; that of a provider, or of the broker, for
// itself. A measurement is the broker's alone.
func (t *Picture) Issuers(issuer, kind string) (selfdescription.Assurance, bool) {
	if assurance, ok := t.issuers[issuer][kind]; ok {
		return assurance, true
	}
	if _, known := t.ProviderOf(issuer); !known && (issuer == "" || issuer != t.broker) {
		return "", false
	}
	return selfdescription.Self, kind != selfdescription.TypeClusterMeasurement
}

// Provider returns the DID of a Provider resource.
func (t *Picture) Provider(name string) (did string, ok bool) {
	did, ok = t.providers[name]
	return did, ok
}

// ProviderOf returns the name of the Provider resource with a DID.
func (t *Picture) ProviderOf(did string) (name string, ok bool) {
	name, ok = t.names[did]
	return name, ok
}
