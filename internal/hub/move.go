package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/backup"
)

// Move describes the move of a hub to another home: from a data directory to a cluster, or back. Whenever the process
// dies, at most one of the two homes is a hub that starts, and the same move, asked for again, goes on:
//
//  1. everything is read and checked, and nothing is changed;
//  2. the new home is marked as one where a hub arrives: no Sluice starts there;
//  3. the former home is marked as left, with the name of the new one: no Sluice starts there any more;
//  4. the resources are written to the new home, and read back;
//  5. the new home's mark is replaced by the hub's ID: Sluice starts there.
//
// The mark of a folder is that of a restore that has not ended, see [Restore].
//
// API servers give UIDs, generations and times themselves. A resource that comes to a cluster keeps its first ones in
// annotations (v1alpha1.AnnotationUID), and numbers in its status that count generations are counted anew.
type Move struct {
	// DataDir is the folder of the embedded hub: the former home if the hub moves to a cluster, or the new one.
	DataDir string
	// Cluster is the cluster that is the other home.
	Cluster *rest.Config
	// Namespace of all resources, the same in both homes, because what is sealed is bound to it.
	Namespace string
	// To names the new home for people. It must be the same when the move is asked for again.
	To string
	// Version of this Sluice.
	Version string
	// Check returns an error with the remedy if what the operator gave does not belong to the hub.
	Check func(ctx context.Context, hub *rest.Config) error
	// Idle returns an error with the remedy if a Sluice runs on the cluster.
	Idle func(context.Context) error
	// Say tells the operator, in words, what is done.
	Say func(format string, arguments ...any)
	// DryRun ends the move after the checks.
	DryRun bool
}

// Moved describes a hub that has been moved.
type Moved struct {
	BackedUp
	// Already says that the hub had been moved before.
	Already bool
}

// packed is a backup that only this process can read.
type packed struct {
	*BackedUp
	file *os.File
	key  *age.X25519Identity
}

// pack makes a backup in a file that has no name.
func (m *Move) pack(ctx context.Context, config *rest.Config, o BackupOptions) (_ *packed, err error) {
	p := &packed{}
	if p.key, err = age.GenerateX25519Identity(); err != nil {
		return nil, err
	}
	if p.file, err = os.CreateTemp("", "sluice-move-"); err != nil {
		return nil, err
	}
	o.Recipients, o.Version = []age.Recipient{p.key.Recipient()}, m.Version
	err = os.Remove(p.file.Name())
	if err == nil {
		p.BackedUp, err = Backup(ctx, config, p.file, o)
	}
	if err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	return p, nil
}

// count returns how many resources a hub has, in all namespaces.
func (m *Move) count(ctx context.Context, config *rest.Config) (int, error) {
	p, err := m.pack(ctx, config, BackupOptions{})
	if err != nil {
		return 0, err
	}
	return p.Resources, p.file.Close()
}

// read is Read of RestoreOptions.
func (p *packed) read(do func(backup.Entry) error) (*backup.Header, error) {
	if _, err := p.file.Seek(0, 0); err != nil {
		return nil, err
	}
	return backup.Read(p.file, []age.Identity{p.key}, do)
}

// resources passes each resource to do.
func (p *packed) resources(do func(*unstructured.Unstructured) error) error {
	_, err := p.read(func(e backup.Entry) error {
		if e.Object == nil {
			return nil
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(e.Object); err != nil {
			return err
		}
		if object.GroupVersionKind().GroupKind() == definitionKind {
			return nil
		}
		return do(object)
	})
	return err
}

// summary says how many resources of each kind there are.
func (p *packed) summary() (string, error) {
	kinds := map[string]int{}
	err := p.resources(func(o *unstructured.Unstructured) error {
		kinds[o.GetKind()]++
		return nil
	})
	counts := []string{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		counts = append(counts, fmt.Sprintf("%d %s", kinds[kind], kind))
	}
	return cmp.Or(strings.Join(counts, ", "), "no resources"), err
}

// announce says what is to move.
func (m *Move) announce(p *packed) error {
	summary, err := p.summary()
	if err == nil {
		m.Say("To move to the %s: %s", m.To, summary)
	}
	return err
}

// leaves returns an error with the remedy unless the hub in a former home may move to the new one.
func (m *Move) leaves(from *home) error {
	if from.movedTo == m.To && from.arriving == "" {
		return nil
	}
	return from.check()
}

// ToFolder moves the hub from the cluster to the folder. Change and Files are as in BackupOptions, and to is where the files
// come to be, as in RestoreOptions.
func (m *Move) ToFolder(ctx context.Context, o BackupOptions, to RestoreOptions) (*Moved, error) {
	from, err := readHome(ctx, m.Cluster)
	if err != nil {
		return nil, err
	}
	if err := m.leaves(from); err != nil {
		return nil, err
	}
	if from.movedTo != "" && hasNoHub(m.DataDir) != nil { // it has come there in one step
		return &Moved{Already: true}, nil
	}
	o.Namespace, to.DataDir, to.moved = m.Namespace, m.DataDir, true
	if err := m.mayLeaveCluster(ctx, o, to); err != nil || m.DryRun {
		return nil, err
	}
	if err := m.leaveCluster(ctx, from); err != nil {
		return nil, err
	}
	m.Say("The hub's home is the %s from now on: no Sluice starts in the former one", m.To)
	if err := m.Idle(ctx); err != nil { // one that started just before
		return nil, err
	}
	m.Say("Reading the hub again, and writing it to the folder")
	p, err := m.pack(ctx, m.Cluster, o)
	if err != nil {
		return nil, fmt.Errorf("read the hub: %w", err)
	}
	defer p.file.Close()
	to.Read = p.read
	made, err := Restore(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("write the hub: %w", err)
	}
	return &Moved{BackedUp: *made}, nil
}

// leaveCluster marks the folder, in which no hub starts then before all has arrived, and after it the cluster.
func (m *Move) leaveCluster(ctx context.Context, from *home) error {
	dir, lock, err := reserve(m.DataDir)
	if err == nil {
		err = lock.release()
	}
	if err != nil {
		return fmt.Errorf("mark the folder as the hub's new home: %w", err)
	}
	if from.movedTo != "" {
		return nil
	}
	err = leave(ctx, m.Cluster, m.To)
	if isRefusal(err) { // after other errors the cluster may be marked
		_ = os.Remove(filepath.Join(dir, restoringDir)) // an interrupted restore may have left something there
	}
	if err != nil {
		return fmt.Errorf("mark the hub as moved: %w", err)
	}
	return nil
}

// mayLeaveCluster reads and checks everything, and changes nothing.
func (m *Move) mayLeaveCluster(ctx context.Context, o BackupOptions, to RestoreOptions) error {
	if err := cmp.Or(m.Idle(ctx), m.Check(ctx, m.Cluster)); err != nil {
		return err
	}
	m.Say("Reading the hub")
	all, err := m.count(ctx, m.Cluster)
	if err != nil {
		return fmt.Errorf("read the hub: %w", err)
	}
	p, err := m.pack(ctx, m.Cluster, o)
	if err != nil {
		return fmt.Errorf("read the hub: %w", err)
	}
	defer p.file.Close()
	if n := all - p.Resources; n > 0 {
		return fmt.Errorf("another Sluice has %d resources in other namespaces of that cluster; both have one identity, so neither can move: remove that one first", n)
	}
	to.Read = p.read
	if _, err := check(to); err != nil {
		return err
	}
	return m.announce(p)
}
