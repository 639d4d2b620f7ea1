package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/renameio/v2"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/backup"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/secretfile"
)

// Names of files in a backup.
const (
	keysetInBackup    = "keyset.json"
	platformsInBackup = "platforms.yaml"
)

// hubBackup makes backups of an embedded hub.
type hubBackup struct {
	config *rest.Config
	// key is the path of the key that they are sealed for.
	key string
	// keyset and platforms are the paths of the files that belong to the hub.
	keyset, platforms string
}

// write makes a backup in a new file, which comes to be in one step, complete.
func (b *hubBackup) write(ctx context.Context, path string) (_ *hub.BackedUp, err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("back up the hub: %s exists: name another file", path), err)
	}
	o := hub.BackupOptions{Version: version}
	if o.Recipients, err = backup.Recipients(b.key); err != nil {
		return nil, fmt.Errorf("back up the hub: %w", err)
	}
	for _, file := range []struct{ name, path string }{{keysetInBackup, b.keyset}, {platformsInBackup, b.platforms}} {
		content, err := secretfile.Read(file.path)
		if err != nil {
			return nil, fmt.Errorf("back up the hub: %w; a backup without %s could not be used", err, file.name)
		}
		o.Files = append(o.Files, backup.File{Name: file.name, Content: content})
	}
	file, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600), renameio.IgnoreUmask())
	if err != nil {
		return nil, fmt.Errorf("back up the hub: %w", err)
	}
	defer func() { err = errors.Join(err, file.Cleanup()) }()
	made, err := hub.Backup(ctx, b.config, file, o)
	if err != nil {
		return nil, fmt.Errorf("back up the hub: %w", err)
	}
	if err := file.CloseAtomicallyReplace(); err != nil {
		return nil, fmt.Errorf("back up the hub: %w", err)
	}
	return made, nil
}
