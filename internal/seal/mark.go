package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
)

// markBytes is the length of a mark; HMAC-SHA256 may be cut to half (RFC 2104, section 5).
const markBytes = 16

// Mark returns a mark of a text. Only somebody who has the keyset can make it. The same text
// gets the same mark until the keyset is rotated.
func (k *Keyset) Mark(text []byte) []byte {
	current := k.current()
	return mark(current.marks[current.handle.KeysetInfo().GetPrimaryKeyId()], text)
}

// Marked reports whether with is the mark of a text, by any key of the set.
func (k *Keyset) Marked(text, with []byte) bool {
	for _, key := range k.current().marks {
		if hmac.Equal(mark(key, text), with) {
			return true
		}
	}
	return false
}

func mark(key, text []byte) []byte {
	sum := hmac.New(sha256.New, key)
	sum.Write(text)
	return sum.Sum(nil)[:markBytes]
}

// markKeys derives a key for marks from each key of the set (RFC 5869), so that each key has
// only one use.
func markKeys(handle *keyset.Handle) (map[uint32][]byte, error) {
	derived := map[uint32][]byte{}
	for _, key := range insecurecleartextkeyset.KeysetMaterial(handle).GetKey() {
		if key.GetStatus() != tinkpb.KeyStatusType_ENABLED {
			continue
		}
		secret, err := hkdf.Key(sha256.New, key.GetKeyData().GetValue(), nil, "sluice mark", sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("derive from key %d: %w", key.GetKeyId(), err)
		}
		derived[key.GetKeyId()] = secret
	}
	return derived, nil
}
