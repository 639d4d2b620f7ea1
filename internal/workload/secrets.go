package workload

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Secrets are an instance's secrets by name.
type Secrets map[string]seal.Redacted

const (
	// usualLength is the length of a secret in characters, if its plan gives none.
	usualLength = 32
	// fingerprintKey is the name of the secret that fingerprints are made with; no plan can name it.
	fingerprintKey = "-fingerprint"
	// resultPrefix is the start of the names of what a bind hook returned; no plan can name them.
	resultPrefix = "-result-"
	alphabet     = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// Complete returns the secrets together with new ones for those that are named and not there yet,
// and reports whether there are any. Secrets that are no longer named stay: an older state may come
// back.
func (s Secrets) Complete(named []v1alpha1.WorkloadSecret) (complete Secrets, changed bool) {
	complete = maps.Clone(s)
	if complete == nil {
		complete = Secrets{}
	}
	add := func(name string, length int32) {
		if _, ok := complete[name]; !ok {
			complete[name], changed = seal.Redact(random(int(cmp.Or(length, usualLength)))), true
		}
	}
	add(fingerprintKey, 43) // 256 bits
	for _, one := range named {
		add(one.Name, one.Length)
	}
	return complete, changed
}

// WithResults returns the secrets of a binding together with what its bind hook returned, in place of
// what it returned before.
func (s Secrets) WithResults(results map[string]string) Secrets {
	complete := maps.Clone(s)
	maps.DeleteFunc(complete, func(name string, _ seal.Redacted) bool { return strings.HasPrefix(name, resultPrefix) })
	if complete == nil {
		complete = Secrets{}
	}
	for name, value := range results {
		complete[resultPrefix+name] = seal.Redact([]byte(value))
	}
	return complete
}

// random returns letters and digits, each as likely as the others.
func random(length int) []byte {
	text := make([]byte, 0, length)
	most := byte(len(alphabet) * (256 / len(alphabet))) // from here on, a remainder would prefer the first letters
	for block := make([]byte, 64); ; {
		_, _ = rand.Read(block) // never fails, by its documentation
		for _, b := range block {
			if b < most {
				text = append(text, alphabet[int(b)%len(alphabet)])
			}
			if len(text) == length {
				return text
			}
		}
	}
}

// fingerprint returns a digest of content that may be shown: without the secrets it cannot be used to
// test a guess.
func (s Secrets) fingerprint(content []byte) string {
	mac := hmac.New(sha256.New, s[fingerprintKey].Reveal())
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil)[:12])
}

func (s Secrets) revealed() map[string]string {
	revealed := make(map[string]string, len(s))
	for name, secret := range s {
		revealed[name] = string(secret.Reveal())
	}
	return revealed
}

// readSecrets decodes secrets that were unsealed.
func readSecrets(revealed []byte) (Secrets, error) {
	var all map[string]string
	if err := json.Unmarshal(revealed, &all); err != nil {
		return nil, errors.New("read secrets: this is not what was sealed") // the cause would quote them
	}
	secrets := make(Secrets, len(all))
	for name, secret := range all {
		secrets[name] = seal.Redact([]byte(secret))
	}
	return secrets, nil
}

// UnsealInstance returns the secrets of an instance; none if it has none.
func UnsealInstance(i *v1alpha1.ServiceInstance, keys *seal.Keyset) (Secrets, error) {
	return unseal(i.Status.SealedSecrets, keys, ownerOf("ServiceInstance", &i.ObjectMeta))
}

// UnsealBinding returns the secrets of a binding; none if it has none.
func UnsealBinding(b *v1alpha1.ServiceBinding, keys *seal.Keyset) (Secrets, error) {
	return unseal(b.Status.SealedSecrets, keys, ownerOf("ServiceBinding", &b.ObjectMeta))
}

func unseal(sealed []byte, keys *seal.Keyset, owner []byte) (Secrets, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	revealed, err := keys.Unseal(sealed, owner)
	if err != nil {
		return nil, fmt.Errorf("unseal the workload's secrets: %w", err)
	}
	return readSecrets(revealed.Reveal())
}

// SealInstance seals the secrets of an instance for its status.
func (s Secrets) SealInstance(i *v1alpha1.ServiceInstance, keys *seal.Keyset) ([]byte, error) {
	return s.seal(keys, ownerOf("ServiceInstance", &i.ObjectMeta))
}

// SealBinding seals the secrets of a binding for its status.
func (s Secrets) SealBinding(b *v1alpha1.ServiceBinding, keys *seal.Keyset) ([]byte, error) {
	return s.seal(keys, ownerOf("ServiceBinding", &b.ObjectMeta))
}

func (s Secrets) seal(keys *seal.Keyset, owner []byte) ([]byte, error) {
	revealed, err := json.Marshal(s.revealed())
	if err != nil {
		return nil, fmt.Errorf("write the workload's secrets: %w", err)
	}
	sealed, err := keys.Seal(revealed, owner)
	if err != nil {
		return nil, fmt.Errorf("seal the workload's secrets: %w", err)
	}
	return sealed, nil
}

// ownerOf returns the context to which sealed secrets are bound. Credentials have another kind of
// context, so that neither can be unsealed as the other.
func ownerOf(kind string, of *metav1.ObjectMeta) []byte {
	return seal.Owner(kind+" secrets", of.Namespace, of.Name, string(v1alpha1.UIDOf(of)))
}
