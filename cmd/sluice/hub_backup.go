package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/backup"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/journal/sinks"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/registration"
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
	keys, err := seal.Load(b.keyset)
	if err == nil {
		err = keysFit(ctx, b.config, b.namespace, keys)
	}
	if err != nil {
		return nil, fmt.Errorf("back up the hub: %w", err)
	}
	if b.namespace != "" {
		o.Namespace = b.namespace
		if o.Change, err = sealSecrets(b.config, keys); err != nil {
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

// sealSecrets returns a function that seals what a hub on a cluster keeps in Secrets into the resources that name them, as an
// embedded hub keeps it: the access to member clusters, the tokens for their readers, the identities that joined clusters
// gave, and the keys of sinks.
func sealSecrets(config *rest.Config, keys *seal.Keyset) (func(context.Context, *unstructured.Unstructured) error, error) {
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, o *unstructured.Unstructured) error {
		switch o.GetKind() {
		case "MemberCluster":
			return sealCluster(ctx, c, keys, o)
		case "EventSink":
			return sealSink(ctx, c, keys, o)
		}
		return nil
	}, nil
}

func sealCluster(ctx context.Context, c client.Client, keys *seal.Keyset, o *unstructured.Unstructured) error {
	cluster := &v1alpha1.MemberCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, cluster); err != nil {
		return fmt.Errorf("read member cluster %s: %w", o.GetName(), err)
	}
	paths := [][]string{{"spec", "access"}, {"spec", "reader", "token"}, {"spec", "liqo", "joined", "identity"}}
	connections := &member.Connections{Reader: c, Namespace: cluster.Namespace, Keys: keys}
	for i, holder := range registration.Holders(cluster) {
		if holder.Spec.Access.SecretRef == nil {
			continue
		}
		access, err := connections.Kubeconfig(ctx, holder)
		if err != nil {
			return err
		}
		sealed, err := registration.Sealed{Keys: keys}.Store(ctx, holder, access)
		if err != nil {
			return fmt.Errorf("member cluster %s: %w", cluster.Name, err)
		}
		if err := setSealed(o, &sealed, paths[i]); err != nil {
			return fmt.Errorf("member cluster %s: %w", cluster.Name, err)
		}
	}
	return nil
}

func sealSink(ctx context.Context, c client.Client, keys *seal.Keyset, o *unstructured.Unstructured) error {
	sink := &v1alpha1.EventSink{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, sink); err != nil {
		return fmt.Errorf("read sink %s: %w", o.GetName(), err)
	}
	name := sink.Spec.Key.SecretName
	if name == "" {
		return nil
	}
	var secret corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: sink.Namespace, Name: name}, &secret)
	if err == nil && len(secret.Data[sinks.SecretKey]) == 0 {
		err = fmt.Errorf("the Secret has no key %q", sinks.SecretKey)
	}
	if err != nil {
		return fmt.Errorf("sink %s: read its key from Secret %s: %w (create it, or remove the sink)", sink.Name, name, err)
	}
	sealed, err := keys.Seal(secret.Data[sinks.SecretKey], sinks.Owner(sink.Namespace, sink.Name))
	if err == nil {
		err = setSealed(o, &v1alpha1.EventSinkKey{Sealed: sealed}, []string{"spec", "key"})
	}
	if err != nil {
		return fmt.Errorf("sink %s: seal its key: %w", sink.Name, err)
	}
	return nil
}

// setSealed writes a part of a resource.
func setSealed(o *unstructured.Unstructured, part any, path []string) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(o.Object, fields, path...)
}
