// Package identity reads and makes the keys of the broker that the hub keeps, sealed, in the one Identity.
//
// This package must not know what the keys sign.
package identity

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// ErrNoKey reports that the broker has no key. A broker that has just started makes one within moments.
var ErrNoKey = errors.New("the broker has no key yet; `sluice serve` makes one when it starts")

// owner binds private keys to the Identity that they are stored in.
func owner(id *v1alpha1.Identity) []byte {
	return seal.Owner("Identity", id.Namespace, id.Name, string(v1alpha1.UIDOf(id)))
}

// Seal returns a private key as the Identity stores it.
func Seal(id *v1alpha1.Identity, key jose.JSONWebKey, keys *seal.Keyset) ([]byte, error) {
	secret, err := json.Marshal(key)
	if err != nil {
		return nil, fmt.Errorf("write the broker's key: %w", err)
	}
	sealed, err := keys.Seal(secret, owner(id))
	if err != nil {
		return nil, fmt.Errorf("seal the broker's key: %w", err)
	}
	return sealed, nil
}

// SigningKey returns the private key that signs: the newest. The error is ErrNoKey if there is none.
func SigningKey(id *v1alpha1.Identity, keys *seal.Keyset) (key jose.JSONWebKey, err error) {
	if len(id.Spec.Keys) == 0 {
		return key, ErrNoKey
	}
	secret, err := keys.Unseal(id.Spec.Keys[0].SealedPrivate, owner(id))
	if err != nil {
		return key, fmt.Errorf("unseal the broker's key: %w", err)
	}
	if err := json.Unmarshal(secret.Reveal(), &key); err != nil {
		return key, errors.New("read the broker's key: it is not a JSON Web Key") // without the cause, which may quote the key
	}
	return key, nil
}

// PublicKeys returns all published keys, the newest first.
func PublicKeys(id *v1alpha1.Identity) (all []jose.JSONWebKey, err error) {
	for _, k := range id.Spec.Keys {
		key := jose.JSONWebKey{}
		if err := json.Unmarshal(k.Public.Raw, &key); err != nil {
			return nil, fmt.Errorf("read the broker's public key %s: %w", k.ID, err)
		}
		all = append(all, key)
	}
	return all, nil
}
