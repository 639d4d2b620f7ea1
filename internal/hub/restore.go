package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sluice-dev/sluice/charts"
	"github.com/sluice-dev/sluice/internal/backup"
)

// Folders in a data directory: of the hub's database, and of one that is being restored.
const (
	etcdDir      = "etcd"
	restoringDir = "restoring"
)

// RestoreOptions describe a restore.
type RestoreOptions struct {
	// Version of this Sluice. A backup of a later version is refused.
	Version string
	// DataDir is the folder of the hub. It must have no hub.
	DataDir string
	// Read reads the backup from its start, see backup.Read. It is called twice.
	Read func(do func(backup.Entry) error) (*backup.Header, error)
	// Files says where the files of the backup are put, by their names. A file of another name is refused.
	Files map[string]string
	// Logger receives warnings of etcd. Nil means slog.Default().
	Logger *slog.Logger

	// moved says that the hub is moved here: it lacks nothing, and the mark of its former home is not to come along.
	moved bool
	// after is called after each step, in tests.
	after func(step string)
}

// Restore makes an embedded hub of a backup: with the same identity, and each resource as it was, with its UID. Before
// it changes anything it has read the whole backup, and refuses one that is damaged or that this version of Sluice
// cannot store, and a folder that has a hub or other files of these names. The database comes to its place last, in
// one step: if Restore is killed, no hub starts in the folder until it has been called again and has succeeded.
//
// The hub is marked as restored, see [RestoredMark].
func Restore(ctx context.Context, o RestoreOptions) (_ *BackedUp, err error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.after == nil {
		o.after = func(string) {}
	}
	plan, err := check(o)
	if err != nil {
		return nil, err
	}
	o.after("check")
	dir, lock, err := reserve(o.DataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	staging := filepath.Join(dir, restoringDir)
	if err := os.RemoveAll(filepath.Join(staging, etcdDir)); err != nil {
		return nil, fmt.Errorf("remove what an interrupted restore left: %w", err)
	}
	o.after("clear")
	if err := plan.fill(ctx, staging, o); err != nil {
		return nil, err
	}
	o.after("fill")
	if err := plan.placeFiles(); err != nil {
		return nil, err
	}
	o.after("files")
	if err := errors.Join(os.Rename(filepath.Join(staging, etcdDir), filepath.Join(dir, etcdDir)), syncDir(dir)); err != nil {
		return nil, fmt.Errorf("put the restored database into its place: %w", err)
	}
	o.after("rename")
	return plan.made, os.RemoveAll(staging)
}

// reserve locks a data directory without a hub, and marks it as one where a hub arrives: none starts there before a restore
// has ended (see isWhole). It returns the absolute path.
func reserve(dir string) (_ string, _ *dataDirLock, err error) {
	if dir, err = prepareDataDir(dir); err != nil {
		return "", nil, err
	}
	lock, err := lockDataDir(dir)
	if err != nil {
		return "", nil, err
	}
	if err = hasNoHub(dir); err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(dir, restoringDir), 0o700), syncDir(dir))
	}
	if err != nil {
		return "", nil, errors.Join(err, lock.release())
	}
	return dir, lock, nil
}

// hasNoHub returns an error with the remedy if a data directory has a hub.
func hasNoHub(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, etcdDir)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("there is a hub in %s already: restore into another folder (--data-dir), or move this one away", dir), err)
	}
	return nil
}

// isWhole returns an error with the remedy if a restore into a data directory did not finish.
func isWhole(dir string) error {
	if hasNoHub(dir) != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, restoringDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("a restore into this folder did not finish: run `sluice hub restore` or `sluice hub move` again, or remove %s to begin with an empty hub", filepath.Join(dir, restoringDir))
}

// restorePlan has what a restore needs to know of a backup before it begins.
type restorePlan struct {
	made *BackedUp
	// files by the paths where they are put.
	files map[string][]byte
	// known are the kinds that this version of Sluice stores.
	known map[schema.GroupKind]string
}

// check reads the whole backup, and changes nothing.
func check(o RestoreOptions) (*restorePlan, error) {
	definitions, err := readCRDs(charts.CRDs)
	if err != nil {
		return nil, err
	}
	p := &restorePlan{made: &BackedUp{}, files: map[string][]byte{}, known: map[schema.GroupKind]string{definitionKind: "customresourcedefinitions"}}
	for _, crd := range definitions {
		p.known[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = crd.Spec.Names.Plural
	}
	hasIdentity := false
	header, err := o.Read(func(e backup.Entry) error {
		if e.File != nil {
			path := o.Files[e.File.Name]
			if path == "" {
				return fmt.Errorf("the backup has a file %q, which this version of Sluice does not know: restore it with the version that made it", e.File.Name)
			}
			p.files[path] = e.File.Content
			return sameOrNone(path, e.File.Content)
		}
		object, _, err := p.stored(e.Object)
		if err != nil {
			return err
		}
		if object.GroupVersionKind().GroupKind() != definitionKind {
			p.made.Resources++
			return nil
		}
		hasIdentity = hasIdentity || object.GetName() == identityCRD
		return hasVersions(object, definitions)
	})
	if err != nil {
		return nil, err
	}
	if isLater(header.Version, o.Version) {
		return nil, fmt.Errorf("the backup was made by Sluice %s, and this is %s: restore it with that version, or a later one", header.Version, o.Version)
	}
	if !hasIdentity {
		return nil, fmt.Errorf("the backup does not have the hub's identity, the definition %s", identityCRD)
	}
	p.made.Header = *header
	return p, hasNoHub(o.DataDir)
}

// hasVersions returns an error with the remedy if a hub has stored resources in a version that the definitions of this
// Sluice lack.
func hasVersions(definition *unstructured.Unstructured, known []*apiextensionsv1.CustomResourceDefinition) error {
	stored, _, err := unstructured.NestedStringSlice(definition.Object, "status", "storedVersions")
	if err != nil {
		return fmt.Errorf("read definition %s of the backup: %w", definition.GetName(), err)
	}
	i := slices.IndexFunc(known, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == definition.GetName() })
	if i < 0 {
		return nil
	}
	for _, name := range stored {
		if !slices.ContainsFunc(known[i].Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name }) {
			return fmt.Errorf("the backup has %s in version %s, which this version of Sluice does not know: restore it with the version that made it", known[i].Name, name)
		}
	}
	return nil
}

// isLater reports whether a version of Sluice is later than another. Only their numbers count: "0.1.0-5-gabcdef" is a build
// after 0.1.0. Builds without numbers can restore, and be restored by, all.
func isLater(made, this string) bool {
	a, errA := version.ParseGeneric(made)
	b, errB := version.ParseGeneric(this)
	return errA == nil && errB == nil && a.GreaterThan(b)
}

// definitionKind is the kind of definitions.
var definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// stored returns a resource and its key in etcd, below the prefix of the API server.
func (p *restorePlan) stored(content json.RawMessage) (*unstructured.Unstructured, string, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err != nil {
		return nil, "", fmt.Errorf("read a resource of the backup: %w", err)
	}
	kind := object.GroupVersionKind().GroupKind()
	plural, known := p.known[kind]
	if !known {
		return nil, "", fmt.Errorf("the backup has a resource of kind %s, which this version of Sluice does not know: restore it with the version that made it", kind)
	}
	key := "/" + kind.Group + "/" + plural
	if namespace := object.GetNamespace(); namespace != "" {
		key += "/" + namespace
	}
	return object, key + "/" + object.GetName(), nil
}

// sameOrNone returns an error with the remedy if there is a file with another content.
func sameOrNone(path string, content []byte) error {
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(have) == string(content) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s is not as in the backup: move it away, or restore into another folder (--data-dir)", path), err)
}

// placeFiles writes the files, with mode 0600.
func (p *restorePlan) placeFiles() error {
	for path, content := range p.files {
		if err := renameio.WriteFile(path, content, 0o600, renameio.IgnoreUmask()); err != nil {
			return fmt.Errorf("restore %s: %w", path, err)
		}
		if err := syncDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("restore %s: %w", path, err)
		}
	}
	return nil
}

func syncDir(path string) error {
	dir, err := fileutil.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(dir), dir.Close())
}

// fill makes a database of the backup in a folder of its own.
func (p *restorePlan) fill(ctx context.Context, staging string, o RestoreOptions) (err error) {
	store, err := startEtcd(ctx, staging, o.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.stop()) }()
	batch := &batch{store: store}
	now := time.Now().UTC()
	header, err := o.Read(func(e backup.Entry) error {
		if e.File != nil {
			return nil
		}
		object, key, err := p.stored(e.Object)
		if err != nil {
			return err
		}
		value := []byte(e.Object)
		if object.GroupVersionKind().GroupKind() == definitionKind && object.GetName() == identityCRD {
			mark := func() ([]byte, error) { return markRestored(object, now, p.made.Taken) }
			if o.moved {
				mark = func() ([]byte, error) { return unmarkMoved(object) }
			}
			if value, err = mark(); err != nil {
				return err
			}
		}
		return batch.put(ctx, storagePrefix+key, value)
	})
	if err != nil {
		return err
	}
	if *header != p.made.Header {
		return errors.New("the backup has changed since it was checked: try again")
	}
	return batch.flush(ctx)
}
