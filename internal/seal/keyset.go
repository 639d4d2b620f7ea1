package seal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/core/cryptofmt"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/sluice-dev/sluice/internal/secretfile"
)

var (
	// ErrUnknownKey is in the error of Unseal when the keyset lacks the key that the value was
	// sealed with: the keyset file is the wrong one, or a key was removed.
	ErrUnknownKey = errors.New("sealed with a key that is not in the keyset")
	// ErrNotAuthentic is in the error of Unseal when the value was altered,
	// truncated, or sealed for another owner.
	ErrNotAuthentic = errors.New("altered, or sealed for another owner")
	// ErrReadOnly is in the error of Open and Rotate when the keyset must be written but cannot
	// be, for instance in a mounted Secret.
	ErrReadOnly = errors.New("the keyset cannot be written here")
)

// Owner is the associated data that binds a sealed value to one resource for
// the life of that resource. None of the parts may contain "/"; names and UIDs
// in Kubernetes cannot.
func Owner(kind, namespace, name, uid string) []byte {
	return []byte(strings.Join([]string{kind, namespace, name, uid}, "/"))
}

// Keyset seals and unseals with the keys of a file. It follows changes of the file by any
// process. It is safe for concurrent use.
type Keyset struct {
	path string
	file *secretfile.File[*keys]
}

// keys is the content of the file.
type keys struct {
	handle *keyset.Handle
	aead   tink.AEAD
	marks  map[uint32][]byte // by id of the key that they are derived from
}

// Open reads the keyset at path. If there is no file, it makes a keyset of one key and stores
// it durably, with mode 0600, before it returns; several processes may do so at once and get
// the same keyset. If the file is missing and nothing can be written, as in a mounted Secret,
// the error is ErrReadOnly. A file that others than its owner may read is refused, unless it is
// a mounted Secret.
func Open(path string) (*Keyset, error) {
	k, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := create(path); err != nil {
		return nil, fmt.Errorf("open keyset %s: %w", path, err)
	}
	return Load(path)
}

// Load is Open for a keyset that must exist: if there is no file, the error is fs.ErrNotExist
// and nothing is made.
func Load(path string) (*Keyset, error) {
	file, err := secretfile.Open("the keyset file", path, parse)
	if err != nil {
		return nil, fmt.Errorf("open keyset %s: %w", path, err)
	}
	return &Keyset{path: path, file: file}, nil
}

// Seal encrypts plaintext with the primary key and binds it to associatedData,
// which must not be empty and is not stored in the result.
func (k *Keyset) Seal(plaintext, associatedData []byte) ([]byte, error) {
	if len(associatedData) == 0 {
		return nil, errors.New("seal: no owner to bind the value to")
	}
	sealed, err := k.current().aead.Encrypt(plaintext, associatedData)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return sealed, nil
}

// Unseal returns the plaintext of a value that was sealed with the same associatedData. Its
// errors contain ErrUnknownKey or ErrNotAuthentic and nothing of the value.
func (k *Keyset) Unseal(sealed, associatedData []byte) (Redacted, error) {
	current := k.current()
	id, ok := keyID(sealed)
	if !ok {
		return Redacted{}, fmt.Errorf("unseal: %w", ErrNotAuthentic)
	}
	if !current.has(id) {
		return Redacted{}, fmt.Errorf("unseal: key %d: %w", id, ErrUnknownKey)
	}
	plaintext, err := current.aead.Decrypt(sealed, associatedData)
	if err != nil {
		return Redacted{}, fmt.Errorf("unseal: %w", ErrNotAuthentic)
	}
	return Redact(plaintext), nil
}

// Has reports whether the keyset has the key that a value was sealed with. It does not check
// that the value is authentic.
func (k *Keyset) Has(sealed []byte) bool {
	id, ok := keyID(sealed)
	return ok && k.current().has(id)
}

// Rotate adds a new primary key to the file, durably, and keeps the old keys for unsealing.
// Rotations by several processes at once each add a key. In a mounted Secret the error is
// ErrReadOnly: change the Secret instead.
func (k *Keyset) Rotate() error {
	if err := rotate(k.path); err != nil {
		return fmt.Errorf("rotate keyset %s: %w", k.path, err)
	}
	return nil
}

// current returns the keys that are in the file now.
func (k *Keyset) current() *keys { return k.file.Current() }

func newKeys(handle *keyset.Handle) (*keys, error) {
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("use the keys: %w", err)
	}
	marks, err := markKeys(handle)
	if err != nil {
		return nil, fmt.Errorf("derive keys: %w", err)
	}
	return &keys{handle: handle, aead: primitive, marks: marks}, nil
}

// has reports whether the set contains an enabled key of this id.
func (k *keys) has(id uint32) bool {
	for _, key := range k.handle.KeysetInfo().GetKeyInfo() {
		if key.GetKeyId() == id && key.GetStatus() == tinkpb.KeyStatusType_ENABLED {
			return true
		}
	}
	return false
}

// keyID reads the id from Tink's output prefix.
func keyID(sealed []byte) (uint32, bool) {
	if len(sealed) < cryptofmt.TinkPrefixSize || sealed[0] != cryptofmt.TinkStartByte {
		return 0, false
	}
	return binary.BigEndian.Uint32(sealed[1:cryptofmt.TinkPrefixSize]), true
}
