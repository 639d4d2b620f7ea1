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

// Picture is the state of the Provider and TrustedIssuer resources at one time: which DIDs the
// operator knows. It also has the broker itself, as the issuer of its measurements.
type Picture struct {
	// providers maps names of resources to DIDs, and names maps DIDs to names.
	providers, names map[string]string
	// broker is the broker's own DID.
	broker string
	// keys that the operator configured, by DID; for these DIDs nothing is fetched.
	keys map[string]*jose.JSONWebKeySet
	// hosts at which the other DIDs publish their keys.
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

// resources of the hub from which a picture is built.
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

// version is a checksum of the resources that changes when they do. It does not depend on their
// order.
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

// picture makes the picture. If two providers have the same DID, its presentations count for
// the one whose name comes first.
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

// know records where the keys of a DID are. Configured keys that cannot be parsed count as
// none.
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
// assurance that the operator configured, for the types that he configured. A provider, and the
// broker, may issue credentials about itself. Only the broker may issue measurements.
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
