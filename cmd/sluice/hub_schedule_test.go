package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestBackupEvery: `sluice serve` backs its hub up at once, and again, keeps as many backups as it shall, removes what a
// kill has left, and leaves other files alone. Each backup can be restored.
func TestBackupEvery(t *testing.T) {
	t.Parallel()
	away := t.TempDir()
	key, dir := filepath.Join(away, "backup.key"), filepath.Join(away, "backups")
	mustSluice(t, "hub", "key", key)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	part, other := filepath.Join(dir, ".sluice-20260101T000000Z.backup123"), filepath.Join(dir, "hub.backup")
	for _, path := range []string{part, other, filepath.Join(dir, "sluice-20260101T000000Z.backup"), filepath.Join(dir, "sluice-20260102T000000Z.backup")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := serveAnother(t, "sluice", "--backup-every", "1s", "--backup-dir", dir, "--backup-key", key, "--keep-backups", "2")
	named := func() []string {
		t.Helper()
		paths, err := filepath.Glob(filepath.Join(dir, "sluice-*.backup"))
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	var first string
	s.until("the old backups are replaced", func(context.Context) error {
		paths := named()
		if len(paths) != 2 || strings.Contains(paths[0], "20260102") {
			return fmt.Errorf("there is %q", paths)
		}
		first = paths[0]
		return nil
	})
	s.until("there is another one", func(context.Context) error {
		if paths := named(); len(paths) != 2 || paths[0] == first {
			return fmt.Errorf("there is %q", paths)
		}
		return nil
	})
	if _, err := os.Stat(part); !os.IsNotExist(err) {
		t.Errorf("what a kill has left: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another file: %v", err)
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	if out, err := sluice(t, "hub", "restore", named()[1], "--key", key, "--data-dir", filepath.Join(away, "data")); err != nil {
		t.Errorf("restore: %v\n%s", err, out)
	}
	s.start()
}

// TestBackupsAfterTheClockWasAhead: the backup that was just made stays, and those dated after it go first, also if there
// are as many of these as are kept. One that cannot be removed does not make a backup fail.
func TestBackupsAfterTheClockWasAhead(t *testing.T) {
	h, _, _ := startHub(t)
	away := t.TempDir()
	key, file, dir := filepath.Join(away, "backup.key"), filepath.Join(away, "file"), filepath.Join(away, "backups")
	mustSluice(t, "hub", "key", key)
	mustSluice(t, "keyset", "new", file)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var ahead []string
	for _, name := range []string{"sluice-21000101T000000Z.backup", "sluice-21000102T000000Z.backup", "sluice-20200101T000000Z.backup"} {
		ahead = append(ahead, name)
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	s := &backupSchedule{hubBackup: hubBackup{config: h.Config, key: key, keyset: file, platforms: file}, dir: dir, keep: 3, logger: slog.New(slog.NewTextHandler(&log, nil))}
	if err := s.register(prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	if at, ok := s.newest(time.Now()); !ok || at.Year() != 2020 {
		t.Errorf("the newest is of %s, %t", at, ok)
	}
	now := time.Now().UTC()
	for _, want := range [][]string{{ahead[1], ahead[2], "made"}, {ahead[2], "made", "made"}, {"made", "made", "made"}} {
		now = now.Add(time.Second) // names have seconds
		if err := s.once(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, at := range s.made(now) {
			name := at.Format(backupName)
			if !slices.Contains(ahead, name) {
				name = "made"
			}
			got = append(got, name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
	}

	stuck := filepath.Join(dir, "sluice-20200101T000000Z.backup")
	if err := os.MkdirAll(filepath.Join(stuck, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.once(t.Context(), now.Add(time.Second)); err != nil {
		t.Errorf("a backup is said to have failed: %v", err)
	}
	if !strings.Contains(log.String(), "an old backup cannot be removed") || len(s.made(now.Add(time.Second))) != 4 {
		t.Errorf("there are %v, and the log is %s", s.made(now), log.String())
	}
}

// TestBackupFlags: what could make no use of a backup is refused before Sluice serves.
func TestBackupFlags(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(t.TempDir(), "backup.key")
	mustSluice(t, "hub", "key", key)
	for _, row := range []struct {
		schedule backupSchedule
		says     string
	}{
		{backupSchedule{}, ""},
		{backupSchedule{every: time.Hour, dir: t.TempDir(), hubBackup: hubBackup{key: key}}, ""},
		{backupSchedule{every: time.Millisecond, dir: t.TempDir(), hubBackup: hubBackup{key: key}}, "at least a second"},
		{backupSchedule{dir: t.TempDir(), hubBackup: hubBackup{key: key}}, "no backups are made without --backup-every"},
		{backupSchedule{every: time.Hour, hubBackup: hubBackup{key: key}}, "needs --backup-dir and --backup-key"},
		{backupSchedule{every: time.Hour, dir: filepath.Join(dir, "backups"), hubBackup: hubBackup{key: key}}, "would be lost with it"},
		{backupSchedule{every: time.Hour, dir: t.TempDir(), hubBackup: hubBackup{key: key + ".none"}}, "`sluice hub key"},
	} {
		err := row.schedule.check(dir)
		if (err != nil) != (row.says != "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s %s %s: %v, want %q", row.schedule.every, row.schedule.dir, row.schedule.key, err, row.says)
		}
	}
}
