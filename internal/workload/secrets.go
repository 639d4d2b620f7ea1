package workload

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Secrets are an instance's secrets by name.
type Secrets map[string]seal.Redacted

const (
	leastLength = 16
	// fingerprintKey is the name of the secret that fingerprints are made with; no plan can name it.
	fingerprintKey = "-fingerprint"
	alphabet       = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// Complete returns the secrets together with new ones for those that a plan names and that are not
// there yet, and reports whether there are any. Secrets that no plan names any more stay: an older
// state may come back.
func (s Secrets) Complete(plan *v1alpha1.WorkloadPlan) (complete Secrets, changed bool) {
	complete = maps.Clone(s)
	if complete == nil {
		complete = Secrets{}
	}
	add := func(name string, length int32) {
		if _, ok := complete[name]; !ok {
			complete[name], changed = seal.Redact(random(max(int(length), leastLength))), true
		}
	}
	add(fingerprintKey, 43) // 256 bits
	for _, named := range plan.Secrets {
		add(named.Name, named.Length)
	}
	return complete, changed
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

// fingerprint returns a digest of content that may be shown: nobody without the secrets can test a
// guess with it.
func (s Secrets) fingerprint(content []byte) string {
	mac := hmac.New(sha256.New, s[fingerprintKey].Reveal())
	mac.Write(content)
	return hex.EncodeToString(mac.Sum(nil)[:12])
}

// Reveal returns the secrets as JSON. The caller must seal it at once.
func (s Secrets) Reveal() ([]byte, error) { return json.Marshal(s.revealed()) }

func (s Secrets) revealed() map[string]string {
	revealed := make(map[string]string, len(s))
	for name, secret := range s {
		revealed[name] = string(secret.Reveal())
	}
	return revealed
}

// ReadSecrets reads what Reveal returned; nothing means no secrets.
func ReadSecrets(revealed []byte) (Secrets, error) {
	if len(revealed) == 0 {
		return nil, nil
	}
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

// Unseal returns the secrets of an instance; none if it has none.
func Unseal(instance *v1alpha1.ServiceInstance, keys *seal.Keyset) (Secrets, error) {
	if len(instance.Status.SealedSecrets) == 0 {
		return nil, nil
	}
	owner := seal.Owner("ServiceInstance", instance.Namespace, instance.Name, string(instance.UID))
	revealed, err := keys.Unseal(instance.Status.SealedSecrets, owner)
	if err != nil {
		return nil, fmt.Errorf("unseal the secrets of instance %s: %w", instance.Name, err)
	}
	return ReadSecrets(revealed.Reveal())
}
