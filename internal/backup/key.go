package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"filippo.io/age"

	"github.com/sluice-dev/sluice/internal/secretfile"
)

// secretPrefix begins each line of a key file that has a secret key, by age's convention.
var secretPrefix = []byte("AGE-SECRET-KEY-")

// NewKey makes a key and stores it in a new file, with mode 0600, in the format of age-keygen. It returns the public
// key. If the file exists, the error is fs.ErrExist.
func NewKey(path string) (public string, err error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	public = identity.Recipient().String()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("store the key: %w", err)
	}
	_, err = fmt.Fprintf(file, "# public key: %s\n%s\n", public, identity)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return "", fmt.Errorf("store the key: %w", err)
	}
	return public, nil
}

// Recipients reads from a key file for whom a backup is sealed. The public key is enough; a file with a
// secret key works as well, if nobody but its owner may read it.
func Recipients(path string) ([]age.Recipient, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no key for backups in %s: `sluice hub key %[1]s` makes one", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key for backups: %w", err)
	}
	if !bytes.Contains(content, secretPrefix) {
		recipients, err := age.ParseRecipients(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("the key for backups in %s: want a public key of age, age1…: %w", path, err)
		}
		return recipients, nil
	}
	identities, err := Identities(path)
	if err != nil {
		return nil, err
	}
	var recipients []age.Recipient
	for _, identity := range identities {
		switch own := identity.(type) {
		case *age.X25519Identity:
			recipients = append(recipients, own.Recipient())
		case *age.HybridIdentity:
			recipients = append(recipients, own.Recipient())
		default:
			return nil, fmt.Errorf("the key for backups in %s: a %T has no public key that is known here", path, identity)
		}
	}
	return recipients, nil
}

// Identities reads from a key file the secret keys that open backups. A file that others than its owner may read is
// refused.
func Identities(path string) ([]age.Identity, error) {
	content, err := secretfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read the key for backups: %w", err)
	}
	identities, err := age.ParseIdentities(bytes.NewReader(content))
	if err != nil { // the cause may quote the file
		return nil, fmt.Errorf("the key for backups in %s: want a secret key of age, AGE-SECRET-KEY-…, as `sluice hub key` makes it", path)
	}
	return identities, nil
}
