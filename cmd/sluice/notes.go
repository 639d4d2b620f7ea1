package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// Names of the files that belong to a hub, in its data folder and in backups.
const (
	keysetName    = "keyset.json"
	platformsName = "platforms.yaml"
)

// keysetPath returns the path of the keyset of an embedded hub: the one that `sluice serve` uses.
func (h *hubFlags) keysetPath() string { return pathIn(h.dataDir, keysetName) }

// platformsPath returns the path of the platforms file of an embedded hub: the one that `sluice serve` uses.
func platformsPath(dataDir string) string { return pathIn(dataDir, platformsName) }

// filesIn returns the paths to which the files of a backup are restored, by their names.
func filesIn(dataDir string) map[string]string {
	return map[string]string{keysetName: filepath.Join(dataDir, keysetName), platformsName: filepath.Join(dataDir, platformsName)}
}

// pathIn returns the path that `sluice serve` has noted of a file that belongs to its hub. Without a note, the file is in
// the data folder.
func pathIn(dataDir, name string) string {
	noted, err := os.ReadFile(pathNote(dataDir, name))
	if err != nil {
		return filepath.Join(dataDir, name)
	}
	return strings.TrimSuffix(string(noted), "\n")
}

// notePath notes the path of a file that belongs to a hub, unless it is the default.
func notePath(dataDir, name, path string) error {
	path, err := filepath.Abs(path)
	byDefault, defaultErr := filepath.Abs(filepath.Join(dataDir, name))
	if err := errors.Join(err, defaultErr); err != nil {
		return err
	}
	if path == byDefault {
		path = ""
	}
	return note(pathNote(dataDir, name), path)
}

// pathNote returns the path of the note about a file, for instance keyset.path.
func pathNote(dataDir, name string) string {
	return filepath.Join(dataDir, strings.TrimSuffix(name, filepath.Ext(name))+".path")
}

func brokerURLPath(dataDir string) string { return filepath.Join(dataDir, "broker.url") }

// writeBrokerURL notes the broker's URL for platforms in the data folder; "" means that it is unknown.
func writeBrokerURL(dataDir, url string) error { return note(brokerURLPath(dataDir), url) }

// note writes a text for other commands to a file; "" removes the file.
func note(path, text string) (err error) {
	if text != "" {
		err = renameio.WriteFile(path, []byte(text+"\n"), 0o600)
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("note for other commands: %w", err)
	}
	return nil
}
