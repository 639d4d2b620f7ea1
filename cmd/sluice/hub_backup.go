package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/backup"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/registration"
)

// Names of files in a backup.
const (
	keysetInBackup    = "keyset.json"
	platformsInBackup = "platforms.yaml"
)

// hubBackup makes backups of a hub.
type hubBackup struct {
	config *rest.Config
	// namespace of a hub on a cluster; empty for an embedded hub.
	namespace string
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
	if o.Files, err = hubFiles(b.keyset, b.platforms); err != nil {
		return nil, fmt.Errorf("back up the hub: %w", err)
	}
	if b.namespace != "" {
		o.Namespace = b.namespace
		if o.Change, err = sealAccess(b.config, b.keyset); err != nil {
			return nil, fmt.Errorf("back up the hub: %w", err)
		}
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

// sealAccess returns a function that puts the access to a member cluster, which a hub on a cluster keeps in a Secret, into
// the resource, sealed with the keyset, as an embedded hub keeps it.
func sealAccess(config *rest.Config, keyset string) (func(context.Context, *unstructured.Unstructured) error, error) {
	keys, err := seal.Load(keyset)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, o *unstructured.Unstructured) error {
		if o.GetKind() != "MemberCluster" {
			return nil
		}
		cluster := &v1alpha1.MemberCluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, cluster); err != nil {
			return fmt.Errorf("read member cluster %s: %w", o.GetName(), err)
		}
		if cluster.Spec.Access.SecretRef == nil {
			return nil
		}
		connections := &member.Connections{Reader: c, Namespace: cluster.Namespace, Keys: keys}
		access, err := connections.Kubeconfig(ctx, cluster)
		if err != nil {
			return err
		}
		sealed, err := registration.Sealed{Keys: keys}.Store(ctx, cluster, access)
		if err != nil {
			return fmt.Errorf("member cluster %s: %w", cluster.Name, err)
		}
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&sealed)
		if err != nil {
			return fmt.Errorf("member cluster %s: %w", cluster.Name, err)
		}
		return unstructured.SetNestedMap(o.Object, spec, "spec", "access")
	}, nil
}
